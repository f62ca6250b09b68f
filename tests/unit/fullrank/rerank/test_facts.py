"""Facts about documents: what a plain count of their texts gives, whatever group they are stored in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fullrank.rerank.facts import NO_DATE, DocumentFacts, FactSettings, day_of, word_number
from fullrank.text.words import count_words

SETTINGS = FactSettings((("title", ("title",)), ("body", ("text", "notes"))), "date", "asked")
DOCUMENTS: list[dict[str, Any]] = [
    {
        "title": "Red apple",
        "text": "red red fruit",
        "notes": "sweet",
        "date": "2024-03-01",
        "asked": "a b a\n\nc a\na b a",
    },
    {"title": "", "text": None, "section": 3},
    {"title": "東京の天気", "text": "a b c a b a", "date": "2024-02-29T23:30:00-02:00"},
    {"text": "x " * 70_000, "date": "soon", "asked": "\n".join(f"q {i}" for i in range(99))},
]


@pytest.fixture(scope="module")
def facts() -> DocumentFacts:
    return DocumentFacts.of(DOCUMENTS, SETTINGS, np.array([2, 0, 1, 0], np.int32))


def same(a: DocumentFacts, b: DocumentFacts) -> bool:
    pairs = zip(a.arrays().values(), b.arrays().values(), strict=True)
    return all(x.dtype == y.dtype and x.tolist() == y.tolist() for x, y in pairs)


def test_each_line_has_the_counted_words_of_a_field(facts: DocumentFacts) -> None:
    for d, document in enumerate(DOCUMENTS):
        for f, (_, sources) in enumerate(SETTINGS.fields):
            counted = count_words("\n".join(str(document.get(s) or "") for s in sources))
            line = slice(*facts.indptr[[d * 2 + f, d * 2 + f + 1]].tolist())
            found = dict(zip(facts.words[line].tolist(), facts.counts[line].tolist(), strict=True))
            assert found == {word_number(w): min(c, 65535) for w, c in counted.items()}
            assert facts.lengths[d, f] == sum(counted.values())
            assert facts.words[line].tolist() == sorted(found)


def test_the_first_distinct_lines_are_training_queries(facts: DocumentFacts) -> None:
    expected = [["a b", "a c"], [], [], [f"q {i}" for i in range(64)]]
    for d, queries in enumerate(expected):
        own = slice(*facts.asked_indptr[[d, d + 1]].tolist())
        words = zip(facts.asked_query[own].tolist(), facts.asked_words[own].tolist(), strict=True)
        pairs = {(i, word_number(w)) for i, query in enumerate(queries) for w in query.split()}
        assert sorted(words) == sorted(pairs)


def test_dates_are_days_since_1970_in_utc(facts: DocumentFacts) -> None:
    # 2024-02-29 23:30 two hours west of UTC is the first of March there.
    assert facts.days.tolist() == [19783, NO_DATE, 19783, NO_DATE]


@pytest.mark.parametrize(
    ("value", "day"),
    [
        ("1970-01-01", 0),
        ("1970-01-02T00:00:00", 1),
        ("1969-12-31T23:59:59Z", -1),
        ("0001-01-01", -719162),
        ("0001-01-01T00:00:00+10:00", -719163),
        ("9999-12-31T23:00:00-10:00", 2932897),
        (" 1970-01-03 ", 2),
        ("2024-13-01", NO_DATE),
        # A code, more often than a day: filters read no time either.
        ("20240101", NO_DATE),
        ("", NO_DATE),
        (20240301, NO_DATE),
        (None, NO_DATE),
        (["2024-03-01"], NO_DATE),
    ],
)
def test_a_date_is_iso_8601_text(value: object, day: int) -> None:
    assert day_of(value) == day


def test_taken_facts_equal_those_of_the_taken_documents(facts: DocumentFacts) -> None:
    for rows in ([3, 0, 0, 2], [1], []):
        found = facts.take(np.array(rows, np.int64))
        clicks = facts.clicks[np.array(rows, np.int64)]
        assert same(found, DocumentFacts.of([DOCUMENTS[r] for r in rows], SETTINGS, clicks))


def test_concatenated_facts_equal_those_of_all_documents(facts: DocumentFacts) -> None:
    first, rest = facts.take(np.array([0, 1])), facts.take(np.array([2, 3]))
    assert same(DocumentFacts.concatenate([first, rest]), facts)


def test_facts_pass_their_own_check_and_damaged_ones_do_not(facts: DocumentFacts) -> None:
    facts.check(4, 2, verify=True)
    swapped = facts.words.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    falling = facts.indptr.copy()
    falling[1] = falling[2] + 1
    for damaged, reason in (
        (replace(facts, words=swapped), "words do not ascend"),
        (replace(facts, indptr=falling), "indptr does not ascend"),
        (replace(facts, indptr=facts.indptr + 1), "does not span"),
        (replace(facts, clicks=facts.clicks[1:]), "clicks is"),
        (replace(facts, asked_indptr=facts.asked_indptr[1:]), "asked_indptr is"),
        (replace(facts, asked_query=facts.asked_query + np.uint16(64)), "asked_query is not"),
        (replace(facts, lengths=facts.lengths[:, :1]), "lengths is"),
    ):
        with pytest.raises(ValueError, match=reason):
            damaged.check(4, 2, verify=True)


def test_words_of_adjacent_lines_may_descend(facts: DocumentFacts) -> None:
    starts = facts.indptr[1:-1]
    inside = starts[(starts > 0) & (starts < len(facts.words))]
    assert np.any(facts.words[inside] <= facts.words[inside - 1])
