"""The second stage: its order, explanation and stored form; the facts, features and trees of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log, log1p, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fullrank.search.rerank.facts import NO_DATE, DocumentFacts, FactSettings, day_of, word_number
from fullrank.search.rerank.features import NO_AGE, FirstStage, Statistics, compute, names
from fullrank.search.rerank.stage import SecondStage
from fullrank.search.rerank.trees import MAX_LEAVES, Trees
from fullrank.text.words import count_words
from tests.bundles import CORPUS
from tests.reranking import random_features, random_trees, stage_of, walked

DOCUMENTS = sorted(CORPUS, key=lambda document: document.id)


def first_stage(count: int) -> FirstStage:
    scores = np.linspace(3, 1, count)
    return FirstStage(scores, scores / 2, scores / 2, np.zeros(count))


def test_documents_are_ordered_by_the_second_score() -> None:
    stage, facts = stage_of(DOCUMENTS)
    found = stage.order("copy files", first_stage(len(facts)), facts)
    ordered = found.scores[found.order]
    assert np.all(np.diff(ordered) <= 0)
    assert sorted(found.order.tolist()) == list(range(len(facts)))
    assert found.order.tolist() != sorted(found.order.tolist())
    assert found.scores.tolist() == stage.trees.predict(found.features).tolist()


def test_a_document_that_nobody_chose_keeps_its_place() -> None:
    clicks = np.array([3, 0, 1, 0, 0, 2, 5], np.int32)
    stage, facts = stage_of(DOCUMENTS, clicks=clicks)
    found = stage.order("copy files", first_stage(len(facts)), facts)
    places = found.order.tolist()
    assert [places[i] for i in (1, 3, 4)] == [1, 3, 4]
    chosen = sorted((0, 2, 5, 6), key=lambda i: -found.scores[i])
    assert [places[i] for i in (0, 2, 5, 6)] == chosen != [0, 2, 5, 6]
    again = SecondStage.from_parts(stage.config(), stage.arrays())
    assert again.order("copy files", first_stage(len(facts)), facts).order.tolist() == places


def test_a_stage_of_an_older_bundle_moves_all_documents() -> None:
    stage, facts = stage_of(DOCUMENTS, clicks=np.zeros(len(DOCUMENTS), np.int32))
    config = stage.config()
    del config["moves_all"]
    found = SecondStage.from_parts(config, stage.arrays())
    order = found.order("copy files", first_stage(len(facts)), facts).order.tolist()
    assert (
        order
        == np.argsort(
            -found.trees.predict(found.features("copy files", first_stage(len(facts)), facts)),
            kind="stable",
        ).tolist()
        != list(range(len(facts)))
    )


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_ranking_that_was_merged_is_ordered_as_a_whole_one(pieces: int) -> None:
    """Bit for bit, wherever the pieces have their documents."""
    stage, facts = stage_of(DOCUMENTS, seed=3)
    first = first_stage(len(facts))
    whole = stage.order("copy files", first, facts)
    owner = np.random.default_rng(pieces).integers(0, pieces, len(facts))
    features = np.empty_like(whole.features)
    for piece in range(pieces):
        own = np.flatnonzero(owner == piece)
        part = FirstStage(*(column[own] for column in first))
        features[own] = stage.features("copy files", part, facts.take(own))
    found = stage.order_merged(features, first.scores)
    assert found.features.tobytes() == whole.features.tobytes()
    assert found.scores.tobytes() == whole.scores.tobytes()
    assert found.order.tolist() == whole.order.tolist()


def test_equal_second_scores_keep_the_first_order() -> None:
    stage, facts = stage_of(DOCUMENTS, trees=Trees.empty())
    found = stage.order("copy files", first_stage(len(facts)), facts)
    assert found.order.tolist() == list(range(len(facts)))


def test_contributions_add_up_to_the_second_score() -> None:
    stage, facts = stage_of(DOCUMENTS)
    found = stage.order("copy files", first_stage(len(facts)), facts)
    for row, score in zip(found.features, found.scores.tolist(), strict=True):
        why = stage.explain(row)
        total = why.base + sum(feature.contribution for feature in why.features)
        assert why.score == pytest.approx(score, abs=1e-12)
        assert total == pytest.approx(score, abs=1e-12)
        sizes = [abs(feature.contribution) for feature in why.features]
        assert sizes == sorted(sizes, reverse=True)
        values = dict(zip(stage.names, row.tolist(), strict=True))
        assert all(feature.value == values[feature.feature] for feature in why.features)


def test_a_stored_stage_gives_the_same_order() -> None:
    stage, facts = stage_of(DOCUMENTS, of_documents=True)
    again = SecondStage.from_parts(stage.config(), stage.arrays())
    first = first_stage(len(facts))
    for text in ("copy files", "日本", ""):
        a, b = (s.order(text, first, facts) for s in (stage, again))
        assert a.scores.tolist() == b.scores.tolist()
        assert a.features.tolist() == b.features.tolist()
    assert again.of_documents
    assert again.config() == stage.config()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"depth": 50}, "another release"),
        ({"features": ["score"]}, "another release"),
        ({"mean_lengths": [1.0]}, "1 mean lengths of 2 fields"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, object], reason: str) -> None:
    stage, _ = stage_of(DOCUMENTS)
    with pytest.raises(ValueError, match=reason):
        SecondStage.from_parts({**stage.config(), **change}, stage.arrays())


def test_words_that_do_not_ascend_are_refused() -> None:
    stage, _ = stage_of(DOCUMENTS)
    arrays = stage.arrays()
    backwards = {**arrays, "words.numbers": arrays["words.numbers"][::-1]}
    with pytest.raises(ValueError, match="ascend"):
        SecondStage.from_parts(stage.config(), backwards)


SETTINGS = FactSettings((("title", ("title",)), ("body", ("text", "notes"))), "date", "asked")
FACTS_DOCUMENTS: list[dict[str, Any]] = [
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
    return DocumentFacts.of(FACTS_DOCUMENTS, SETTINGS, np.array([2, 0, 1, 0], np.int32))


def same(a: DocumentFacts, b: DocumentFacts) -> bool:
    pairs = zip(a.arrays().values(), b.arrays().values(), strict=True)
    return all(x.dtype == y.dtype and x.tolist() == y.tolist() for x, y in pairs)


def test_each_line_has_the_counted_words_of_a_field(facts: DocumentFacts) -> None:
    for d, document in enumerate(FACTS_DOCUMENTS):
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
        assert same(found, DocumentFacts.of([FACTS_DOCUMENTS[r] for r in rows], SETTINGS, clicks))


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
        (replace(facts, clicks=facts.clicks[1:]), "clicks: shape"),
        (replace(facts, asked_indptr=facts.asked_indptr[1:]), "asked_indptr: shape"),
        (replace(facts, asked_query=facts.asked_query + np.uint16(64)), "asked_query is not"),
        (replace(facts, lengths=facts.lengths[:, :1]), "lengths: shape"),
    ):
        with pytest.raises(ValueError, match=reason):
            damaged.check(4, 2, verify=True)


FEATURES_SETTINGS = FactSettings((("title", ("title",)), ("text", ("text",))), "date", "clicked")
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
    facts = DocumentFacts.of(known, FEATURES_SETTINGS, clicks)
    first = scored(25)
    statistics = Statistics.of(facts)
    found = compute(text, first, statistics.weigh(facts).take(rows), statistics)
    expected = twin(text, first, [known[r] for r in rows], clicks[rows].tolist(), known)
    columns = names(FEATURES_SETTINGS.names)
    assert found.dtype == np.float32
    assert set(columns) == set(expected[0])
    table = [[line[name] for name in columns] for line in expected]
    np.testing.assert_allclose(found, table, rtol=2e-6, atol=1e-6)


def test_features_of_a_document_do_not_depend_on_how_many_others_follow() -> None:
    facts = DocumentFacts.of(documents(30), FEATURES_SETTINGS)
    statistics, first = Statistics.of(facts), scored(30)
    whole = compute("red ship", first, facts, statistics)
    some = FirstStage(*(part[:7] for part in first))
    part = compute("red ship", some, facts.take(np.arange(7)), statistics)
    assert part.tolist() == whole[:7].tolist()


def test_without_any_date_no_document_has_an_age() -> None:
    facts = DocumentFacts.of([{"title": "red"}, {"title": "blue"}], FEATURES_SETTINGS)
    statistics = Statistics.of(facts)
    assert statistics.newest == NO_DATE
    found = compute("red", scored(2), facts, statistics)
    assert found[:, names(FEATURES_SETTINGS.names).index("age")].tolist() == [NO_AGE, NO_AGE]


def test_no_documents_have_no_features() -> None:
    nothing = DocumentFacts.of([], FEATURES_SETTINGS)
    found = compute("red", scored(0), nothing, Statistics.of(nothing))
    assert found.shape == (0, len(names(FEATURES_SETTINGS.names)))


def test_huge_scores_stay_finite() -> None:
    facts = DocumentFacts.of(documents(2), FEATURES_SETTINGS)
    huge = FirstStage(*(np.array([1e300, -1e300]) for _ in range(4)))
    assert np.isfinite(compute("red", huge, facts, Statistics.of(facts))).all()


@pytest.mark.parametrize("nodes", [0, 1, 3, 7, MAX_LEAVES - 1])
@pytest.mark.parametrize("rows", [0, 1, 2, 100])
def test_predict_equals_a_walk_from_every_root(nodes: int, rows: int) -> None:
    trees = random_trees(40, nodes, 6, seed=nodes)
    trees.check(6)
    features = random_features(rows, 6, seed=rows)
    expected = [walked(trees, row)[0] for row in features]
    np.testing.assert_allclose(trees.predict(features), expected, rtol=0, atol=1e-12)


def test_contributions_are_the_changes_along_each_path() -> None:
    trees = random_trees(25, 7, 5)
    features = random_features(30, 6)  # the last one is in no tree
    found = trees.contributions(features)
    np.testing.assert_allclose(found, [walked(trees, row)[1] for row in features], atol=1e-12)
    np.testing.assert_allclose(trees.base + found.sum(axis=1), trees.predict(features), atol=1e-12)


def test_without_trees_every_row_scores_zero() -> None:
    trees = Trees.empty()
    trees.check(3)
    features = random_features(4, 3)
    assert trees.predict(features).tolist() == [0, 0, 0, 0]
    assert trees.contributions(features).tolist() == np.zeros((4, 3)).tolist()
    assert trees.base == 0


def _changed(array: npt.NDArray[np.int16], value: int) -> npt.NDArray[np.int16]:
    found = array.copy()
    found[0, 0] = value
    return found


def test_damaged_trees_are_refused() -> None:
    trees = random_trees(5, 7, 5)
    for damaged, reason in (
        (replace(trees, feature=_changed(trees.feature, 5)), "not below 5"),
        (replace(trees, feature=_changed(trees.feature, -1)), "not below 5"),
        (replace(trees, left=_changed(trees.left, 0)), "later node"),
        (replace(trees, left=_changed(trees.left, 7)), "later node"),
        (replace(trees, right=_changed(trees.right, -9)), "later node"),
        (replace(trees, leaf=trees.leaf[:, 1:]), "leaf: shape"),
        (
            replace(trees, threshold=trees.threshold.astype(np.float64)),
            "threshold: float64, not float32",
        ),
        (random_trees(2, MAX_LEAVES, 5), "leaves a tree"),
    ):
        with pytest.raises(ValueError, match=reason):
            damaged.check(5)
