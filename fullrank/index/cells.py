"""A FAISS inner-product index over the dense parts: the dense candidates of the fast mode.

IndexIVFPQFastScan: about 2 √n cells by direction, four bits a number, 16 documents to an instruction. Its results are
scored in full by the caller, so it can lose a result but never change a score.

IVF and not HNSW: the document vectors have no common length, and a graph over unnormalised inner products stays below
what an IVF finds in the same time. FAISS does not map these lists: each worker holds n (N / 2 + 8) bytes of its own.
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np

from fullrank.encoding import Float32, Int64
from fullrank.errors import BundleError
from fullrank.progress import Progress, silent

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

    def search(self, u: Float32, limit: int, nprobe: int) -> tuple[Int64, Float32]:
        """Rows of about the largest u·v among nprobe cells, int64 (at most limit,), and about what u·v is."""
        chosen = faiss.SearchParametersIVF(nprobe=nprobe)  # type: ignore[call-arg]
        scores, rows = self.index.search(u[None], limit, params=chosen)
        found = rows[0] >= 0
        return rows[0][found], scores[0][found]


def build_cells(vectors: Float32, path: Path, progress: Progress = silent) -> None:
    """Write the index of float32 (n, N) to a file; entry i is document row i.

    One thread, fixed seed: the same vectors give the same bytes, and no OpenMP pool is left behind for a later fork to
    trip over. Holds n N bytes.
    """
    count, width = vectors.shape
    cells = max(1, round(2 * count**0.5))
    quantizer = faiss.IndexFlatIP(width)
    index = faiss.IndexIVFPQFastScan(quantizer, width, cells, width, 4, faiss.METRIC_INNER_PRODUCT)
    # Cells by direction: otherwise the few longest vectors draw everything into their cells.
    index.cp.spherical = True
    index.cp.niter = _ITERATIONS
    index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
    index.cp.max_points_per_centroid = _POINTS_PER_CELL
    progress("cells", 0, count)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        sample = np.linspace(0, count - 1, min(count, cells * _POINTS_PER_CELL)).astype(np.int64)
        index.train(np.ascontiguousarray(vectors[np.unique(sample)]))
        for start in range(0, count, _CHUNK):
            index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
            progress("cells", min(start + _CHUNK, count), count)
        faiss.write_index(index, str(path))
    finally:
        faiss.omp_set_num_threads(threads)


def open_cells(path: Path) -> Cells:
    """Read an index. FAISS trusts what it parses: hash the file first. Raises BundleError when it cannot be read."""
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        raise BundleError(f"{path}: not a FAISS index: {error}") from error
    if not isinstance(index, faiss.IndexIVF):
        raise BundleError(f"{path}: not an index of cells")
    return Cells(index)
