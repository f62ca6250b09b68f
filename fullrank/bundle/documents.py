"""How a bundle stores its encoded documents: as arrays, or as one record for each.

arrays    mapped, and shared by all processes. A scan reads them as they are; so do models that score by themselves.
records   of a bundle with an index and many documents. A search reads the few that it scores, by a system call each,
          so no process maps the pages of all (storage/records.py). For fewer documents, mapping is faster and small.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.manifest import FileEntry
from fullrank.bundle.staging import StagingFolder
from fullrank.errors import BundleError
from fullrank.models.contract import Model
from fullrank.retrieval.scoring import Scorer
from fullrank.storage.checks import (
    check_ascending,
    check_rows,
    check_shapes,
    check_values,
    is_finite,
    misfits,
)
from fullrank.storage.encoding import Encoded
from fullrank.storage.records import Documents, Records, blocks, records_of

_RECORDED = {
    "indptr": Encoded.STORED["indptr"],
    "bias": Encoded.STORED["bias"],
    "records": ("<i4", "R"),
}
RECORDS = "documents/records.npy"
# Bytes of v and t of all documents, of some 500,000 documents. A fast search over a million takes 8 to 15 % longer from
# records, one over 63,000 a fifth (docs/results/speed.md#memory-disk-and-opening).
RECORDS_FROM = 1 << 29
# Blocks between two releases of mapped pages.
_BLOCKS_EACH = 64


def prefers_records(documents: Encoded) -> bool:
    """Check whether documents with an index are so many that they are stored as records."""
    sparse = documents.sparse
    arrays = documents.dense, sparse.indices, sparse.values
    return sum(array.nbytes for array in arrays) >= RECORDS_FROM


def write_records(folder: StagingFolder, documents: Encoded) -> None:
    """Replace the arrays of documents in a folder by records; arrays that are mapped remain readable."""
    file = folder.growing_array(RECORDS, np.int32)
    for n_blocks, block in enumerate(blocks(documents)):
        file.append(records_of(block))
        if n_blocks % _BLOCKS_EACH == 0:
            folder.release((documents.dense, *documents.sparse.arrays))
    file.finish()
    for name in Encoded.STORED.keys() - _RECORDED.keys():
        folder.remove(f"documents/{name}.npy")


def stored_arrays(files: Collection[str]) -> list[str]:
    """Return the names of the arrays in ``documents/`` that a bundle with these files must have."""
    return list(_RECORDED if RECORDS in files else Encoded.STORED)


def open_documents(
    path: Path,
    files: Mapping[str, FileEntry],
    arrays: Mapping[str, npt.NDArray[Any]],
    count: int,
    model: Model,
) -> Documents:
    """Open the documents of a bundle. Raises BundleError where an array does not fit the others or the model."""
    if "records" not in arrays:
        encoded = Encoded.from_arrays(arrays, model.n_sparse)
        check_shapes(encoded, count, model.n_dense, model.n_sparse)
        return encoded
    indptr, records = arrays["indptr"], arrays["records"]
    is_usable = indptr.dtype == np.int64 and indptr.shape == (count + 1,)
    entries = int(indptr[-1]) if is_usable else 0
    sizes = {"n": count, "R": count * model.n_dense + 2 * entries}
    for name, reason in misfits(arrays, _RECORDED, sizes):
        raise BundleError(f"documents/{name}.npy: {reason}")
    start = files[RECORDS].bytes - records.nbytes
    return Records(path / RECORDS, start, indptr, arrays["bias"], model.n_dense, model.n_sparse)


def check_documents(documents: Documents) -> None:
    """Check for finite numbers, ascending row pointers and indices. Raises BundleError that names the file."""
    if isinstance(documents, Encoded):
        check_values(documents)
        return
    pointers = "documents/indptr.npy"
    check_ascending(pointers, documents.indptr, documents.n_entries)
    for block in blocks(documents):
        if not (is_finite(block.dense) and is_finite(block.sparse.values)):
            raise BundleError(f"{RECORDS}: not finite")
        check_rows(pointers, block.indptr, RECORDS, block.sparse.indices, documents.width)


def scorer_of(model: Model, documents: Documents) -> Scorer | None:
    """Return what replaces the inner products of a model. Raises BundleError where documents are records."""
    if isinstance(documents, Encoded):
        return model.scorer(documents)
    if model.scorer(documents.slice(0, 0)) is not None:
        raise BundleError(f"{RECORDS}: a model that scores by itself needs arrays")
    return None
