"""The set of queries that ask for other forms of words, and its measures."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks.experiments.folding import FOLDER, facts_of_queries, main
from fullrank_trainer.collection import read_collection


def test_the_set_is_large_and_its_halves_are_disjoint() -> None:
    collection = read_collection(FOLDER, strict=True)
    facts = facts_of_queries()
    assert len(facts) >= 300
    assert len({line["language"] for line in facts.values()}) >= 20
    valid, test = collection.qrels("valid"), collection.qrels("test")
    assert not valid.keys() & test.keys()
    assert {*valid, *test} == set(facts)
    assert all(len(grades) == 1 for grades in (*valid.values(), *test.values()))
    # Queries that must not be folded at the top are a fair part of both halves.
    for half in (valid, test):
        assert Counter(facts[query]["phenomenon"] for query in half)["exact"] >= 20


@pytest.mark.parametrize("split", ["valid", "test"])
def test_folding_finds_what_words_alone_do_not(
    split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--split", split, "--json"])
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    found = {system: sum(map(bool, several)) for system, several in ranks.items()}
    assert found["bm25"] >= 0.85 * len(ranks["bm25"])
    # Another implementation of BM25 on the same words agrees with ours.
    assert found["bm25s"] == found["bm25 without folding"] < 0.6 * len(ranks["bm25"])


def test_equal_words_stay_first(capsys: pytest.CaptureFixture[str]) -> None:
    facts = facts_of_queries()
    main(["--split", "valid", "--json"])
    ranks = json.loads(capsys.readouterr().out)["ranks"]["bm25"]
    queries = read_collection(FOLDER).qrels("valid")
    exact = [
        rank
        for query, rank in zip(queries, ranks, strict=True)
        if facts[query]["phenomenon"] == "exact"
    ]
    assert exact == [1] * len(exact)
