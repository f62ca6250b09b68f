"""What a router and the shards send each other: pickled dataclasses, whose arrays travel as their bytes.

Unpickling runs what the sender wants, so shards and routers must share a private network with nobody else.

    Ask(version, generation, question)  →  Answer(version, content) or NotLoaded or Refused

    Learn     what the router must know of the documents    Learned
    Read      the stored fields of a document               bytes, JSON; None without such a document
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Learn:
    """Asks what a router must know of the documents of a shard before it can ask for more."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a router must know of the documents of a shard.

    Attributes:
        bundle_id: Of the shard's bundle.
        documents: Their number.
        times: Text fields with a time among their values; such a field is sorted and counted by time.
        has_ads: Whether a document has an ad.
    """

    bundle_id: str
    documents: int
    times: frozenset[str]
    has_ads: bool


@dataclass(frozen=True, slots=True)
class Read:
    """Asks for the stored fields of a document."""

    id: str


Question = Learn | Read


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a shard.

    Attributes:
        version: Of the set that must answer.
        generation: Of the request, for logs: routers that switch keep asking for the version before a while.
        question: The question.
    """

    version: str
    generation: int
    question: Question


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a shard.

    Attributes:
        version: Of the set that answers.
        content: As the question describes.
    """

    version: str
    content: Any


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """The shard does not have the version.

    Attributes:
        versions: Those that it has.
    """

    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The question does not fit the documents, as FilterError says."""

    path: str
    reason: str


Reply = Answer | NotLoaded | Refused


def pack(message: Ask | Reply) -> bytes:
    """Return a message as bytes."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def unpack_ask(payload: bytes) -> Ask:
    """Return the question of a router that is trusted."""
    message: Ask = pickle.loads(payload)
    return message


def unpack_reply(payload: bytes) -> Reply:
    """Return the answer of a shard that is trusted."""
    message: Reply = pickle.loads(payload)
    return message
