"""A FAISS inner-product index over the dense parts: the dense candidates of the fast mode.

IndexIVFScalarQuantizer: about 2 √n cells by direction, 8 bits a number. Its results are scored in full by the caller,
so it can lose a result but never change a score. The inverted lists are mapped, so workers share them.

IVF and not HNSW: the document vectors have no common length, and a graph over unnormalised inner products needs a large
ef before it finds the long ones; FAISS maps an IVF's lists but holds a graph in every worker's own memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import faiss
import numpy as np

from fullrank.encoding import Float32, Int64
from fullrank.errors import BundleError

# k-means sees at most this many vectors a cell: beyond it the cells hardly move.
_POINTS_PER_CELL = 40
_ITERATIONS = 10
_CHUNK = 1 << 16


class Cells:
    """Searches the index; many threads may share it."""

    def __init__(self, index: faiss.IndexIVF) -> None:
        self.index = index

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @property
    def count(self) -> int:
        """How many cells there are."""
        return int(self.index.nlist)

    def search(self, u: Float32, limit: int, nprobe: int) -> Int64:
        """Rows of about the largest u·v among nprobe cells, int64 (at most limit,)."""
        chosen = faiss.SearchParametersIVF(nprobe=nprobe)  # type: ignore[call-arg]
        _, rows = self.index.search(u[None], limit, params=chosen)
        found: Int64 = rows[0]
        return found[found >= 0]


def build_cells(vectors: Float32, path: Path) -> None:
    """Write the index of float32 (n, N) to a file; entry i is document row i.

    One thread, fixed seed: the same vectors give the same bytes, and no OpenMP pool is left behind for a later fork to
    trip over. Holds n N bytes.
    """
    count, width = vectors.shape
    cells = max(1, round(2 * count**0.5))
    quantizer = faiss.IndexFlatIP(width)
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, width, cells, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT, False
    )
    # Cells by direction: otherwise the few longest vectors draw everything into their cells.
    index.cp.spherical = True
    index.cp.niter = _ITERATIONS
    index.cp.min_points_per_centroid = 1
    index.cp.max_points_per_centroid = _POINTS_PER_CELL
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        sample = np.linspace(0, count - 1, min(count, cells * _POINTS_PER_CELL)).astype(np.int64)
        index.train(np.ascontiguousarray(vectors[np.unique(sample)]))
        for start in range(0, count, _CHUNK):
            index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
        faiss.write_index(index, str(path))
    finally:
        faiss.omp_set_num_threads(threads)


def open_cells(path: Path) -> Cells:
    """Map an index. FAISS trusts what it parses: hash the file first. Raises BundleError when it cannot be read."""
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    except RuntimeError as error:
        raise BundleError(f"{path}: not a FAISS index: {error}") from error
    if not isinstance(index, faiss.IndexIVF):
        raise BundleError(f"{path}: not an index of cells")
    # A search would start 32 threads that read its cells ahead: ten times the search itself.
    lists: Any = faiss.downcast_InvertedLists(cast(Any, index.invlists))
    lists.prefetch_nthread = 0
    return Cells(index)
