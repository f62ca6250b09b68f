"""Dense candidates of the fast mode: a FAISS inner-product index over the dense parts.

IndexIVFPQFastScan with about 4 √n cells. Of each document it stores the residual from the centre of its cell, four bits
per two numbers, and compares 16 documents per instruction. The caller scores the results in full, so this index can
lose a result but never change a score. Cells are trained by distance and searched in the order of u · centre, which is
the mean u·v in the cell.

IVF and not HNSW: the document vectors have no common length, and a graph over unnormalised inner products finds less
than an IVF in the same time. FAISS does not map these lists, so each worker has its own copy: n (N / 4 + 8) bytes.
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Int64
from fullrank.errors import BundleError
from fullrank.progress import Progress, silent
from fullrank.retrieval.index.clustering import train_centres

UInt16 = npt.NDArray[np.uint16]

# k-means sees at most this many vectors per cell; with more the centres hardly move.
_POINTS_PER_CELL = 40
# Vectors per centre of the product quantizer.
_POINTS_PER_CODE = 64
_CHUNK = 1 << 16
_MAX_CELLS = 1 << 16
# Squared distances of longer vectors may overflow, and FAISS then aborts the process.
MAX_LENGTH = 1e18
# One query at a time with a reservoir of results: faster than the variant that FAISS picks for one query.
_ONE_QUERY = 11


class Cells:
    """Searches the index; threads may share it.

    Attributes:
        of: uint16 (n,), the cell of each document.
        centres: float32 (cells, N).
    """

    def __init__(self, index: faiss.IndexIVF, of: UInt16) -> None:
        self.index, self.of = index, of
        self.centres: Float32 = np.array(index.quantizer.reconstruct_n(0, index.nlist))
        self._length = float(np.linalg.norm(self.centres, axis=1).mean()) if self.count else 0.0

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @property
    def count(self) -> int:
        """The number of cells."""
        return int(self.index.nlist)

    def near(self, u: Float32) -> Float32:
        """Return u · centre of each cell, float32 (cells,)."""
        found: Float32 = self.centres @ u
        return found

    def search(
        self, u: Float32, near: Float32, limit: int, nprobe: int, margin: float = 0.0
    ) -> Int64:
        """Find the rows of about the largest u·v.

        A query between many cells has its documents in many of them, so it searches every cell within the margin.

        Args:
            u: float32 (N,).
            near: The result of `near(u)`.
            limit: How many rows to return at most.
            nprobe: How many of the nearest cells to search.
            margin: Also search cells that score lower by at most this share of ‖u‖ · the mean length of a centre.

        Returns:
            int64 (at most limit,).
        """
        nprobe = min(nprobe, self.count)
        least = np.partition(near, self.count - nprobe)[self.count - nprobe]
        least -= margin * float(np.sqrt(np.square(u).sum())) * self._length
        cells = np.flatnonzero(near >= least)
        values = near.take(cells)
        found, scores = np.empty(limit, np.int64), np.empty(limit, np.float32)
        # index.search would compute the nearest cells a second time.
        self.index.search_preassigned_c(  # type: ignore[attr-defined]
            1,
            faiss.swig_ptr(u),
            limit,
            faiss.swig_ptr(cells),
            faiss.swig_ptr(values),
            faiss.swig_ptr(scores),
            faiss.swig_ptr(found),
            False,
            faiss.SearchParametersIVF(nprobe=len(cells)),  # type: ignore[call-arg]
        )
        return found if not len(found) or found[-1] >= 0 else found[found >= 0]


def build_cells(vectors: Float32, path: Path, of: UInt16, progress: Progress = silent) -> None:
    """Write the index of float32 (n, N) to a file, and each document's cell into `of`.

    It runs on one thread with a fixed seed, so equal vectors give equal bytes, and no OpenMP pool stays that would hang
    a later fork. It holds n N / 4 bytes.

    Raises:
        BundleError: The file cannot be written.
    """
    count, width = vectors.shape
    cells = max(1, min(round(4 * count**0.5), count // 8, _MAX_CELLS))
    near = faiss.IndexFlatL2(width)
    parts = width // 2 if width % 2 == 0 else width
    index = faiss.IndexIVFPQFastScan(near, width, cells, parts, 4, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = True
    index.implem = _ONE_QUERY
    index.pq.cp.min_points_per_centroid = 1
    index.pq.cp.max_points_per_centroid = _POINTS_PER_CODE
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    progress("cells", 0, count)
    try:
        sample = np.linspace(0, count - 1, min(count, cells * _POINTS_PER_CELL)).astype(np.int64)
        points = np.ascontiguousarray(vectors[np.unique(sample)])
        near.add(train_centres(points, cells))
        index.train(points)
        for start in range(0, count, _CHUNK):
            index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
            progress("cells", min(start + _CHUNK, count), count)
        lists = index.invlists
        assert lists is not None
        for cell in range(cells):
            size = lists.list_size(cell)
            if size:
                of[faiss.rev_swig_ptr(lists.get_ids(cell), size)] = cell
        # Trained by distance, searched by inner product.
        centres = faiss.IndexFlatIP(width)
        centres.add(near.reconstruct_n(0, cells))
        index.quantizer = centres
        try:
            faiss.write_index(index, str(path))
        except RuntimeError as error:
            raise BundleError(f"{path}: cannot be written: {error}") from error
    finally:
        faiss.omp_set_num_threads(threads)


def open_cells(path: Path, of: UInt16) -> Cells:
    """Read an index. FAISS trusts the file, so check its sha256 first.

    Raises:
        BundleError: The file cannot be read.
    """
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        raise BundleError(f"{path}: not a FAISS index: {error}") from error
    if not isinstance(index, faiss.IndexIVF):
        raise BundleError(f"{path}: not an index of cells")
    return Cells(index, of)
