"""Collections made for an experiment: what they hold, and that they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.derive import (
    cold_splits,
    is_cold,
    keep_share,
    links_of,
    mate_splits,
    split_two_ways,
    write_described,
    write_keywords,
    write_splits,
)
from benchmarks.harness.processes import Peaks
from benchmarks.harness.store import Result, Store, folder_fingerprint, recipe_identity, slug
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.evaluation.evaluate import judge
from fullrank_trainer.recipes.recipe import load_recipe
from tests.planted import write_lines, write_planted_links


@pytest.fixture
def linked(tmp_path: Path) -> Collection:
    """Documents that link to others of their topic, in three splits."""
    folder = write_planted_links(tmp_path / "linked")
    train = folder / "qrels" / "train.tsv"
    header, *lines = train.read_text().splitlines()
    train.write_text("\n".join([header, *lines[::2]]) + "\n")
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *lines[1::2]]) + "\n")
    return read_collection(folder)


def test_larger_shares_contain_smaller_ones(linked: Collection) -> None:
    small, large = (keep_share(linked, share, 1) for share in (0.1, 0.5))
    everything = links_of(linked, ["train"])
    assert len(large["train"]) == round(0.5 * len(everything))
    assert set(small["train"]) < set(large["train"])
    for splits in (small, large):
        assert sorted(splits["train"] + splits["unused"]) == everything
        assert splits["test"] == links_of(linked, ["test"])


@pytest.fixture
def described(linked: Collection) -> Collection:
    """Every other document described in another language."""
    lines = [{"_id": document.id, "text": "語 記"} for document in linked.documents[::2]]
    write_lines(linked.path / "ja" / "queries.jsonl", lines)
    return read_collection(linked.path / "ja")


def test_descriptions_inherit_a_share(described: Collection, tmp_path: Path) -> None:
    splits = keep_share(described, 0.1, 1)
    folder = write_described(described.path, tmp_path / "few", splits)
    found = read_collection(folder)
    assert found.has_mates
    assert [query.id for query in found.queries or []] == [q.id for q in described.queries or []]
    assert links_of(found, ["train"]) == sorted(splits["train"])
    assert links_of(found, ["test"]) == links_of(described, ["test"])
    judgements, _ = judge(found, "test", ["train", "valid", "unused"])
    own = {document.id: row for row, document in enumerate(found.documents)}
    assert all(own[judgement.query] in judgement.excluded for judgement in judgements)


def test_each_mate_is_an_answer_in_one_split(
    described: Collection, linked: Collection, tmp_path: Path
) -> None:
    splits = mate_splits(described, 1)
    names = [query.id for query in described.queries or []]
    assert sorted(link for links in splits.values() for link in links) == [(n, n) for n in names]
    found = read_collection(write_splits(described.path, tmp_path / "mates", splits))
    assert not found.has_mates
    assert {q: list(d) for q, d in found.qrels("test").items()} == {
        name: [name] for name, _ in splits["test"]
    }
    judgements, _ = judge(found, "test", ["train", "valid"])
    assert len(judgements) == len(splits["test"])
    with pytest.raises(ValueError, match="no descriptions of documents"):
        mate_splits(linked, 1)


def test_both_splits_have_the_same_test_links_and_candidates(
    linked: Collection, tmp_path: Path
) -> None:
    by_links, by_documents = split_two_ways(linked, 3)
    everything = links_of(linked, linked.splits)
    tested = {name for link in by_documents["test"] for name in link}
    for name in ("train", "valid"):
        assert not tested & {end for link in by_documents[name] for end in link}
        assert tested & {end for link in by_links["train"] for end in link}
        assert len(by_links[name]) == len(by_documents[name]) > 0
    assert by_links["test"] == by_documents["test"]
    judged = []
    for number, splits in enumerate((by_links, by_documents)):
        assert sorted(link for part in splits.values() for link in part) == everything
        folder = write_splits(linked.path, tmp_path / f"way{number}", splits)
        found, _ = judge(read_collection(folder), "test", ("train", "valid", "other"))
        judged.append([(j.query, j.relevant.tolist(), j.excluded.tolist()) for j in found])
    assert judged[0] == judged[1]


def test_keywords_are_words_of_their_document(linked: Collection, tmp_path: Path) -> None:
    folders = write_keywords(linked, tmp_path / "words", (2, 4), known=10_000, seed=1)
    texts = {d.id: f"{d.fields['title']} {d.fields['text']}".split() for d in linked.documents}
    small, large = (read_collection(folders[size]) for size in (2, 4))
    assert small.queries is not None
    assert large.queries is not None
    assert small.has_mates
    for few, many in zip(small.queries, large.queries, strict=True):
        assert few.id == many.id
        assert many.text.split()[:2] == few.text.split()
        assert len(set(many.text.split())) == 4
        assert set(many.text.split()) <= set(texts[many.id])
    judgements, _ = judge(small, "test", ("train", "valid"))
    rows = {document.id: row for row, document in enumerate(small.documents)}
    assert all(rows[judgement.query] in judgement.excluded for judgement in judgements)
    assert links_of(small, ["test"]) == links_of(linked, ["test"])


def test_only_known_words_are_drawn(linked: Collection, tmp_path: Path) -> None:
    folders = write_keywords(linked, tmp_path / "few", (20,), known=5, seed=1)
    drawn = read_collection(folders[20]).queries
    assert drawn is not None
    assert len({word for query in drawn for word in query.text.split()}) == 5


def test_only_the_test_judges_cold_documents(linked: Collection) -> None:
    found = cold_splits(linked, 0.3)
    everything = set(links_of(linked, linked.splits))
    for name in ("train", "valid"):
        assert not any(is_cold(document, 0.3) for _, document in found[name])
        assert set(found[name]) <= set(links_of(linked, [name]))
    assert found["test"]
    assert set(found["test"]) == {link for link in everything if is_cold(link[1], 0.3)}


IDENTITY = {"recipe": recipe_identity(load_recipe("ssi")), "seed": 1, "exclude": ("train",)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "out")


def save(store: Store, identity: Any = IDENTITY) -> Result:
    values = {"map": np.array([0.5, 1.0]), "rank_loss": np.array([0.1, 0.3])}
    return store.save(
        "wiki, 30,000 words", "ssi p=10", identity, ["a", "b"], values, {"note": np.inf}
    )


def test_a_saved_result_loads_unchanged(store: Store) -> None:
    saved = save(store)
    found = store.load("wiki, 30,000 words", "ssi p=10", IDENTITY)
    assert found is not None
    assert found.facts == saved.facts
    assert found.facts["note"] is None, "JSON has no infinity"
    assert found.queries == ["a", "b"]
    np.testing.assert_array_equal(found.values["rank_loss"], [0.1, 0.3])
    assert found.estimate("map").mean == found.facts["measures"]["map"]["mean"] == 0.75


def test_a_changed_setting_makes_a_result_stale(store: Store) -> None:
    save(store)
    other = load_recipe("ssi").override(["dimension=7"])
    for identity in ({**IDENTITY, "seed": 2}, {**IDENTITY, "recipe": recipe_identity(other)}):
        assert store.load("wiki, 30,000 words", "ssi p=10", identity) is None
    assert store.load("another", "ssi p=10", IDENTITY) is None


def test_files_of_two_results_do_not_load_as_one(store: Store) -> None:
    save(store)
    (values,) = store.folder.glob("*/*.npz")
    first = values.read_bytes()
    save(store)
    values.write_bytes(first)
    assert store.load("wiki, 30,000 words", "ssi p=10", IDENTITY) is None
    values.write_bytes(first[:40])
    assert store.load("wiki, 30,000 words", "ssi p=10", IDENTITY) is None
    assert sorted(path.suffix for path in values.parent.iterdir()) == [".json", ".npz"]


def test_names_become_file_names() -> None:
    assert slug("wikispeedia, 30,000 words") == "wikispeedia-30-000-words"
    assert slug("htr γ=0") != slug("htr") != slug("ssi p=10")


def test_a_folder_is_fingerprinted_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "en" / "qrels").mkdir(parents=True)
    (tmp_path / "corpus.jsonl").write_text("{}")
    (tmp_path / "en" / "queries.jsonl").write_text("{}")
    seen = {folder_fingerprint(tmp_path / "en")}
    for name in ("corpus.jsonl", "en/queries.jsonl", "en/qrels/train.tsv", "qrels.txt"):
        (tmp_path / name).write_text("changed")
        seen.add(folder_fingerprint(tmp_path / "en"))
    assert len(seen) == 4, "a file above that is no corpus does not count"


MIB = 2**-10  # in GiB


def test_a_peak_belongs_to_the_part_that_reached_it() -> None:
    peaks = Peaks()
    peaks.end("small")
    np.ones(64 << 20, np.uint8)
    peaks.end("large")
    peaks.end("after")
    assert peaks.gib["large"] > peaks.gib["small"] + 50 * MIB
    assert peaks.gib["after"] < peaks.gib["large"] - 50 * MIB
    assert peaks.largest == peaks.gib["large"]
    before = peaks.gib["large"]
    peaks.end("large")
    assert peaks.gib["large"] == before
