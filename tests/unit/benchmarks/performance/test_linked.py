"""Linked resampled collections: the links of the sources, between their copies."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import pytest

from benchmarks.performance.linked import inherit, write_collection
from benchmarks.performance.resample import Source
from fullrank_trainer.collection import read_collection

COPIES = {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"], "c": ["c1", "c2"], "d": []}
LINKS = {
    "train": [("a", "b"), ("b", "c"), ("a", "d"), ("d", "a")],
    "valid": [("b", "a")],
    "test": [("a", "c"), ("d", "c")],
}


def test_each_copy_links_to_one_copy_and_the_asked_one_to_all() -> None:
    found = inherit(LINKS, COPIES, asked=10, seed=1)
    assert found["test"] == [("a1", "c1"), ("a1", "c2")]
    assert found["valid"] == [("b1", "a1"), ("b1", "a2"), ("b1", "a3")]
    train = found["train"]
    assert [pair for pair in train if pair[0] == "a1"] == [("a1", "b1"), ("a1", "b2")]
    assert [pair for pair in train if pair[0] == "b1"] == [("b1", "c1"), ("b1", "c2")]
    for copy, targets in (("a2", COPIES["b"]), ("a3", COPIES["b"]), ("b2", COPIES["c"])):
        assert [target in targets for source, target in train if source == copy] == [True]
    assert {source for source, _ in train} == {*COPIES["a"], *COPIES["b"]}


@pytest.mark.parametrize("seed", [1, 2])
def test_sources_are_asked_at_most_so_often(seed: int) -> None:
    links = {"train": [], "valid": [], "test": [(i, "x") for i in "abcdefgh"]}
    copies = {i: [i + "1", i + "2"] for i in "abcdefghx"}
    found = inherit(links, copies, asked=3, seed=seed)
    assert len({source for source, _ in found["test"]}) == 3
    assert len(found["test"]) == 6


def test_the_collection_is_readable_and_its_links_follow_the_draws(tmp_path: Path) -> None:
    lines = [
        {
            "_id": f"p{i:03}",
            "title": f"p{i}: about {i % 7}",
            "text": f"Word{i} one. Two word{i % 5}. Three.",
            "section": "admin",
        }
        for i in range(120)
    ]
    source = Source(lines)
    kept = [line["_id"] for line in source.kept]
    pairs = list(pairwise(kept))
    links = {"train": pairs[::2], "valid": pairs[1::4], "test": pairs[3::4]}
    folder = tmp_path / "linked"
    assert sum(write_collection(source, links, folder, 300, seed=1, stretch=1.0)) == 300
    found = read_collection(folder)
    assert len(found.documents) == 300
    draws = [kept[place] for place, _ in islice(source.draws(1, 1.0), 300)]
    known = {split: set(of_split) for split, of_split in links.items()}
    for split in links:
        qrels = (folder / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()[1:]
        assert qrels
        for line in qrels:
            query, document, _ = line.split("\t")
            assert (draws[int(query[1:])], draws[int(document[1:])]) in known[split]
