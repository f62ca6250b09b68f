"""Counting by pieces: equal to one process, bit for bit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import CollectionError
from fullrank_fleet.counting.counting import DistributedCounting
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import Folder, RemoteError
from fullrank_fleet.training.learner import Slices
from fullrank_trainer.collection import read_collection
from tests.planted import write_planted, write_planted_links
from tests.random_cases import cases
from tests.unit.fleet.counting.random_collections import (
    DOCUMENTS,
    FIELDS,
    TEXTS,
    assert_equal,
    bits,
    in_pieces,
    write_collection,
)
from tests.unit.fleet.runners import Dying
from tests.unit.fleet.trained import trained

pytestmark = pytest.mark.usefixtures("few_made_up_words")
TINY = ["dimension=8", "epochs=2", "patience=2", "batch=32", "candidates=30", "rate=0.1"]
BLEND = ["blend.recipes=bm25;fielded members=1 dimension=8 epochs=2 batch=32 train.rate=0.1"]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@cases(25)
@given(
    documents=DOCUMENTS,
    queries=st.lists(TEXTS, max_size=5),
    pieces=st.sampled_from([1, 3, 7]),
    zipped=st.booleans(),
)
def test_any_pieces_of_any_collection(
    documents: list[dict[str, str]], queries: list[str], pieces: int, zipped: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "collection")
        collection = read_collection(write_collection(folder, documents, queries, zipped=zipped))
        assert_equal(collection, FIELDS, in_pieces(collection, Path(scratch, "count"), pieces))


def test_a_line_may_be_longer_than_many_pieces(tmp_path: Path) -> None:
    documents = [{"title": "a b", "text": "long " * 40}, {"title": ""}, {"title": "b"}]
    folder = write_collection(tmp_path / "c", documents, ["q b"], zipped=False)
    collection = read_collection(folder)
    assert_equal(collection, FIELDS, in_pieces(collection, tmp_path / "count", 17))


def test_texts_of_links_are_counted(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "c", [{"title": "a"}, {"title": "b"}], [], zipped=False)
    lines = ("anchor", "corpus-id"), ("install it", "d03"), ("a guide", "d03"), ("home", "d10")
    (folder / "anchors.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    collection = read_collection(folder)
    counting = in_pieces(collection, tmp_path / "count", 2)
    assert_equal(collection, (*FIELDS, "anchors"), counting)


def bundle_id(collection: Path, out: Path, recipe: str, overrides: list[str], pieces: int) -> str:
    """Train on counts of pieces, with 0 on those of one process; return the bundle id."""
    counting = in_pieces(read_collection(collection), out / "count", pieces) if pieces else None
    slices = Slices(Folder(str(out / "slices")), InProcess(), 1, counting=counting)
    return trained(collection, out, recipe, overrides, slices).bundle_id


@pytest.mark.parametrize(
    ("recipe", "overrides", "pieces"),
    [("fielded", TINY, 1), ("fielded", TINY, 7), ("auto", [*BLEND, "auto.seconds=0"], 3)],
)
def test_the_bundle_is_that_of_one_machine(
    recipe: str, overrides: list[str], pieces: int, tmp_path: Path
) -> None:
    for write in (write_planted, write_planted_links):
        collection = write(tmp_path / write.__name__)
        expected = bundle_id(collection, tmp_path / f"{write.__name__}-a", recipe, overrides, 0)
        out = tmp_path / f"{write.__name__}-b"
        assert bundle_id(collection, out, recipe, overrides, pieces) == expected
        assert list(out.glob("count/*/tally-*.npz"))


def test_a_rerun_does_only_what_is_missing(tmp_path: Path) -> None:
    collection = read_collection(write_planted(tmp_path / "c"))
    size = -(-(tmp_path / "c" / "corpus.jsonl").stat().st_size // 3)
    whole = Dying()
    DistributedCounting(Folder(str(tmp_path / "whole")), whole, piece_bytes=size).words(
        collection, ["title", "text"]
    )
    for most in range(0, len(whole.names), 3):
        folder = Folder(str(tmp_path / str(most)))
        with pytest.raises(KeyboardInterrupt):
            DistributedCounting(folder, Dying(most), piece_bytes=size).words(
                collection, ["title", "text"]
            )
        finished = {path: path.stat().st_mtime_ns for path in tmp_path.glob(f"{most}/*/*.npz")}
        assert len(finished) == most
        again = DistributedCounting(folder, InProcess(), piece_bytes=size)
        assert_equal(collection, ["title", "text"], again)
        assert {path: path.stat().st_mtime_ns for path in finished} == finished


def test_another_collection_or_other_fields_have_objects_of_their_own(tmp_path: Path) -> None:
    collection = read_collection(write_planted(tmp_path / "c"))
    other = read_collection(write_planted(tmp_path / "d", seed=2))
    counting = DistributedCounting(Folder(str(tmp_path / "count")), InProcess())
    for found in (collection, other):
        for fields in (["title", "text"], ["text", "title"], ["title"]):
            assert_equal(found, fields, counting)


def test_a_corpus_that_changed_is_refused(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "c")
    collection = read_collection(folder)
    corpus = folder / "corpus.jsonl"
    lines = corpus.read_text().splitlines(keepends=True)
    counting = DistributedCounting(Folder(str(tmp_path / "count")), InProcess(), piece_bytes=500)
    changes = {
        "one more": [*lines, json.dumps({"_id": "new", "text": "x"})],
        "one less": lines[:-1],
        "another order": [*reversed(lines)],
        "another id": [lines[0].replace('"_id": "d', '"_id": "e'), *lines[1:]],
        "no id": ['{"text": "x"}\n', *lines],
    }
    for content in changes.values():
        corpus.write_text("".join(content))
        with pytest.raises(CollectionError, match=r"corpus\.jsonl: changed while it was read"):
            counting.words(collection, ["title", "text"])
        Folder(str(tmp_path / "count")).remove()
    corpus.write_text("".join([*lines, "{"]))
    with pytest.raises(CollectionError, match=r"corpus\.jsonl, byte [0-9]+: "):
        counting.words(collection, ["title", "text"])


def test_an_id_that_comes_twice_is_refused(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "c")
    corpus = folder / "corpus.jsonl"
    first = corpus.read_text().partition("\n")[0]
    corpus.write_text(corpus.read_text() + first)
    with pytest.raises(CollectionError, match="is already the id of line 1"):
        bundle_id_of_pieces(folder, tmp_path)


def bundle_id_of_pieces(collection: Path, out: Path) -> str:
    counting = DistributedCounting(Folder(str(out / "count")), InProcess(), piece_bytes=500)
    slices = Slices(Folder(str(out / "slices")), InProcess(), 1, counting=counting)
    return trained(collection, out, "fielded", [], slices).bundle_id


def test_objects_may_lie_in_object_storage(tmp_path: Path) -> None:
    collection = read_collection(write_planted(tmp_path / "c"))
    folder = Folder(f"memory://{tmp_path.name}")
    try:
        assert_equal(
            collection,
            ["title", "text"],
            DistributedCounting(folder, InProcess(), piece_bytes=2000),
        )
        assert folder.folders()
    finally:
        folder.remove()


def test_a_damaged_object_is_named(tmp_path: Path) -> None:
    collection = read_collection(write_planted(tmp_path / "c"))
    counting = DistributedCounting(Folder(str(tmp_path / "count")), InProcess())
    expected, _ = counting.words(collection, ["text"])
    [tally] = tmp_path.glob("count/*/tally-00000.npz")
    content = tally.read_bytes()
    tally.write_bytes(content[: len(content) // 2])
    with pytest.raises(RemoteError, match=r"tally-00000\.npz: cannot be read"):
        counting.words(collection, ["text"])
    tally.unlink()
    found, _ = counting.words(collection, ["text"])
    assert [*map(bits, found.columns)] == [*map(bits, expected.columns)]


def test_counts_may_lie_in_arrays_of_the_caller(tmp_path: Path) -> None:
    collection = read_collection(write_planted(tmp_path / "c"))
    made: list[int] = []

    def zeros(shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        found = np.zeros(shape, dtype)
        made.append(id(found))
        return found

    counting = DistributedCounting(Folder(str(tmp_path / "count")), InProcess(), piece_bytes=500)
    counts, _ = counting.words(collection, ["title", "text"], zeros)
    arrays = [a for rows in counts.columns for a in (rows.indptr, rows.indices, rows.values)]
    assert [*map(id, arrays)] == made
