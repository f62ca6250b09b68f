"""Writing a bundle: all or nothing, whether at once, in a staging folder or in batches."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import open as loading
from fullrank.bundle import open_bundle, stream_bundle, verify_bundle
from fullrank.bundle import staging as folder
from fullrank.bundle import write as publish
from fullrank.bundle.manifest import parse_manifest
from fullrank.bundle.open import replay
from fullrank.bundle.staging import StagingFolder
from fullrank.bundle.write import Batch
from fullrank.errors import BundleError
from fullrank.models.contract import Parts
from fullrank.retrieval.index.build import index_in_memory
from fullrank.storage.checks import check_values
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded, Rows
from fullrank.storage.strings import StringTable
from tests.bundles import write_bundle
from tests.golden.test_golden import CREATED as STREAMING_CREATED
from tests.golden.test_golden import QUERIES, planted_model
from tests.golden.test_golden import WORDS as STREAMING_WORDS
from tests.words_bundle import CREATED, WORDS, planted


@pytest.mark.parametrize("bad", ["", "A", "../x", "a/b", ".tmp-a", "-a", "a" * 101, "a" * 75])
def test_names_that_cannot_name_a_folder_are_refused(bad: str, root: Path) -> None:
    with pytest.raises(BundleError, match="name a bundle"):
        write_bundle(root, bad, **planted())
    assert not root.exists()


def _change(**fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(given: dict[str, Any]) -> None:
        encoded = given["encoded"]
        width = fields.pop("width", encoded.sparse.width)
        given["encoded"] = Encoded.from_arrays(encoded.arrays() | fields, width)

    return change


def _nan_model(given: dict[str, Any]) -> None:
    given["model"].U = given["model"].U * np.float32(np.nan)


def _objects(given: dict[str, Any]) -> None:
    given["model"].U = np.array([[{}]], object)
    given["model"].n_dense = 3


def _parts(parts: Parts) -> Callable[[dict[str, Any]], Any]:
    return lambda given: setattr(given["model"], "parts", lambda: parts)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_change(width=9), "9 sparse features, the model has 5"),
        (_change(bias=np.full(40, np.nan, np.float32)), "bias.npy: not finite"),
        (_change(bias=np.zeros(40)), "bias.npy: float64, not float32"),
        (_change(dense=np.zeros((40, 2), np.float32)), "dense.npy: shape"),
        (lambda g: g["documents"].reverse(), "does not come after"),
        (lambda g: g["documents"].pop(), "dense.npy: shape"),
        (lambda g: g["documents"].__setitem__(3, g["documents"][2]), "does not come after"),
        (lambda g: g["documents"].__setitem__(39, Document("e\ud800", {})), "no utf-8 form"),
        (lambda g: g["documents"].__setitem__(39, Document("e", {"x": {1}})), "cannot be stored"),
        (lambda g: g.update(card={"x": float("nan")}), "not a JSON value"),
        (_nan_model, "model/U: not finite"),
        (_objects, "model/U.npy: dtype object cannot be stored"),
        (_parts(Parts({}, {"../U": np.zeros(1)}, {})), "cannot name a file"),
        (_parts(Parts({}, {}, {"a/b": []})), "cannot name a file"),
        (_parts(Parts({}, {"U": np.zeros(1), "u": np.zeros(1)}, {})), "two parts of the model"),
        (_parts(Parts({}, {"a.offsets": np.zeros(1)}, {"a": []})), "two parts of the model"),
    ],
)
def test_parts_that_do_not_fit_are_refused_and_leave_nothing(
    change: Callable[[dict[str, Any]], Any], reason: str, root: Path
) -> None:
    given = planted()
    change(given)
    with pytest.raises(BundleError, match=reason):
        write_bundle(root, "planted", **given)
    assert not list(root.rglob("*"))


def test_a_model_that_loads_as_another_is_not_published(root: Path) -> None:
    given = planted()
    model = given["model"]
    model.parts = lambda: Parts(
        model.config, {"U": np.nextafter(model.U, np.float32(9))}, {"words": WORDS}
    )
    with pytest.raises(BundleError, match=r"golden\.jsonl: query 'apple"):
        write_bundle(root, "planted", **given)
    assert not list(root.rglob("*"))


@pytest.mark.sweep
def test_the_same_bundle_published_twice_at_once_is_kept_twice(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is whole, and about to take its name, while the first is checked before it takes the same one."""
    real = replay
    whole, paths = threading.Event(), []

    def again() -> None:
        def progress(part: str, *_: int) -> None:
            if part == "golden queries":
                whole.set()

        paths.append(write_bundle(root, "planted", **planted(), created=CREATED, progress=progress))

    second = threading.Thread(target=again)

    def checked(*arguments: Any) -> None:
        real(*arguments)
        if not whole.is_set():
            second.start()
            assert whole.wait(30)
            second.join(1)  # it waits for its turn

    monkeypatch.setattr(publish, "replay", checked)
    first = write_bundle(root, "planted", **planted(), created=CREATED)
    second.join(30)
    assert sorted([first, *paths]) == sorted(path for path in first.parent.iterdir())
    assert len(paths) == 1
    for path in (first, *paths):
        verify_bundle(path)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), BundleError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
)
@pytest.mark.parametrize("writes", [0, 1, 7, 20])
def test_a_failed_write_leaves_the_folder_unchanged(
    writes: int,
    error: BaseException,
    raised: type[BaseException],
    root: Path,
    written: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sorted(root.rglob("*"))
    real = folder._File.write
    calls = 0

    def write(self: folder._File, content: bytes | memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls > writes:
            raise error
        return real(self, content)

    monkeypatch.setattr(folder._File, "write", write)
    with pytest.raises(raised):
        write_bundle(root, "planted", **planted())
    assert calls == writes + 1
    assert sorted(root.rglob("*")) == before
    verify_bundle(written)


@pytest.mark.parametrize(
    ("step", "error"),
    [("os.fsync", OSError(errno.ENOSPC, "No space left on device")),
     ("pathlib.Path.rename", OSError(errno.ENOTEMPTY, "Directory not empty", "name"))],
)  # fmt: skip
def test_a_failed_step_leaves_nothing_and_is_named_in_the_error(
    step: str, error: OSError, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(step, fail)
    with pytest.raises(BundleError, match=rf"cannot write .*: {error.strerror}"):
        write_bundle(root, "planted", **planted())
    assert not list(root.rglob("*"))


def test_the_order_of_steps_survives_a_power_cut(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is synced, then the manifest, then the folders; only then comes the name."""
    steps: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{handle}"))
        real_fsync(handle)

    def rename(self: Path, target: Path) -> Path:
        steps.append("rename")
        return real_rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    path = write_bundle(root, "planted", **planted())
    named = steps.index("rename")
    before = [Path(step).name for step in steps[:named]]
    files = {p.name for p in path.rglob("*") if p.is_file()}
    assert files <= set(before)
    manifest = before.index("manifest.json")
    assert files <= set(before[: manifest + 1])
    assert {"model", "documents"} <= set(before[manifest + 1 :])
    assert steps[named + 1 :] == [str(path.parent), str(root)]


def saved(array: np.ndarray, path: Path) -> bytes:
    """What numpy itself writes."""
    np.save(path, array)
    return path.read_bytes()


ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(4, 3),
    np.zeros((0, 3), np.float32),
    np.zeros((4, 0), np.float32),
    np.arange(7),
    np.array([], np.int64),
    np.array([True, False]),
    np.arange(24, dtype=np.int8).reshape(2, 3, 4),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_arrays_have_the_bytes_that_numpy_writes(array: np.ndarray, tmp_path: Path) -> None:
    """Written whole, row by row, or through a memory map."""
    expected = saved(array, tmp_path / "expected.npy")
    with StagingFolder(tmp_path / "name") as folder:
        folder.write_array("a/whole.npy", array)
        rows = folder.growing_array("a/rows.npy", array.dtype, array.shape[1:])
        for row in range(len(array)):
            rows.append(array[row : row + 1])
        rows.finish()
        mapped = folder.create_array("a/created.npy", array.shape, array.dtype)
        assert not mapped.any()
        mapped[:] = array
        folder.finish_arrays()
        assert sorted(folder.files) == ["a/created.npy", "a/rows.npy", "a/whole.npy"]
        for name, entry in folder.files.items():
            content = (folder.path / name).read_bytes()
            assert content == expected
            assert entry.sha256 == hashlib.sha256(expected).hexdigest()
            assert (entry.bytes, entry.dtype) == (len(expected), array.dtype.str)
            assert entry.shape == array.shape
            np.testing.assert_array_equal(folder.map_array(name), array)


@pytest.mark.sweep
@pytest.mark.parametrize("strings", [[], [""], ["a", "", "é", "日本" * 3000, "🙂"] * 2000])
def test_written_strings_equal_a_table_in_memory(strings: list[str], tmp_path: Path) -> None:
    expected = StringTable.of(strings)
    with StagingFolder(tmp_path / "name") as folder:
        folder.write_strings("s", ".txt", iter(strings))
        table = folder.growing_strings("t", ".txt")
        for string in strings[:10]:
            table.extend([string])
        table.extend(strings[10:])
        table.finish()
        for stem in ("s", "t"):
            np.testing.assert_array_equal(folder.map_bytes(f"{stem}.txt"), expected.blob)
            np.testing.assert_array_equal(folder.map_array(f"{stem}.offsets.npy"), expected.offsets)


def test_rows_of_another_shape_or_dtype_are_refused(tmp_path: Path) -> None:
    with StagingFolder(tmp_path / "name") as folder:
        rows = folder.growing_array("a.npy", np.float32, (3,))
        for wrong in (np.zeros((1, 3)), np.zeros((1, 2), np.float32), np.zeros(3, np.float32)):
            with pytest.raises(BundleError, match=r"a\.npy: rows of"):
                rows.append(wrong)
        with pytest.raises(BundleError, match="two parts of the model use this file name"):
            folder.create_array("A.npy", (1,), np.int8)
        for dtype in (object, "<U3", ">f4", np.complex64):
            with pytest.raises(BundleError, match="cannot be stored"):
                folder.create_array("b.npy", (1,), dtype)


def test_a_full_disk_is_an_error_where_the_array_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a signal when a page of its memory map is first written."""

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"), StagingFolder(tmp_path / "name") as folder:
        folder.create_array("a.npy", (5,), np.int8)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_nothing(error: type[BaseException], tmp_path: Path) -> None:
    root = tmp_path / "root" / "name"

    def fill() -> None:
        with StagingFolder(root) as folder:
            folder.growing_array("documents/a.npy", np.int8).append(np.zeros(9, np.int8))
            folder.create_array("b.npy", (1000,), np.int64)[:] = 1
            assert folder.path.is_dir()
            raise error

    with pytest.raises(error):
        fill()
    assert not root.exists()


MODEL = planted_model()
COUNT = 53


def streaming_planted(count: int = COUNT) -> list[Document]:
    rng = np.random.default_rng(3)
    return [
        Document(
            f"d{i:04}",
            {
                "title": " ".join(rng.choice(STREAMING_WORDS, 2)),
                "text": " ".join(rng.choice(STREAMING_WORDS, i % 7)),
            },
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
        "created": STREAMING_CREATED,
        **more,
    }


def content(path: Path) -> dict[str, bytes]:
    files = (p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


@pytest.mark.parametrize("sizes", [(53,), (1,) * 53, (20, 0, 33), (52, 1)])
def test_batches_give_the_bytes_that_one_call_gives(sizes: tuple[int, ...], tmp_path: Path) -> None:
    documents = streaming_planted()
    whole = write_bundle(
        tmp_path / "a", "x", encoded=encode(documents), documents=documents, **settings()
    )
    streamed = stream_bundle(tmp_path / "b", "x", batches=batches(documents, *sizes), **settings())
    assert streamed.name == whole.name
    assert content(streamed) == content(whole)
    assert open_bundle(streamed).bundle_id == open_bundle(whole).bundle_id


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda b: b.append(b[0]), "documents: row 53, 'd0000', does not come after 'd0052'"),
        (lambda b: b.append((b[0][0], encode(streaming_planted(3)))), "shape"),
        (
            lambda b: b.append(([Document("e\ud800", {})], encode(streaming_planted(1)))),
            "no utf-8 form",
        ),
    ],
)
def test_a_batch_that_does_not_fit_leaves_nothing(
    spoil: Callable[[list[Batch]], None], reason: str, tmp_path: Path
) -> None:
    given = list(batches(streaming_planted(), 40, 13))
    spoil(given)
    with pytest.raises(BundleError, match=reason):
        stream_bundle(tmp_path, "x", batches=given, **settings())
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_batches_that_stop_half_way_leave_nothing(
    error: type[BaseException], tmp_path: Path
) -> None:
    def breaking() -> Iterator[Batch]:
        yield from batches(streaming_planted(), 10, 10)
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
    path = stream_bundle(tmp_path, "x", batches=batches(streaming_planted(), 53), **settings())
    opened = open_bundle(path)
    index = opened.retriever.index
    assert index is not None
    expected = index_in_memory(opened.encoded.whole(), cells=round(4 * 53**0.5))
    np.testing.assert_array_equal(index.tables.codes.codes, expected.tables.codes.codes)
    np.testing.assert_array_equal(index.postings.slots, expected.postings.slots)
    assert index.tables.codes.error == expected.tables.codes.error
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
    path = stream_bundle(tmp_path, "x", batches=batches(streaming_planted(), 53), **settings())
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


def test_no_batches_make_an_empty_bundle(tmp_path: Path) -> None:
    path = stream_bundle(tmp_path, "x", batches=[], **settings())
    assert len(open_bundle(path).documents) == 0
