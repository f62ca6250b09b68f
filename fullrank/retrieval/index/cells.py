"""Cells: groups of documents whose dense vectors are near each other, and the order that puts each group together.

All parts of an index number the documents by slot. The slots of a cell follow each other, the farthest from its centre
first, so a search reads one piece of memory: the documents that are far enough from the centre to score well. Cells are
trained by distance and searched in the order of u · centre, which is the mean u·v in the cell.

Cells and not a graph: the document vectors have no common length, and a graph over unnormalised inner products finds
less in the same time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np

from fullrank.kernels.arrays import UInt8, UInt16
from fullrank.kernels.fast import DISTANCES
from fullrank.kernels.index import Cells, read_only
from fullrank.progress import Progress, silent
from fullrank.retrieval.index.codes import encode, made
from fullrank.storage.checks import Create
from fullrank.storage.encoding import Float32, Int64

# Centres of many cells by k-means in three passes.
#
# k-means of about √C groups, then of the cells of each group, then one pass over all C cells. The first two compare a
# point with about √C centres, the last one with the centres in the few groups next to it; plain k-means compares each
# point with all C ten times.

_GROUPED, _IN_GROUPS, _OVERALL = 8, 6, 1  # iterations
# Groups of centres that are searched for the nearest one of a vector. A centre in another group is rarely nearer, and
# more groups take more time.
_LOOKED_INTO = 4
_KMEANS_THREADS = 2


def train_cells(points: Float32, cells: int) -> tuple[Float32, faiss.Index]:
    """Return the centres of cells by distance, float32 (cells, N), and an index that finds a near one of a vector.

    FAISS runs with a fixed seed and one thread a call, so equal points give equal centres, and no OpenMP pool stays
    that would hang a later fork.

    Args:
        points: float32 (n, N), C-contiguous, n at least 8 times the cells.
        cells: At least 1.
    """
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        groups = max(1, round(cells**0.5))
        group_of = _k_means(points, groups, _GROUPED).search(points, 1)[1][:, 0]
        shares = _shares(np.bincount(group_of, minlength=groups), cells)

        def centres_of(group: int) -> Float32:
            faiss.omp_set_num_threads(1)  # of this thread
            return _centres(_k_means(points[group_of == group], int(shares[group]), _IN_GROUPS))

        with ThreadPoolExecutor(_KMEANS_THREADS) as pool:
            start = np.concatenate([*pool.map(centres_of, np.flatnonzero(shares).tolist())])
        index = _in_groups(start, groups)
        return _train(points, cells, _OVERALL, index, start), index
    finally:
        faiss.omp_set_num_threads(threads)


def _shares(sizes: Int64, cells: int) -> Int64:
    """Divide cells among groups in proportion to their points, by largest remainder; no group gets more than it has."""
    wanted = sizes * cells / sizes.sum()
    shares: Int64 = np.floor(wanted).astype(np.int64)
    by_remainder = np.argsort(shares - wanted, kind="stable")
    shares[by_remainder[: cells - int(shares.sum())]] += 1
    return shares


def _in_groups(centres: Float32, groups: int) -> faiss.Index:
    """Return an empty index for centres, which looks for the nearest one in the nearest `_LOOKED_INTO` groups."""
    index = faiss.IndexIVFFlat(_k_means(centres, groups, _GROUPED), centres.shape[1], groups)
    index.train(centres)
    index.nprobe = _LOOKED_INTO
    return index


def _k_means(points: Float32, centres: int, iterations: int) -> faiss.IndexFlatL2:
    index = faiss.IndexFlatL2(points.shape[1])
    _train(points, centres, iterations, index)
    return index


def _train(
    points: Float32,
    centres: int,
    iterations: int,
    index: faiss.Index,
    start: Float32 | None = None,
) -> Float32:
    """Run k-means from given centres or drawn points; put the centres into an index and return them."""
    settings = faiss.ClusteringParameters()
    settings.niter = iterations
    settings.min_points_per_centroid, settings.max_points_per_centroid = 1, len(points)
    clustering = faiss.Clustering(points.shape[1], centres, settings)
    if start is not None:
        faiss.copy_array_to_vector(start.ravel(), clustering.centroids)
    clustering.train(points, index)
    found: Float32 = faiss.vector_to_array(clustering.centroids).reshape(centres, -1)
    return found


def _centres(index: faiss.IndexFlatL2) -> Float32:
    found: Float32 = index.reconstruct_n(0, index.ntotal)
    return found


# k-means sees at most this many vectors per cell; with more the centres hardly move.
_POINTS_PER_CELL = 40
_CHUNK, _THREADS = 1 << 14, 2
_MAX_CELLS = 1 << 16
# Squared distances of longer vectors may overflow, and FAISS then aborts the process.
_MAX_LENGTH = 1e18


def build_cells(
    vectors: Float32,
    bias: Float32,
    wanted: int,
    create: Create,
    progress: Progress = silent,
    known: Cells | None = None,
) -> Cells:
    """Group documents into at most `wanted` cells.

    Args:
        known: Cells of documents of the same model, whose centres are used in place of new ones.
    """
    count, width = vectors.shape
    progress("cells", 0, count)
    cells = min(wanted, count // 8, _MAX_CELLS) if known is None else known.n_cells
    if cells < 2 or not width or not _longest(vectors) < _MAX_LENGTH:
        centres, cell_of = np.zeros((1, width), np.float32), np.zeros(count, np.uint16)
    elif known is not None:
        centres = known.centres * known.scales[:, None]
        cell_of = _nearest(vectors, centres)
    else:
        centres, cell_of = _clusters(vectors, cells, progress)
    distances, longest = _distances(vectors, centres, cell_of)
    made_cells = Cells(*made(create, Cells, n=count, N=width, C=len(centres)))
    rows, starts = made_cells.rows, made_cells.starts
    rows[:] = np.argsort(
        cell_of * np.uint32(DISTANCES + 1) + (DISTANCES - distances), kind="stable"
    )
    made_cells.slots[rows] = np.arange(count, dtype=np.int32)
    made_cells.of[:] = cell_of[rows]
    made_cells.distances[:] = distances[rows]
    np.cumsum(np.bincount(cell_of, minlength=len(centres)), out=starts[1:])
    if known is not None and known.n_cells == len(centres):
        # The same memory: a search of a segment then finds in the caches what the search of the bundle has just read.
        made_cells = made_cells._replace(centres=known.centres, scales=known.scales)
    else:
        made_cells.centres[:], made_cells.scales[:] = encode(centres)[:2]
    sums = np.bincount(cell_of, bias, minlength=len(centres))
    made_cells.bias[:] = sums / np.maximum(np.diff(starts), 1)
    made_cells.longest[:] = longest
    return read_only(made_cells)


def _distances(vectors: Float32, centres: Float32, cell_of: UInt16) -> tuple[UInt8, Float32]:
    """Return ‖v − centre‖ of each vector in 255ths of the longest of its cell, uint8 (n,), and these, float32 (C,)."""
    found = np.empty(len(vectors))
    for start in range(0, len(vectors), _CHUNK):
        part = slice(start, start + _CHUNK)
        away = vectors[part].astype(np.float64) - centres[cell_of[part]]
        found[part] = np.sqrt(np.einsum("ij,ij->i", away, away))
    longest = np.zeros(len(centres))
    np.maximum.at(longest, cell_of, found)
    shares = np.divide(found, longest[cell_of], out=np.zeros_like(found), where=found > 0)
    codes = np.ceil(DISTANCES * shares).astype(np.uint8)
    return codes, np.minimum(longest, np.finfo(np.float32).max).astype(np.float32)


def _nearest(vectors: Float32, centres: Float32) -> UInt16:
    found, half = np.empty(len(vectors), np.uint16), np.sum(centres**2, axis=1) / 2
    for start in range(0, len(vectors), _CHUNK):
        part = slice(start, start + _CHUNK)
        found[part] = np.argmax(vectors[part] @ centres.T - half, axis=1)
    return found


def _longest(vectors: Float32) -> float:
    """Return an upper bound of ‖v‖, infinite or NaN where a number is."""
    largest = 0.0
    for start in range(0, len(vectors), _CHUNK):
        largest = max(largest, float(np.abs(vectors[start : start + _CHUNK]).max(initial=0.0)))
    return float(largest * vectors.shape[1] ** 0.5)


def _clusters(vectors: Float32, cells: int, progress: Progress) -> tuple[Float32, UInt16]:
    """Return centres, float32 (cells, N), and a near one of each vector, uint16 (n,)."""
    count = len(vectors)
    sample = np.linspace(0, count - 1, min(count, cells * _POINTS_PER_CELL)).astype(np.int64)
    centres, index = train_cells(np.ascontiguousarray(vectors[np.unique(sample)]), cells)

    def nearest(start: int) -> Int64:
        faiss.omp_set_num_threads(1)  # of this thread
        part = np.ascontiguousarray(vectors[start : start + _CHUNK])
        found: Int64 = index.search(part, 1)[1][:, 0]
        return found

    cell_of, begins = np.zeros(count, np.uint16), range(0, count, _CHUNK)
    with ThreadPoolExecutor(_THREADS) as pool:
        for start, found in zip(begins, pool.map(nearest, begins), strict=True):
            cell_of[start : start + len(found)] = found
            progress("cells", start + len(found), count)
    return centres, cell_of
