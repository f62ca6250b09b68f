from __future__ import annotations

import hashlib
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
import pytest

from fullrank import faiss_index
from fullrank.encoding import Encoded
from fullrank.errors import BundleError
from fullrank.faiss_index import build_index, index_bytes, load_index

FloatArray = npt.NDArray[np.float32]


def _encoded(dense: FloatArray) -> Encoded:
    count = len(dense)
    return Encoded(
        dense,
        np.zeros(count + 1, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
        0,
        np.zeros(count, np.float32),
    )


@pytest.fixture(scope="module")
def vectors() -> FloatArray:
    """Clustered vectors of very different lengths, as learned document vectors are."""
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(12, 16))
    points = centres[rng.integers(0, 12, 900)] + rng.normal(size=(900, 16))
    return (points * rng.lognormal(0, 0.5, (900, 1))).astype(np.float32)


@pytest.fixture
def small_flat_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few hundred vectors get the index of a large collection."""
    monkeypatch.setattr(faiss_index, "FLAT_LIMIT", 500)


def _assert_exact(index: faiss.Index, vectors: FloatArray) -> None:
    queries = np.random.default_rng(8).normal(size=(50, vectors.shape[1])).astype(np.float32)
    scores, rows = index.search(queries, 10)
    truth = queries.astype(np.float64) @ vectors.astype(np.float64).T
    np.testing.assert_array_equal(rows, np.argsort(-truth, axis=1)[:, :10])
    np.testing.assert_allclose(scores, np.take_along_axis(truth, rows, 1), rtol=1e-4, atol=1e-4)


def test_a_small_collection_is_scanned_in_full(vectors: FloatArray) -> None:
    index = build_index(_encoded(vectors))
    assert isinstance(index, faiss.IndexFlatIP)
    _assert_exact(index, vectors)


@pytest.mark.usefixtures("small_flat_limit")
def test_cells_are_exact_when_all_are_looked_at(vectors: FloatArray) -> None:
    index = build_index(_encoded(vectors))
    assert isinstance(index, faiss.IndexIVFFlat)
    assert index.nlist == 60
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    index.nprobe = index.nlist
    _assert_exact(index, vectors)


@pytest.mark.usefixtures("small_flat_limit")
def test_few_cells_find_most(vectors: FloatArray) -> None:
    index = build_index(_encoded(vectors))
    assert index.nprobe == 6
    index.nprobe = 20
    queries = vectors[:100]
    _, rows = index.search(queries, 10)
    truth = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    found = [len(set(a) & set(b)) for a, b in zip(rows.tolist(), truth.tolist(), strict=True)]
    assert np.mean(found) / 10 > 0.8


@pytest.mark.usefixtures("small_flat_limit")
def test_the_same_vectors_give_the_same_bytes(vectors: FloatArray) -> None:
    first, second = (index_bytes(build_index(_encoded(vectors))) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_threads_are_as_they_were(vectors: FloatArray, small_flat_limit: None) -> None:
    before = faiss.omp_get_max_threads()
    build_index(_encoded(vectors))
    assert faiss.omp_get_max_threads() == before


@pytest.mark.parametrize("limit", [500, 10_000])
def test_saved_and_loaded_is_the_same_index(
    limit: int, vectors: FloatArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss_index, "FLAT_LIMIT", limit)
    index = build_index(_encoded(vectors))
    path = tmp_path / "index.faiss"
    index_bytes(index).tofile(path)
    loaded = load_index(path, hashlib.sha256(path.read_bytes()).hexdigest())
    for got, want in zip(
        loaded.search(vectors[:40], 10), index.search(vectors[:40], 10), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_bytes_of_another_hash_are_not_parsed(
    vectors: FloatArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index.faiss"
    content = index_bytes(build_index(_encoded(vectors)))
    digest = hashlib.sha256(content.tobytes()).hexdigest()
    content[100] ^= 1
    content.tofile(path)

    def parse(_: object) -> None:
        raise AssertionError("parsed before the hash was checked")

    monkeypatch.setattr(faiss, "deserialize_index", parse)
    with pytest.raises(BundleError, match=r"index\.faiss: sha256 differs"):
        load_index(path, digest)


def test_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.faiss"
    path.write_bytes(b"not an index at all")
    with pytest.raises(BundleError, match="not a FAISS index"):
        load_index(path, hashlib.sha256(path.read_bytes()).hexdigest())


def test_an_absent_file_is_a_bundle_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="No such file"):
        load_index(tmp_path / "index.faiss", "0" * 64)
