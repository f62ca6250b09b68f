"""Rules are read, and refused with a path and a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.models.contract import Model
from fullrank.models.mixed import MixedModel
from fullrank.models.widening import widen
from fullrank.search.rules.places import Page, spread
from fullrank.search.rules.rule import Condition, Pin, Rule, RuleError, RuleIndex, read_rule
from fullrank.search.rules.synonyms import MAX_REPLACED, WEIGHT, features_of, replaced
from fullrank.text.folding import folded_words
from tests.bundles import CORPUS, linear_model

NOW = 1_795_435_200.0  # 2026-11-23T12:00:00Z


def test_a_rule_is_read() -> None:
    rule = read_rule(
        "r",
        {
            "query": {"contains": "Crème  Brûlée"},
            "pin": [{"id": "b", "position": 3}, {"id": "a", "position": 1}],
            "hide": ["x", "x", "y"],
            "from": "2026-11-23T13:00:00+01:00",
            "until": "2026-11-23T12:00:01Z",
        },
    )
    assert rule.condition == Condition("contains", ("creme", "brulee"))
    assert rule.pins == (Pin("a", 0), Pin("b", 2))
    assert rule.hide == ("x", "y")
    assert [rule.is_active(NOW + s) for s in (-0.1, 0, 0.9, 1)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, ""),
        ({"query": {"is": "x"}}, ""),
        ({"query": {}, "hide": ["a"]}, "query"),
        ({"query": {"is": "x", "prefix": "y"}, "hide": ["a"]}, "query"),
        ({"query": {"is": "!?"}, "hide": ["a"]}, "query.is"),
        ({"pin": [{"id": "a", "position": 1}, {"id": "a", "position": 2}]}, "pin.1.id"),
        ({"pin": [{"id": "a", "position": 1}, {"id": "b", "position": 1}]}, "pin.1.position"),
        ({"pin": [{"id": "a", "position": 1}], "hide": ["a"]}, "pin.0.id"),
        ({"synonyms": [["tv", "television"], ["tv", "--"]]}, "synonyms.1.1"),
        ({"synonyms": [["café", "CAFE"]]}, "synonyms.0.1"),
        ({"query": {"is": "coffee"}, "synonyms": [["tv", "television"]]}, "synonyms.0"),
        ({"query": {"is": "smart tv"}, "synonyms": [["TV", "screen"], ["tv smart", "x"]]}, "synonyms.1"),
        ({"hide": ["a"], "from": "2026-11-23T12:00:00"}, "from"),
        ({"hide": ["a"], "from": "tomorrow"}, "from"),
        ({"hide": ["a"], "until": "0001-01-01T00:00:00+14:00"}, "until"),
        ({"hide": ["a"], "from": "2026-11-24T00:00:00Z", "until": "2026-11-24T00:00:00Z"}, "until"),
        ({"hide": ["a"], "until": "2026-11-23T12:00:00Z"}, "until"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_apply_is_refused(given: dict[str, Any], path: str) -> None:
    with pytest.raises(RuleError) as caught:
        read_rule("r", given, NOW)
    assert caught.value.path == path
    assert caught.value.reason


def test_a_stored_rule_may_have_ended() -> None:
    given = {"hide": ["a"], "until": "2026-11-23T12:00:00Z"}
    assert not read_rule("r", given).is_active(NOW)


@pytest.mark.parametrize(
    "query", [{"is": "Smart TV"}, {"contains": "coffee"}, {"prefix": "coffee"}, None]
)
def test_synonyms_that_a_query_may_have_are_read(query: dict[str, Any] | None) -> None:
    read_rule("r", {"query": query, "synonyms": [["tv", "television"]]}, NOW)


def test_a_stored_rule_may_have_synonyms_without_effect() -> None:
    given = {"query": {"is": "coffee"}, "hide": ["a"], "synonyms": [["tv", "television"]]}
    assert read_rule("r", given).hide == ("a",)


texts = st.lists(
    st.sampled_from(["tv", "TV", "télé", "tele", "smart-tv", "set", "東京都", "東京", "c++"]),
    min_size=1,
    max_size=4,
).map(" ".join)
kinds = st.sampled_from(["is", "contains", "prefix", None])
conditions = st.lists(st.tuples(kinds, texts), max_size=8)


def applies(kind: str | None, text: str, query: str) -> bool:
    """Compare one rule with a query, letter by letter."""
    wanted, words = (" ".join(folded_words(part)) for part in (text, query))
    match kind:
        case None:
            return True
        case "is":
            return words == wanted
        case "prefix":
            return words.startswith(wanted)
        case _:
            return f" {wanted} " in f" {words} "


@given(conditions, texts)
def test_the_index_finds_what_a_comparison_of_all_finds(
    given_rules: list[tuple[str | None, str]], query: str
) -> None:
    rules = [
        read_rule(f"r{i}", {"hide": ["a"]} | ({"query": {kind: text}} if kind else {}))
        for i, (kind, text) in enumerate(given_rules)
    ]
    expected = [f"r{i}" for i, (kind, text) in enumerate(given_rules) if applies(kind, text, query)]
    found = RuleIndex(reversed(rules)).matching(query, 0.0)
    assert [rule.id for rule in found] == expected


def test_only_active_rules_apply() -> None:
    index = RuleIndex([Rule("late", hide=("a",), begins=5.0), Rule("early", hide=("a",), ends=5.0)])
    assert [[rule.id for rule in index.matching("x", now)] for now in (4.9, 5.0)] == [
        ["early"],
        ["late"],
    ]


def test_a_query_without_words_meets_only_rules_for_every_query() -> None:
    rules = [Rule("all", hide=("a",)), read_rule("p", {"query": {"prefix": "a"}, "hide": ["a"]})]
    assert [rule.id for rule in RuleIndex(rules).matching("!!", 0.0)] == ["all"]


def whole(ranked: list[str], pins: list[tuple[int, str]]) -> list[str]:
    """Put the pins into the whole list one by one, the uppermost first."""
    found = list(ranked)
    last = -1
    for place, pin in sorted(pins, key=lambda pin: pin[0]):
        last = max(place, last + 1)
        found.insert(min(last, len(found)), pin)
    return found


@given(
    st.integers(0, 12),
    st.lists(st.integers(0, 15), max_size=5),
    st.integers(0, 18),
    st.integers(1, 8),
)
def test_a_page_is_a_part_of_the_whole_list(
    count: int, places: list[int], offset: int, limit: int
) -> None:
    ranked = [f"d{i}" for i in range(count)]
    places = sorted(places)
    pins = [f"p{i}" for i in range(len(places))]
    page = Page(offset, limit, spread(places))
    needed = ranked[page.ranked_offset :][: page.ranked_limit]
    found, pinned = page.put(needed, count, pins)
    expected = whole(ranked, list(zip(places, pins, strict=True)))[offset : offset + limit]
    assert found == expected
    assert pinned == [i for i, id in enumerate(expected) if id.startswith("p")]


GROUPS = [["copy", "move", "Liste den"], ["remote host", "directory"]]
LEARNED = linear_model(CORPUS, n_dense=4)
MODELS = [LEARNED, MixedModel([LEARNED, linear_model(CORPUS)], [0.5, 2.0])]


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("tv", ["television", "テレビ"]),
        ("cheap TV!", ["cheap television", "cheap テレビ"]),
        ("a smart-tv, new", ["a smart television new", "a smart テレビ new"]),
        ("テレビ台", ["tv ビ台", "television ビ台"]),
        ("tv tv", ["television tv", "テレビ tv", "tv television", "tv テレビ"]),
        ("radio", []),
        ("", []),
    ],
)
def test_each_place_of_a_word_is_replaced(query: str, texts: list[str]) -> None:
    found = replaced(query, [["tv", "television", "テレビ"]])
    assert sorted(one.text for one in found) == sorted(texts)


def test_a_query_is_replaced_a_bounded_number_of_times() -> None:
    assert len(replaced(" ".join(["tv"] * 50), [["tv", "television"]])) == MAX_REPLACED


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("query", ["copy files", "COPY to a remote host", "copy or move", "ssh"])
def test_the_query_gains_features_at_a_share_of_their_weight(model: Model, query: str) -> None:
    encoded = model.encode_queries([query])
    found = widen(encoded, features_of(model, replaced(query, GROUPS)))
    before = encoded.sparse.csr().toarray()[0]
    texts = [one.text for one in replaced(query, GROUPS)]
    typed = model.encode_queries([*texts, query]).sparse.csr().toarray()
    expected = np.where(before != 0, before, np.float32(WEIGHT) * typed.max(axis=0))
    np.testing.assert_array_equal(found.encoded.sparse.csr().toarray()[0], expected)
    np.testing.assert_array_equal(found.encoded.dense, encoded.dense)
    added = np.zeros(len(before), np.float32)
    for term in found.find_terms():
        added[np.atleast_1d(term.feature)] += np.atleast_1d(term.weight).astype(np.float32)
        assert not term.dense.any()
    np.testing.assert_array_equal(before + added, expected)


def test_without_synonyms_the_query_is_the_same_object() -> None:
    encoded = LEARNED.encode_queries(["ssh"])
    assert widen(encoded, features_of(LEARNED, [])).encoded is encoded
