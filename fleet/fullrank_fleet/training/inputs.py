"""The matrices and clicks that slices train on, as files that every machine of the cluster can read.

They are pickled with their arrays apart: those lie one after another in a file that a task maps into memory. A
pickle can run code, so only the cluster may be able to write the folder. The same holds for the ports of Ray.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from fullrank.models.linear import DenseSide
from fullrank.storage.encoding import Int64, Rows
from fullrank.text.features import Vocabulary
from fullrank.text.phrases import Phrases
from fullrank_fleet.partitions import partition_of, runs_of, shard_of
from fullrank_fleet.remote import Folder
from fullrank_fleet.remote.folder import write_as_file
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.composition import Composition
from fullrank_trainer.features.matrices import Features

# Cut the training queries into logical slices: their number is a setting and does not depend on the machines.


def cut_queries(queries: Int64, ids: Sequence[str], slices: int) -> list[Int64]:
    """Cut queries into 1 to 4,096 slices by the hash of their ids, so that all clicks of a query are in one slice.

    Args:
        queries: Their rows, ascending.
        ids: The id of each row.

    Returns:
        The rows of each slice, ascending; a slice may be empty.
    """
    runs = runs_of(slices)
    owners = np.array([shard_of(partition_of(ids[row]), runs) for row in queries.tolist()], int)
    return [queries[owners == number] for number in range(slices)]


def part_of(queries: Int64, part: int, parts: int, seed: Sequence[int]) -> Int64:
    """Return the queries of one part of an epoch, ascending; the parts are random and differ by a query at most."""
    if parts == 1:
        return queries
    return np.sort(np.random.default_rng(seed).permutation(queries)[part::parts])


_FEATURES, _ARRAYS = "features.pickle", "arrays.bin"
_ALIGNMENT = 64
# Smaller arrays stay in the pickle.
_LEAST_BYTES = 1 << 12


def write_inputs(features: Features, slices: Sequence[Int64], root: Folder) -> Folder:
    """Write what slices train on, unless it is there already, to a folder that is named by a hash of the content."""
    buffers: list[memoryview] = []

    def put_apart(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LEAST_BYTES:
            return True
        buffers.append(raw)
        return False

    content = pickle.dumps(_for_steps(features), protocol=5, buffer_callback=put_apart)
    pairs = [pickle.dumps(features.pairs.of_queries(queries)) for queries in slices]
    digest = blake2b(digest_size=16)
    for part in (content, *pairs):
        digest.update(part)
    for buffer in buffers:
        digest.update(buffer)
    folder = root / digest.hexdigest()
    if _FEATURES in folder.files():
        return folder
    with write_as_file(folder, _ARRAYS) as path, path.open("wb") as file:
        for buffer in buffers:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(buffer)
    for number, part in enumerate(pairs):
        folder.write(_pairs_name(number), part)
    sizes = [buffer.nbytes for buffer in buffers]
    folder.write(_FEATURES, pickle.dumps((sizes, content)))  # The last: it commits the others.
    return folder


def read_inputs(folder: Folder, number: int) -> Features:
    """Return the features of one slice; matrices stay in their file until they are read."""
    here = folder.local or _fetched(folder)
    sizes, content = pickle.loads((here / _FEATURES).read_bytes())
    # Numba compiles kernels for arrays that can be written; what is written would stay in this process.
    with (here / _ARRAYS).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapped = memoryview(
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else b""
        )
    buffers, position = [], 0
    for size in sizes:
        position += -position % _ALIGNMENT
        buffers.append(mapped[position : position + size])
        position += size
    features: Features = pickle.loads(content, buffers=buffers)
    pairs: Pairs = pickle.loads(folder.read(_pairs_name(number)) or b"")
    return replace(features, pairs=pairs)


def _fetched(folder: Folder) -> Path:
    """Return a copy of the matrices on this machine, which its tasks share."""
    path = Path(tempfile.gettempdir(), "fullrank-slices", folder.address.rpartition("/")[2])
    path.mkdir(parents=True, exist_ok=True)
    here = Folder(str(path))
    for name in (_ARRAYS, _FEATURES):
        if not (path / name).exists():
            with write_as_file(here, name) as file:
                folder.download(name, file)
    return path


def _for_steps(features: Features) -> Features:
    """Return features without what steps do not read: words, counts of texts, and judgements, which slices have."""
    nothing = Rows.empty(0, 0)
    side, floats = features.model.sparse, np.zeros(0, np.float32)
    sparse = replace(
        side,
        words=Vocabulary((), len(side.words)),
        phrases=Phrases(()),
        D=floats,
        P=floats,
        compounds=(),
        variants=(),
        form_tables=None,
    )
    dense = DenseSide(Vocabulary(()), floats, floats)
    return replace(
        features,
        model=replace(features.model, query=dense, document=dense, sparse=sparse),
        query_composition=Composition((), None),
        document_composition=Composition((), None),
        document_phrases=Rows.empty(features.documents, 0),
        query_ids=(),
        words=[],
        field_counts=[nothing] * len(features.field_counts),
        query_counts=nothing,
        query_sequences=nothing,
        phrase_idf=floats,
        pairs=Pairs.from_lists({}),
    )


def _pairs_name(number: int) -> str:
    return f"slice-{number:05}.pickle"
