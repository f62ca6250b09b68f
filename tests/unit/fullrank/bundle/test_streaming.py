"""Bundles written in batches: the same bytes wherever they are cut, and what stands beside them."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import open as loading
from fullrank.bundle import open_bundle, stream_bundle
from fullrank.bundle import write as publish
from fullrank.bundle.manifest import parse_manifest
from fullrank.bundle.verify import advise
from fullrank.bundle.write import Batch
from fullrank.encoding import Encoded, Rows
from fullrank.errors import BundleError
from fullrank.retrieval.index.build import index_in_memory
from fullrank.storage.checks import check_values
from fullrank.storage.documents import Document
from fullrank.storage.strings import StringTable
from tests.bundles import write_bundle
from tests.golden.test_golden import CREATED, QUERIES, WORDS, planted_model

MODEL = planted_model()
COUNT = 53


def planted(count: int = COUNT) -> list[Document]:
    rng = np.random.default_rng(3)
    return [
        Document(
            f"d{i:04}",
            {"title": " ".join(rng.choice(WORDS, 2)), "text": " ".join(rng.choice(WORDS, i % 7))},
        )
        for i in range(count)
    ]


def encode(documents: list[Document]) -> Encoded:
    return MODEL.encode_documents([d.texts(["title", "text"]) for d in documents])


def batches(documents: list[Document], *sizes: int) -> Iterator[Batch]:
    start = 0
    for size in sizes:
        part = documents[start : start + size]
        yield part, encode(part)
        start += size


def settings(**more: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "golden_queries": QUERIES,
        "card": {"made": "here"},
        "created": CREATED,
        **more,
    }


def content(path: Path) -> dict[str, bytes]:
    files = (p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


@pytest.mark.parametrize("sizes", [(53,), (1,) * 53, (20, 0, 33), (52, 1)])
def test_batches_give_the_bytes_that_one_call_gives(sizes: tuple[int, ...], tmp_path: Path) -> None:
    documents = planted()
    whole = write_bundle(
        tmp_path / "a", "x", encoded=encode(documents), documents=documents, **settings()
    )
    streamed = stream_bundle(tmp_path / "b", "x", batches=batches(documents, *sizes), **settings())
    assert streamed.name == whole.name
    assert content(streamed) == content(whole)
    assert open_bundle(streamed).bundle_id == open_bundle(whole).bundle_id


def test_no_batches_make_an_empty_bundle(tmp_path: Path) -> None:
    path = stream_bundle(tmp_path, "x", batches=[], **settings())
    assert len(open_bundle(path).documents) == 0


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda b: b.append(b[0]), "documents: row 53, 'd0000', does not come after 'd0052'"),
        (lambda b: b.append((b[0][0], encode(planted(3)))), "shape"),
        (
            lambda b: b.append(([Document("e\ud800", {})], encode(planted(1)))),
            "no utf-8 form",
        ),
    ],
)
def test_a_batch_that_does_not_fit_leaves_nothing(
    spoil: Callable[[list[Batch]], None], reason: str, tmp_path: Path
) -> None:
    given = list(batches(planted(), 40, 13))
    spoil(given)
    with pytest.raises(BundleError, match=reason):
        stream_bundle(tmp_path, "x", batches=given, **settings())
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_batches_that_stop_half_way_leave_nothing(
    error: type[BaseException], tmp_path: Path
) -> None:
    def breaking() -> Iterator[Batch]:
        yield from batches(planted(), 10, 10)
        raise error

    with pytest.raises(error):
        stream_bundle(tmp_path, "x", batches=breaking(), **settings())
    assert not list(tmp_path.rglob("*"))


# -- what stands beside the documents ------------------------------------------------------------


def test_sections_are_written_named_and_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is built over the documents on disk is what is built over them in memory."""
    monkeypatch.setattr(publish, "INDEXED_FROM", 53)
    monkeypatch.setattr(publish, "FAST_FROM", 53)
    path = stream_bundle(tmp_path, "x", batches=batches(planted(), 53), **settings())
    opened = open_bundle(path)
    index = opened.retriever.index
    assert index is not None
    expected = index_in_memory(opened.encoded.whole(), cells=round(4 * 53**0.5))
    np.testing.assert_array_equal(index.codes.codes, expected.codes.codes)
    np.testing.assert_array_equal(index.postings.slots, expected.postings.slots)
    assert index.codes.error == expected.codes.error
    assert opened.sections.keys() == {"columns", "index"}
    assert parse_manifest((path / "manifest.json").read_text()) == opened.manifest


# -- checks in pieces ----------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 1000])
def test_damage_is_found_at_every_chunk_boundary(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.storage.strings._PIECE", piece)
    good = StringTable.of(["é", "", "日本", "abc", "🙂"])
    assert good.damage() is None
    data = good.blob.tobytes()
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] = 0xFF
        try:
            bytes(broken).decode()
        except UnicodeDecodeError as error:
            expected = f"byte {error.start} is not utf-8"
        found = StringTable(np.frombuffer(bytes(broken), np.uint8), good.offsets).damage()
        assert found == expected
    cut = StringTable(good.blob[:-1], np.append(good.offsets[:-1], len(data) - 1))
    assert cut.damage() == f"byte {len(data) - 4} is not utf-8"
    for place in range(1, len(good.offsets) - 1):
        offsets = good.offsets.copy()
        offsets[place] = len(data) + 1
        assert StringTable(good.blob, offsets).damage() == "its offsets descend"
    offsets = good.offsets.copy()
    offsets[1] = 1
    assert StringTable(good.blob, offsets).damage() == "an offset points inside a character"


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_values_are_checked_at_every_chunk_boundary(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every index in turn made equal to the one before it: refused inside a row, allowed across rows."""
    monkeypatch.setattr("fullrank.storage.checks._CHUNK", chunk)
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 4, 20)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = [np.sort(rng.choice(9, size, replace=False)) for size in sizes]
    indices = np.concatenate(rows).astype(np.int32)

    def check(indptr: np.ndarray, indices: np.ndarray) -> None:
        dense = np.zeros((20, 0), np.float32)
        weights, bias = np.ones(len(indices), np.float32), np.zeros(20, np.float32)
        check_values(Encoded(dense, Rows(indptr, indices, weights, 9), bias))

    check(indptr, indices)
    for place in range(1, len(indices)):
        changed = indices.copy()
        changed[place] = changed[place - 1]
        inside = place not in indptr.tolist()
        if inside:
            with pytest.raises(BundleError, match="indices of a row do not ascend"):
                check(indptr, changed)
    for place in range(len(indices)):
        for wrong in (-1, 9):
            changed = indices.copy()
            changed[place] = wrong
            with pytest.raises(BundleError, match=r"outside 0\.\.8|do not ascend"):
                check(indptr, changed)
    for place in range(1, 20):
        starts = indptr.copy()
        starts[place] = starts[place + 1] + 1
        with pytest.raises(BundleError, match="does not ascend"):
            check(starts, indices)


# -- opening -------------------------------------------------------------------------------------


def test_pages_that_only_the_check_read_are_unmapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every mapped file, before the golden queries; the stored fields are mapped for random access.

    Equal string tables of the model are mapped once.
    """
    monkeypatch.setattr(publish, "INDEXED_FROM", 20_000)
    monkeypatch.setattr(publish, "FAST_FROM", 20_000)
    path = stream_bundle(tmp_path, "x", batches=batches(planted(), 53), **settings())
    steps: list[int | str] = []
    monkeypatch.setattr(loading, "advise", lambda array, advice: steps.append(advice))
    monkeypatch.setattr(loading, "replay", lambda *_: steps.append("replay"))
    opened = open_bundle(path)
    files = [name for name in opened.manifest.files if name.endswith((".npy", ".txt", ".jsonl"))]
    hashes = {name: opened.manifest.files[name].sha256 for name in files}
    tables = [
        tuple(
            (end, hashes[stem + end])
            for end in (".txt", ".offsets.npy", ".slots.npy")
            if stem + end in hashes
        )
        for stem in (name.removesuffix(".txt") for name in files if name.startswith("model/"))
        if f"{stem}.txt" in hashes
    ]
    again = sum(map(len, tables)) - sum(map(len, set(tables)))
    mapped = len(files) - 1 - again  # all but the golden queries
    assert steps == [mmap.MADV_RANDOM, *[mmap.MADV_DONTNEED] * mapped, "replay"]
    steps.clear()
    open_bundle(path, verify=False)
    assert steps == [mmap.MADV_RANDOM]


def test_advice_does_not_change_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10_000))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r").view(np.ndarray)
    for array in (mapped, mapped[5:].reshape(-1, 5), np.arange(3), np.zeros(0)):
        before = array.tolist()
        advise(array, mmap.MADV_DONTNEED)
        assert array.tolist() == before
