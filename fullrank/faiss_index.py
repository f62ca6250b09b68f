"""A FAISS inner-product index over the dense parts of the documents.

Exact retrieval does not read it. It gives the dense candidates of an approximate mode, whose
results are then scored in full, so the index can lose a result but never change a score.

    up to FLAT_LIMIT documents   IndexFlatIP: every vector is looked at
    beyond                       IndexIVFFlat by inner product, nlist cells: nprobe of them are
                                 looked at; nprobe = nlist is exact

IVF and not HNSW: the document vectors have no common length, and a graph over unnormalised inner
products needs a large ef before it finds the long ones; IVF has a setting at which it is exact,
builds in seconds and lets entries be removed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt

from fullrank.encoding import Encoded
from fullrank.errors import BundleError

FLAT_LIMIT = 16_384
# k-means sees at most this many vectors a cell: beyond it the cells hardly move.
_POINTS_PER_CELL = 40
_ITERATIONS = 10
# Share of the cells that a search looks at unless the caller sets nprobe.
_PROBED = 0.1


def build_index(documents: Encoded) -> faiss.Index:
    """Index documents.dense (float32 (B, N), N > 0); entry i is document row i.

    One thread, fixed seed: the same vectors give the same bytes, and no OpenMP pool is left behind
    for a later fork to trip over.
    """
    count, n_dense = documents.dense.shape
    vectors = np.ascontiguousarray(documents.dense)
    if count <= FLAT_LIMIT:
        flat = faiss.IndexFlatIP(n_dense)
        flat.add(vectors)
        return flat
    cells = round(2 * count**0.5)
    index = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(n_dense), n_dense, cells, faiss.METRIC_INNER_PRODUCT
    )
    # Cells by direction: otherwise the few longest vectors draw everything into their cells.
    index.cp.spherical = True
    index.cp.niter = _ITERATIONS
    index.cp.min_points_per_centroid = 1
    index.cp.max_points_per_centroid = _POINTS_PER_CELL
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        index.train(vectors)
        index.add(vectors)
    finally:
        faiss.omp_set_num_threads(threads)
    index.nprobe = max(1, round(cells * _PROBED))
    return index


def index_bytes(index: faiss.Index) -> npt.NDArray[np.uint8]:
    """The content of index.faiss."""
    content: npt.NDArray[np.uint8] = faiss.serialize_index(index)
    return content


def load_index(path: Path, sha256: str) -> faiss.Index:
    """Read an index whose bytes have the given hash.

    FAISS trusts what it parses, so the bytes are hashed first, and the bytes that were hashed are
    the ones parsed. Raises BundleError when they differ or cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise BundleError(f"{path}: sha256 differs from the manifest")
    try:
        return faiss.deserialize_index(np.frombuffer(content, np.uint8))
    except RuntimeError as error:
        raise BundleError(f"{path}: not a FAISS index: {error}") from error
