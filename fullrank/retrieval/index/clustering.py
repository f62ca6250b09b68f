"""Centres of many cells by k-means in three passes.

k-means of about √C groups, then of the cells of each group, then one pass over all C cells. The first two compare a
point with about √C centres, the last one with the centres in the few groups next to it; plain k-means compares each
point with all C ten times.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np

from fullrank.encoding import Float32, Int64

_GROUPED, _IN_GROUPS, _OVERALL = 8, 6, 1  # iterations
# Groups of centres that are searched for the nearest one of a vector. A centre in another group is rarely nearer, and
# more groups take more time.
_LOOKED_INTO = 4
_THREADS = 2


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

        with ThreadPoolExecutor(_THREADS) as pool:
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
    """Return an index of the centres of k-means, from drawn points."""
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
