"""words.json of a compacted set: what training did not see and some document has.

A router encodes a query once for all shards, so it needs these words of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from heapq import merge
from itertools import groupby

import orjson

from fullrank.bundle import Bundle
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets.checked import read_checked, write_checked
from fullrank_fleet.sets.manifest import SetManifest

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
        """Return those of a compacted bundle."""
        return cls(list(bundle.new_words), sorted(bundle.unseen_features))

    @classmethod
    def merged(cls, shards: Sequence[SetWords]) -> SetWords:
        """Return those of all shards."""
        new = merge(*(words.new for words in shards))
        features = merge(*(words.features for words in shards))
        return cls([word for word, _ in groupby(new)], [number for number, _ in groupby(features)])

    def dump(self) -> bytes:
        """Return the words as JSON."""
        return orjson.dumps(asdict(self))

    @classmethod
    def parse(cls, content: bytes) -> SetWords:
        """Read what ``dump`` returned."""
        return cls(**orjson.loads(content))


def write_words(folder: Folder, words: SetWords) -> str:
    """Write words.json, before set.json, and return its sha256 (hex), which set.json records. Raises RemoteError."""
    return write_checked(folder, WORDS, words.dump())


def read_words(folder: Folder, manifest: SetManifest) -> SetWords:
    """Read the words of a set; a set that was not compacted has none.

    Raises:
        BundleError: words.json is missing or damaged.
        RemoteError: It cannot be read.
    """
    if manifest.words_sha256 is None:
        return SetWords()
    return SetWords.parse(read_checked(folder, WORDS, manifest.words_sha256))
