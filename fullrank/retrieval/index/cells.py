"""A FAISS inner-product index over the dense parts: the dense candidates of the fast mode.

IndexIVFPQFastScan: about 4 √n cells, and of each document what its cell's centre leaves, two numbers in four bits, 16
documents to an instruction. Its results are scored in full by the caller, so it can lose a result but never change a
score. Cells are grown by distance and looked at in the order of u · centre: of what is in a cell, that is the mean.

IVF and not HNSW: the document vectors have no common length, and a graph over unnormalised inner products stays below
what an IVF finds in the same time. FAISS does not map these lists: each worker holds n (N / 4 + 8) bytes of its own.
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Int64
from fullrank.errors import BundleError
from fullrank.progress import Progress, silent

UInt16 = npt.NDArray[np.uint16]

# k-means sees at most this many vectors a cell: beyond it the cells hardly move.
_POINTS_PER_CELL = 40
_ITERATIONS = 10
_CHUNK = 1 << 16
_MOST = 1 << 16
# Of longer vectors squared distances may overflow, which FAISS ends the process over.
LONGEST = 1e18
# One query at a time, its results in a reservoir: what FAISS takes by itself for one query is slower.
_ONE_QUERY = 11


class Cells:
    """Searches the index; many threads may share it.

    of       uint16 (n,): the cell of each document
    centres  float32 (cells, N)
    """

    def __init__(self, index: faiss.IndexIVF, of: UInt16) -> None:
        self.index, self.of = index, of
        self.centres: Float32 = np.array(index.quantizer.reconstruct_n(0, index.nlist))
        self._length = float(np.linalg.norm(self.centres, axis=1).mean()) if self.count else 0.0

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @property
    def count(self) -> int:
        """How many cells there are."""
        return int(self.index.nlist)

    def near(self, u: Float32) -> Float32:
        """u · centre of each cell."""
        found: Float32 = self.centres @ u
        return found

    def search(
        self, u: Float32, near: Float32, limit: int, nprobe: int, margin: float = 0.0
    ) -> Int64:
        """Rows of about the largest u·v, int64 (at most limit,), among nprobe cells and those little behind.

        A query that lies between many cells has its documents in many; one that a few cells are far ahead for, in few.
        """
        nprobe = min(nprobe, self.count)
        least = np.partition(near, self.count - nprobe)[self.count - nprobe]
        least -= margin * float(np.sqrt(np.square(u).sum())) * self._length
        cells = np.flatnonzero(near >= least)
        values = near.take(cells)
        found, scores = np.empty(limit, np.int64), np.empty(limit, np.float32)
        # FAISS would look for the cells itself, a second time.
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
    """Write the index of float32 (n, N) to a file, entry i is document row i; and into ``of`` each document's cell.

    One thread, fixed seed: the same vectors give the same bytes, and no OpenMP pool is left behind for a later fork to
    trip over. Holds n N / 4 bytes. Raises BundleError when the file cannot be written.
    """
    count, width = vectors.shape
    cells = max(1, min(round(4 * count**0.5), count // 8, _MOST))
    near = faiss.IndexFlatL2(width)
    parts = width // 2 if width % 2 == 0 else width
    index = faiss.IndexIVFPQFastScan(near, width, cells, parts, 4, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = True
    index.implem = _ONE_QUERY
    index.cp.spherical = False
    index.cp.niter = _ITERATIONS
    index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
    index.cp.max_points_per_centroid = _POINTS_PER_CELL
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    progress("cells", 0, count)
    try:
        sample = np.linspace(0, count - 1, min(count, cells * _POINTS_PER_CELL)).astype(np.int64)
        index.train(np.ascontiguousarray(vectors[np.unique(sample)]))
        for start in range(0, count, _CHUNK):
            index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
            progress("cells", min(start + _CHUNK, count), count)
        lists = index.invlists
        assert lists is not None
        for cell in range(cells):
            size = lists.list_size(cell)
            if size:
                of[faiss.rev_swig_ptr(lists.get_ids(cell), size)] = cell
        # Grown by distance, asked by inner product.
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
    """Read an index. FAISS trusts what it parses: hash the file first. Raises BundleError when it cannot be read."""
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        raise BundleError(f"{path}: not a FAISS index: {error}") from error
    if not isinstance(index, faiss.IndexIVF):
        raise BundleError(f"{path}: not an index of cells")
    return Cells(index, of)
