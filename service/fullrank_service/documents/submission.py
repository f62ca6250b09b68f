"""The types of a request to the log and of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Logged(NamedTuple):
    """One stored operation; fields is a JSON object, None for a deletion."""

    seq: int
    id: str
    fields: bytes | None


class Held(NamedTuple):
    """A document of the log and the bytes that it counts against the cap."""

    seq: int
    bytes: int
    collection: str
    id: str


class Write(NamedTuple):
    """A document to write (fields is a JSON object) or to delete (None).

    memory: estimated bytes that its words and vectors will take in a worker, for each loaded version
    """

    id: str
    fields: bytes | None
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Submission:
    """The writes of one request: all of them are stored, or none. Without writes it only looks up its key.

    render       returns the answer, given the number of the first write; the others follow without a gap
    key, digest  if the log has an answer under this key for the same digest, that answer is returned again
    unchanged_since  store nothing if the document of the only write was written after this operation
    seen         this worker has read the log up to this number; a log that ends before has lost operations
    after        the loaded bundle contains all operations up to this number; later ones count against the caps
    """

    collection: str
    writes: Sequence[Write]
    render: Callable[[int], bytes]
    key: str | None = None
    digest: bytes = b""
    after: int = 0
    unchanged_since: int | None = None
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored submission: its answer and its last number; again: it was stored by an earlier request."""

    answer: bytes
    seq: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Caps:
    """How much may wait for compaction in one collection."""

    documents: int = 100_000
    bytes: int = 512 << 20
