"""Documents read from a file of records equal the documents in memory, in searches too, and no page is mapped."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.kernels.records import make_records
from fullrank.retrieval import Floor, Retriever, scoring
from fullrank.search.searchable import Selection, gather
from fullrank.storage.encoding import Encoded
from fullrank.storage.records import Records, blocks, used_columns
from tests.unit.fullrank.retrieval.data import (
    EVERYTHING,
    assert_is_brute_force,
    assert_same_bits,
    brute,
    encoded,
    with_cells,
)

_BEFORE = b"a header"


def recorded(folder: Path, documents: Encoded) -> Records:
    file = folder / "records"
    file.write_bytes(_BEFORE + make_records(documents.dense, *documents.sparse.arrays).tobytes())
    sizes = documents.n_dense, documents.width
    return Records(file, len(_BEFORE), documents.indptr, documents.bias, *sizes)


def assert_equal(found: Encoded, expected: Encoded) -> None:
    assert found.width == expected.width
    for name, array in expected.arrays().items():
        other = found.arrays()[name]
        assert (other.dtype, other.shape) == (array.dtype, array.shape)
        assert other.tobytes() == array.tobytes(), name


def mapped(file: str) -> bool:
    return file in Path("/proc/self/maps").read_text()


def test_a_record_is_v_then_the_columns_then_the_weights_of_t() -> None:
    documents = encoded(np.random.default_rng(3), 9, 4, 6, density=0.5)
    expected = b"".join(
        part.tobytes()
        for row in range(9)
        for part in (documents.dense[row], *documents.sparse.row(row))
    )
    assert make_records(documents.dense, *documents.sparse.arrays).tobytes() == expected


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 30), st.integers(0, 5), st.integers(1, 8), st.data()
)
def test_records_equal_documents_in_memory(
    seed: int, count: int, n_dense: int, width: int, data: st.DataObject
) -> None:
    documents = encoded(np.random.default_rng(seed), count, n_dense, width, density=0.4)
    rows = np.array(data.draw(st.lists(st.integers(0, count - 1)) if count else st.just([])), int)
    removed = np.random.default_rng(seed).random(count) < 0.3
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("fullrank.storage.records._BLOCK", 7)
        found = recorded(Path(folder), documents)
        assert (len(found), found.n_entries) == (count, documents.n_entries)
        assert_equal(found.take(rows), documents.take(rows))
        own, places = found.fetch(rows)
        assert_equal(own.take(places), documents.take(rows))
        assert_equal(found.whole(), documents)
        pieces = zip(blocks(found), blocks(documents), strict=True)
        assert sum(len(one) for one, _ in pieces) == count
        for one, expected in zip(blocks(found), blocks(documents), strict=True):
            assert_equal(one, expected)
        for row in rows.tolist():
            got, wanted = found.row(row), documents.row(row)
            assert all(np.array_equal(got[i], wanted[i]) for i in range(4))
        for mask in (None, removed):
            kept = np.arange(count) if mask is None else np.flatnonzero(~mask)
            has = np.isin(np.arange(width), documents.sparse.take(kept).indices)
            assert np.array_equal(used_columns(found, mask), has)
            assert np.array_equal(used_columns(documents, mask), has)


@pytest.mark.parametrize(
    ("n_dense", "width", "at_once"), [(8, 30, 3), (0, 30, 1024), (70, 5, 1024)]
)
def test_searches_equal_brute_force_and_those_in_memory(
    n_dense: int, width: int, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    documents = encoded(rng, 900, n_dense, width)
    queries = encoded(rng, 14, n_dense, width, bias=False)
    index = with_cells(documents, EVERYTHING)
    stored = recorded(tmp_path, documents)
    monkeypatch.setattr(scoring, "_AT_ONCE", at_once)
    memory, file = Retriever(documents, None, index), Retriever(stored, None, index)
    dense, lexical = brute(queries, documents)
    masks = None, rng.random(900) < 0.5, rng.random(900) < 0.999
    for deleted in masks:
        for mode in ("exact", "fast"):
            for floor in (None, Floor(lexical=0.3), Floor(score=0.5)):
                for offset in (0, 4):
                    asked: dict[str, Any] = {"offset": offset, "deleted": deleted}
                    asked |= {"mode": mode, "floor": floor}
                    expected = memory.search(queries, 10, **asked)
                    found = file.search(queries, 10, **asked)
                    for i, ranking in enumerate(found):
                        assert_same_bits(ranking, expected[i])
                        if mode == "exact" and floor is None:
                            parts = dense[i], lexical[i], documents.bias.astype(np.float64)
                            assert_is_brute_force(ranking, *parts, 10, offset, deleted)
    floor = Floor(dense=0.5, lexical=0.3)
    counts = [
        [retriever.count(queries.slice(i, i + 1), floor, 900) for i in range(14)]
        for retriever in (file, memory)
    ]
    assert counts[0] == counts[1]
    assert sum(counts[0]) > 0
    assert not mapped(str(tmp_path))
    # Without an index all are read into memory, and scanned.
    for a, b in zip(
        Retriever(stored).search(queries, 10), Retriever(documents).search(queries, 10), strict=True
    ):
        assert_same_bits(a, b)


def test_documents_are_gathered_from_records_and_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    base, added = encoded(rng, 40, 3, 10), encoded(rng, 20, 3, 4)
    stored, features = recorded(tmp_path, base), np.array([1, 5, 8, 9], np.int32)
    selected = Selection.of([(int(rng.integers(2)), int(rng.integers(20))) for _ in range(30)])
    targets = [None, features]
    expected = gather([base, added], selected, 10, targets)
    assert_equal(gather([stored, added], selected, 10, targets), expected)


def test_the_file_is_closed_with_the_documents_and_may_be_deleted(tmp_path: Path) -> None:
    documents = encoded(np.random.default_rng(1), 5, 3, 4)
    stored = recorded(tmp_path, documents)
    (tmp_path / "records").unlink()
    assert_equal(stored.take(np.arange(5)), documents)
    descriptor = stored._file
    os.fstat(descriptor)
    del stored
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file_that_ends_early_and_rows_that_do_not_exist_are_errors(tmp_path: Path) -> None:
    documents = encoded(np.random.default_rng(1), 5, 3, 4, density=1.0)
    stored = recorded(tmp_path, documents)
    os.truncate(tmp_path / "records", (tmp_path / "records").stat().st_size - 1)
    assert_equal(stored.slice(0, 4), documents.slice(0, 4))
    with pytest.raises(OSError, match=r"records\.npy cannot be read"):
        stored.row(4)
    for row in (-1, 5, 2**40):
        with pytest.raises(IndexError, match="damaged"):
            stored.take(np.array([row]))
    damaged = documents.indptr.copy()
    damaged[3] = 2**40
    with pytest.raises(IndexError, match="damaged"):
        Records(tmp_path / "records", 8, damaged, documents.bias, 3, 4).row(2)
