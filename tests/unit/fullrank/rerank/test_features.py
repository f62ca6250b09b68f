"""Features of pairs: a plain twin over dictionaries of words gives the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, log1p, sqrt
from typing import Any

import numpy as np
import pytest

from fullrank.rerank.facts import NO_DATE, DocumentFacts, FactSettings
from fullrank.rerank.features import NO_AGE, FirstStage, Statistics, compute, names
from fullrank.text.words import count_words

SETTINGS = FactSettings((("title", ("title",)), ("text", ("text",))), "date", "clicked")
WORDS = ["red", "green", "blue", "apple", "pear", "plum", "ship", "boat", "sail", "東京", "λ"]


def documents(count: int, seed: int = 1) -> list[dict[str, str]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        document = {
            "title": " ".join(rng.choice(WORDS, rng.integers(0, 3))),
            "text": " ".join(rng.choice(WORDS, rng.integers(0, 12))),
            "clicked": "\n".join(
                " ".join(rng.choice(WORDS, rng.integers(0, 4))) for _ in range(rng.integers(0, 80))
            ),
        }
        if rng.random() < 0.7:
            document["date"] = f"2024-01-{rng.integers(1, 29):02}"
        found.append(document)
    return found


def scored(count: int, seed: int = 1) -> FirstStage:
    rng = np.random.default_rng(seed)
    dense, lexical, bias = rng.normal(0, 3, (3, count))
    order = np.argsort(-(dense + lexical + bias))
    total = (dense + lexical + bias)[order]
    return FirstStage(total, dense[order], lexical[order], bias[order])


def twin(
    text: str,
    first: FirstStage,
    found: Sequence[Mapping[str, Any]],
    clicks: Sequence[int],
    known: Sequence[Mapping[str, Any]],
) -> list[dict[str, float]]:
    """The features of each document, from words as text; `known` are the training documents."""
    fields = ("title", "text")
    query = set(count_words(text))
    counted = [{f: count_words(d.get(f, "")) for f in fields} for d in known]
    df = {w: sum(any(w in c[f] for f in fields) for c in counted) for w in {*WORDS, *query}}
    n = len(known)
    seen = {w: log(1 + (n - c + 0.5) / (c + 0.5)) for w, c in df.items() if c}
    idf = {w: seen.get(w, max(seen.values())) for w in {*WORDS, *query}}
    mean = {f: sum(sum(c[f].values()) for c in counted) / n for f in fields}
    newest = max(int(d["date"][-2:]) for d in known if "date" in d)
    lines = []
    for i, document in enumerate(found):
        own = {f: count_words(document.get(f, "")) for f in fields}
        line = {
            "score": first.scores[i],
            "dense": first.dense[i],
            "lexical": first.lexical[i],
            "bias": first.bias[i],
            "gap": first.scores[0] - first.scores[i],
            "place": i + 1,
            "words": len(query),
            "matched": sum(any(w in own[f] for f in fields) for w in query) / max(1, len(query)),
            "clicks": log1p(clicks[i]),
            "age": newest - int(document["date"][-2:]) if "date" in document else NO_AGE,
        }
        # The first queries of a document count, each of them once.
        asked = [set(count_words(q)) for q in dict.fromkeys(document["clicked"].split("\n"))]
        size = {frozenset(q): sqrt(sum(idf[w] ** 2 for w in q)) for q in [query, *asked]}
        line["nearest"] = max(
            sum(idf[w] ** 2 for w in query & q) / (size[frozenset(query)] * size[frozenset(q)])
            if query & q
            else 0.0
            for q in asked[:65]
        )
        for f in fields:
            length = sum(own[f].values())
            shared = query & set(own[f])
            norm = 1.2 * (0.25 + 0.75 * length / mean[f])
            line[f"lexical.{f}"] = sum(
                idf[w] * own[f][w] * 2.2 / (own[f][w] + norm) for w in shared
            )
            line[f"matched.{f}"] = len(shared) / max(1, len(query))
            line[f"covered.{f}"] = len(shared) / max(1, len(own[f]))
            line[f"length.{f}"] = log1p(length)
        lines.append(line)
    return lines


@pytest.mark.parametrize(
    "text", ["red apple", "red red red ship 東京 unknown", "nowhere", "", " ".join(WORDS * 3)]
)
def test_features_equal_the_twin(text: str) -> None:
    known = documents(40)
    rows = np.random.default_rng(2).permutation(40)[:25]
    clicks = np.random.default_rng(3).integers(0, 5, 40).astype(np.int32)
    facts = DocumentFacts.of(known, SETTINGS, clicks)
    first = scored(25)
    statistics = Statistics.of(facts)
    found = compute(text, first, statistics.weigh(facts).take(rows), statistics)
    expected = twin(text, first, [known[r] for r in rows], clicks[rows].tolist(), known)
    columns = names(SETTINGS.names)
    assert found.dtype == np.float32
    assert set(columns) == set(expected[0])
    table = [[line[name] for name in columns] for line in expected]
    np.testing.assert_allclose(found, table, rtol=2e-6, atol=1e-6)


def test_features_of_a_document_do_not_depend_on_how_many_others_follow() -> None:
    facts = DocumentFacts.of(documents(30), SETTINGS)
    statistics, first = Statistics.of(facts), scored(30)
    whole = compute("red ship", first, facts, statistics)
    some = FirstStage(*(part[:7] for part in first))
    part = compute("red ship", some, facts.take(np.arange(7)), statistics)
    assert part.tolist() == whole[:7].tolist()


def test_without_any_date_no_document_has_an_age() -> None:
    facts = DocumentFacts.of([{"title": "red"}, {"title": "blue"}], SETTINGS)
    statistics = Statistics.of(facts)
    assert statistics.newest == NO_DATE
    found = compute("red", scored(2), facts, statistics)
    assert found[:, names(SETTINGS.names).index("age")].tolist() == [NO_AGE, NO_AGE]


def test_no_documents_have_no_features() -> None:
    nothing = DocumentFacts.of([], SETTINGS)
    found = compute("red", scored(0), nothing, Statistics.of(nothing))
    assert found.shape == (0, len(names(SETTINGS.names)))


def test_huge_scores_stay_finite() -> None:
    facts = DocumentFacts.of(documents(2), SETTINGS)
    huge = FirstStage(*(np.array([1e300, -1e300]) for _ in range(4)))
    assert np.isfinite(compute("red", huge, facts, Statistics.of(facts))).all()
