"""Count a collection on a cluster: map, reduce, then put the counts of all pieces into rows.

What a task has finished is one object, so a count that was killed goes on where it was. Its folder is named by a hash
of everything that it depends on: the collection, the fields, what is counted, and the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.errors import CollectionError
from fullrank.progress import Reporter
from fullrank.storage.encoding import Int64, Rows
from fullrank.text.features import Counts, Zeros
from fullrank.text.phrases import Phrases
from fullrank_fleet.counting.tally import (
    Kind,
    Plan,
    digest_of,
    pack_words,
    read_arrays,
    tally_name,
    tally_piece,
    unpack_words,
    write_arrays,
)
from fullrank_fleet.jobs.pieces import PIECE_BYTES, Corpus, Piece
from fullrank_fleet.jobs.tasks import Runner, run_all
from fullrank_fleet.remote import Folder
from fullrank_trainer.collection import Collection
from fullrank_trainer.collection.corpus import find_corpus
from fullrank_trainer.lines import find_file

# Merge the words of all pieces, and number them.

VOCABULARY = "vocabulary.npz"


def merge_bucket(plan: Plan, bucket: int) -> None:
    """Merge the words of one bucket: add up in how many documents each occurs.

    Writes the distinct words, ascending, their frequencies, and for each piece the place of each of its words.
    """
    folder, name = Folder(plan.folder), _bucket_name(bucket)
    if folder.has(name):
        return
    pieces: list[list[str]] = []
    frequency: dict[str, int] = {}
    for number in range(plan.pieces):
        with read_arrays(folder, tally_name(number)) as arrays:
            found = unpack_words(arrays[f"words-{bucket}"])
            for word, count in zip(found, arrays[f"frequency-{bucket}"].tolist(), strict=True):
                frequency[word] = frequency.get(word, 0) + count
            pieces.append(found)
    words = sorted(frequency)
    place = {word: i for i, word in enumerate(words)}
    arrays = {
        "words": pack_words(words),
        "frequency": np.fromiter(map(frequency.__getitem__, words), np.int64, len(words)),
    }
    for number, found in enumerate(pieces):
        arrays[f"piece-{number}"] = np.fromiter(map(place.__getitem__, found), np.int32, len(found))
    write_arrays(folder, name, arrays)


def fix_vocabulary(plan: Plan) -> None:
    """Number the words of all buckets, ascending."""
    folder = Folder(plan.folder)
    if folder.has(VOCABULARY):
        return
    buckets, frequencies = [], []
    for bucket in range(plan.buckets):
        with read_arrays(folder, _bucket_name(bucket)) as arrays:
            buckets.append(unpack_words(arrays["words"]))
            frequencies.append(arrays["frequency"])
    words = [word for found in buckets for word in found]
    order = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    numbers = np.empty(len(words), np.int32)
    numbers[order] = np.arange(len(words), dtype=np.int32)
    ends = np.cumsum([len(found) for found in buckets])
    arrays = {
        "words": pack_words([words[i] for i in order.tolist()]),
        "frequency": np.concatenate(frequencies)[order],
    }
    for bucket, part in enumerate(np.split(numbers, ends[:-1])):
        arrays[f"bucket-{bucket}"] = part
    write_arrays(folder, VOCABULARY, arrays)


def number_piece(plan: Plan, number: int) -> None:
    """Write the number, in the vocabulary, of each word of one piece."""
    folder, name = Folder(plan.folder), numbers_name(number)
    if folder.has(name):
        return
    parts = []
    with read_arrays(folder, VOCABULARY) as vocabulary:
        for bucket in range(plan.buckets):
            with read_arrays(folder, _bucket_name(bucket)) as arrays:
                parts.append(vocabulary[f"bucket-{bucket}"][arrays[f"piece-{number}"]])
    with read_arrays(folder, tally_name(number)) as arrays:
        order = arrays["order"]
    numbers = np.empty(len(order), np.int32)
    numbers[order] = np.concatenate(parts)
    write_arrays(folder, name, {"numbers": numbers})


def numbers_name(number: int) -> str:
    return f"numbers-{number:05}.npz"


def _bucket_name(bucket: int) -> str:
    return f"bucket-{bucket:02}.npz"


# Each piece is read once for each bucket of its words.
_MOST_BUCKETS = 16


class DistributedCounting:
    """Counts pieces of a collection wherever a runner runs them (``fullrank_trainer.features.corpus.Counting``).

    Args:
        folder: Of the job; every node must be able to read and write it, and to read the collection.
        piece_bytes: Of plain files; a gzipped file is one piece.
    """

    def __init__(
        self,
        folder: Folder,
        runner: Runner,
        *,
        piece_bytes: int = PIECE_BYTES,
        reporter: Reporter | None = None,
    ) -> None:
        self._folder, self._runner, self._piece_bytes = folder, runner, piece_bytes
        self._reporter = reporter or Reporter(quiet=True)

    def words(
        self, collection: Collection, fields: Sequence[str], zeros: Zeros = np.zeros
    ) -> tuple[Counts, Int64 | None]:
        plan, sizes = self._count(collection, "words", fields)
        words, frequency = _vocabulary(plan)
        of_documents, of_queries = sizes[: plan.documents], sizes[plan.documents :]
        order = collection.corpus_order
        columns = [
            _rows(plan, column, 0, of_documents, order, len(words), zeros)
            for column in range(len(fields))
        ]
        if plan.queries:
            order = np.arange(sum(of_queries))
            columns.append(_rows(plan, 0, plan.documents, of_queries, order, len(words), zeros))
        return Counts(words, columns), frequency

    def compounds(self, collection: Collection, fields: Sequence[str]) -> Sequence[str]:
        plan, _ = self._count(collection, "compounds", fields)
        return _vocabulary(plan)[0]

    def phrases(self, collection: Collection, field: str) -> tuple[Phrases, Rows]:
        plan, sizes = self._count(collection, "phrases", [field])
        known, _ = _vocabulary(plan)
        order = collection.corpus_order
        return Phrases(known), _rows(plan, 0, 0, sizes, order, len(known), np.zeros)

    def _count(
        self, collection: Collection, kind: Kind, fields: Sequence[str]
    ) -> tuple[Plan, list[int]]:
        """Run all tasks of a count; return its plan, and the number of texts of each piece.

        Raises:
            CollectionError: The pieces have other ids than the collection that was read.
        """
        pieces = self._pieces(find_corpus(collection.path))
        documents = len(pieces)
        file = find_file(collection.path, "queries.jsonl")
        if kind == "words" and file is not None:
            pieces += self._pieces(file)
        key = [collection.fingerprint, kind, list(fields), pieces]
        folder = self._folder / blake2b(repr(key).encode(), digest_size=16).hexdigest()
        queries, buckets = len(pieces) - documents, min(len(pieces), _MOST_BUCKETS)
        plan = Plan(str(folder), kind, tuple(fields), documents, queries, buckets)
        numbers = range(len(pieces))
        tallied = self._run(kind, tally_piece, [(plan, i, pieces[i]) for i in numbers])
        ids = collection.document_ids
        in_order = [ids[row] for row in collection.corpus_order.tolist()]
        _check_ids(in_order, pieces[:documents], tallied[:documents])
        asked = [] if collection.queries is None else collection.query_ids
        if plan.queries:
            _check_ids(asked, pieces[documents:], tallied[documents:])
        self._run(f"{kind}: merge", merge_bucket, [(plan, i) for i in range(buckets)])
        self._run(f"{kind}: vocabulary", fix_vocabulary, [(plan,)])
        if kind != "compounds":
            self._run(f"{kind}: number", number_piece, [(plan, i) for i in numbers])
        return plan, [texts for texts, _ in tallied]

    def _pieces(self, file: Path) -> list[Piece]:
        return Corpus.at(str(file.resolve())).pieces(self._piece_bytes)

    def _run(
        self, name: str, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        return run_all(self._runner, task, calls, self._reporter, name)


def _vocabulary(plan: Plan) -> tuple[list[str], Int64]:
    """Return all words, ascending, and in how many documents each occurs."""
    with read_arrays(Folder(plan.folder), VOCABULARY) as arrays:
        return unpack_words(arrays["words"]), arrays["frequency"]


def _check_ids(
    expected: Sequence[str], pieces: Sequence[Piece], tallied: Sequence[tuple[int, str]]
) -> None:
    """Raise CollectionError unless pieces have the ids that the driver read, in their order."""
    first = 0
    for piece, (texts, digest) in zip(pieces, tallied, strict=True):
        is_last = piece == pieces[-1]
        ids = expected[first:] if is_last else expected[first : first + texts]
        if digest_of(ids) != digest:
            raise CollectionError(f"{piece.address}: changed while it was read")
        first += texts


def _rows(
    plan: Plan,
    column: int,
    first: int,
    sizes: Sequence[int],
    order: Int64,
    width: int,
    zeros: Zeros,
) -> Rows:
    """Put one matrix together from a column of its pieces, which begin at ``first`` and have so many texts each.

    Args:
        order: The row of each text, in the order of the pieces.
        width: Number of all words.
    """
    folder = Folder(plan.folder)
    rows_of = np.split(order, np.cumsum(sizes)[:-1])
    indptr = zeros((len(order) + 1,), np.int64)
    for number, rows in enumerate(rows_of, first):
        with read_arrays(folder, tally_name(number)) as arrays:
            indptr[rows + 1] = np.diff(arrays[f"indptr-{column}"])
    np.cumsum(indptr, out=indptr)
    indices = zeros((int(indptr[-1]),), np.int32)
    values = zeros((int(indptr[-1]),), np.float32)
    for number, rows in enumerate(rows_of, first):
        with read_arrays(folder, numbers_name(number)) as arrays:
            numbers = arrays["numbers"]
        with read_arrays(folder, tally_name(number)) as arrays:
            own = arrays[f"indptr-{column}"]
            place = np.arange(own[-1]) + np.repeat(indptr[rows] - own[:-1], np.diff(own))
            # Words of a piece ascend as those of the vocabulary do, so entries stay ascending.
            indices[place] = numbers[arrays[f"indices-{column}"]]
            values[place] = arrays[f"values-{column}"]
    return Rows(indptr, indices, values, width)
