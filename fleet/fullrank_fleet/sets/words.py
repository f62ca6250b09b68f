"""Beside set.json: titles that complete what people type, and words that training did not see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import orjson

from fullrank.bundle import Bundle
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets.manifest import SetManifest, read_checked
from fullrank_service.completion.usage import MAX_TITLES, title_fields, title_of

# words.json of a compacted set: what training did not see and some document has.
#
# A router encodes a query once for all shards, so it needs these words of all of them.

WORDS = "words.json"


@dataclass(frozen=True, slots=True)
class SetWords:
    """Words of live documents that were compacted into a shard, or into a set.

    Attributes:
        new: The words, ascending, for queries that begin them.
        features: Features of such words that some document has, ascending.
    """

    new: Sequence[str] = ()
    features: Sequence[int] = ()

    @classmethod
    def of(cls, bundle: Bundle) -> SetWords:
        return cls(list(bundle.new_words), sorted(bundle.unseen_features))

    @classmethod
    def merged(cls, shards: Sequence[SetWords]) -> SetWords:
        new = {word for one in shards for word in one.new}
        return cls(sorted(new), sorted({number for one in shards for number in one.features}))

    def dump(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def parse(cls, content: bytes) -> SetWords:
        return cls(**orjson.loads(content))


def read_words(folder: Folder, manifest: SetManifest) -> SetWords:
    """Read the words of a set, if it was compacted. Raises BundleError, RemoteError."""
    if manifest.words_sha256 is None:
        return SetWords()
    return SetWords.parse(read_checked(folder, WORDS, manifest.words_sha256))


# titles.json: titles that complete what people type, so that a router need not ask the shards for them.
#
# A set has as many as the service reads of one bundle (``fullrank_service.completion.usage``): those of all
# documents, or as many of each shard.

TITLES = "titles.json"


@dataclass(frozen=True, slots=True)
class SetTitles:
    """Titles of documents of a shard, or of a set, by ascending id."""

    ids: Sequence[str] = ()
    titles: Sequence[str] = ()

    @classmethod
    def of(cls, bundle: Bundle, shards: int) -> SetTitles:
        """Return those of one of so many shards."""
        store = bundle.documents
        # Shards are about equally large, so this is enough where the set has few documents.
        most = 2 * MAX_TITLES // shards + 1_000
        names = title_fields(bundle)
        pairs = [
            (store.ids[row], title)
            for row in range(min(len(store), most))
            if (title := title_of(store.fields(row), names)) is not None
        ]
        return cls([id for id, _ in pairs], [title for _, title in pairs])

    @classmethod
    def merged(cls, shards: Sequence[SetTitles]) -> SetTitles:
        """Return those of all shards, at most MAX_TITLES."""
        filled = [own for own in shards if own.ids]
        most = MAX_TITLES
        if sum(len(own.ids) for own in filled) > MAX_TITLES:
            most = MAX_TITLES // len(filled)
        pairs = sorted(
            pair for own in filled for pair in list(zip(own.ids, own.titles, strict=True))[:most]
        )
        return cls([id for id, _ in pairs], [title for _, title in pairs])

    def dump(self) -> bytes:
        # Not by orjson, which refuses lone surrogates.
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def parse(cls, content: bytes | str) -> SetTitles:
        return cls(**json.loads(content))


def read_titles(folder: Folder, manifest: SetManifest) -> SetTitles:
    """Read the titles of a set, unless it was written before sets had titles. Raises BundleError, RemoteError."""
    if manifest.titles_sha256 is None:
        return SetTitles()
    return SetTitles.parse(read_checked(folder, TITLES, manifest.titles_sha256))
