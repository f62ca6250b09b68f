"""Count one piece of a collection."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from fullrank.errors import CollectionError
from fullrank.kernels.arrays import UInt8
from fullrank.search.rerank.facts import word_number
from fullrank.storage.documents import field_text
from fullrank.text.compounds import count_compounds
from fullrank.text.features import Counts, count_corpus
from fullrank_fleet.jobs.pieces import Piece
from fullrank_fleet.remote import Folder, RemoteError
from fullrank_fleet.remote.folder import write_as_file
from fullrank_trainer.collection.corpus import Anchors, read_anchors, to_document
from fullrank_trainer.collection.store import query_text
from fullrank_trainer.features.corpus import phrases_in
from fullrank_trainer.lines import Lines, ReadReport, read_objects

# Arrays and words of one object.

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

# Of numpy and zipfile for a damaged object.
_UNREADABLE = (BadZipFile, EOFError, KeyError, OSError, ValueError, zlib.error)


def write_arrays(folder: Folder, name: str, arrays: dict[str, Any]) -> None:
    """Write an object of arrays; it appears whole. Raises RemoteError."""
    with write_as_file(folder, name) as path, path.open("wb") as file:
        np.savez(file, **arrays)


@contextmanager
def read_arrays(folder: Folder, name: str) -> Iterator[Arrays]:
    """Yield the arrays of an object; only those that are asked for are read, inside the block. Raises RemoteError."""
    with folder.open(name) as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                yield arrays
        except _UNREADABLE as error:
            raise RemoteError(f"{folder}/{name}: cannot be read: {error}") from error


def pack_words(words: Sequence[str]) -> UInt8:
    """Return words as one array of bytes; no word contains a line end."""
    return np.frombuffer("\n".join(words).encode("utf-8", "surrogatepass"), np.uint8)


def unpack_words(packed: npt.NDArray[Any]) -> list[str]:
    return packed.tobytes().decode("utf-8", "surrogatepass").split("\n") if len(packed) else []


Kind = Literal["words", "compounds", "phrases"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is counted.

    Attributes:
        folder: Address of the folder of the count, whose name depends on all else.
        documents: Number of pieces of the corpus.
        queries: Number of pieces of the queries that are counted as well; they come after those of the corpus.
        buckets: That words are cut into.
    """

    folder: str
    kind: Kind
    fields: tuple[str, ...]
    documents: int
    queries: int
    buckets: int

    @property
    def pieces(self) -> int:
        return self.documents + self.queries


def tally_name(number: int) -> str:
    return f"tally-{number:05}.npz"


def tally_piece(plan: Plan, number: int, piece: Piece) -> tuple[int, str]:
    """Write the counts of one piece, unless they are there already: those of ``count_corpus``, cut by hash into
    buckets.

    Returns:
        The number of its documents or queries, and a hash of their ids.
    """
    folder, name = Folder(plan.folder), tally_name(number)
    if not folder.has(name):
        _write(plan, number, piece)
    with read_arrays(folder, name) as arrays:
        return int(arrays["texts"]), str(arrays["ids"])


def digest_of(ids: Sequence[str]) -> str:
    found = blake2b(digest_size=16)
    for id in ids:
        found.update(id.encode("utf-8", "surrogatepass") + b"\n")
    return found.hexdigest()


def _write(plan: Plan, number: int, piece: Piece) -> None:
    are_queries = number >= plan.documents
    ids, columns = _texts(piece, None if are_queries else plan.fields)
    counts = _count(plan.kind, columns)
    # Queries have words that documents may have, but documents alone make a word frequent.
    frequency = counts.document_frequency()
    if are_queries:
        frequency = np.zeros_like(frequency)
    buckets = np.array([word_number(word) % plan.buckets for word in counts.words], np.int64)
    order = np.argsort(buckets, kind="stable")
    arrays = {"texts": np.array(len(ids)), "ids": np.array(digest_of(ids)), "order": order}
    for bucket in range(plan.buckets):
        chosen = order[buckets[order] == bucket]
        arrays[f"words-{bucket}"] = pack_words([counts.words[i] for i in chosen.tolist()])
        arrays[f"frequency-{bucket}"] = frequency[chosen]
    if plan.kind != "compounds":  # Their matrix is never read.
        for column, rows in enumerate(counts.columns):
            arrays[f"indptr-{column}"] = rows.indptr
            arrays[f"indices-{column}"] = rows.indices
            arrays[f"values-{column}"] = rows.values
    write_arrays(Folder(plan.folder), tally_name(number), arrays)


def _count(kind: Kind, columns: Sequence[Sequence[str]]) -> Counts:
    if kind == "words":
        return count_corpus(columns)
    if kind == "compounds":
        return count_corpus(columns, counter=count_compounds)
    phrases, rows = phrases_in(columns[0])
    return Counts(list(phrases.phrases), [rows])


def _texts(piece: Piece, fields: Sequence[str] | None) -> tuple[list[str], list[list[str]]]:
    """Return the ids of a piece, and the texts of each field; without fields, those of queries."""
    lines = _PieceLines(piece)
    ids: list[str] = []
    columns: list[list[str]] = [[] for _ in fields or ("query",)]
    anchors = Anchors() if fields is None else read_anchors(Path(piece.address).parent, [])
    try:
        for _, item in read_objects(lines, ReadReport()):
            ids.append(item["_id"])
            if fields is None:
                columns[0].append(query_text(item))
                continue
            [document] = anchors.add_to([to_document(item)])
            for column, field in zip(columns, fields, strict=True):
                column.append(field_text(document.fields, [field]))
    except KeyError:
        # The driver has checked every line.
        raise CollectionError(f"{piece.address}: changed while it was read") from None
    return ids, columns


class _PieceLines(Lines):
    """The lines of a piece, numbered by the byte where each begins."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(Path(piece.address))
        self._piece = piece

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self._piece.lines()

    def error(self, number: int, message: str) -> CollectionError:
        return CollectionError(f"{self._piece.address}, byte {number}: {message}")
