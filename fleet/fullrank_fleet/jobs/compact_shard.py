"""Compact one shard: its bundle and its live documents → a new bundle, by the code of one machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from fullrank.bundle import Bundle, open_bundle
from fullrank.bundle.manifest import MANIFEST, LogPosition
from fullrank.errors import BundleError
from fullrank.live import View
from fullrank.models.unseen import OpenModel
from fullrank_fleet.jobs.commit import empty_entry, entry_of, upload
from fullrank_fleet.jobs.facts import Facts
from fullrank_fleet.jobs.operations import read_operations
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.remote.cache import default_cache
from fullrank_fleet.sets import Shard, read_set, shard_folder
from fullrank_fleet.sets.manifest import model_id
from fullrank_fleet.sets.titles import SetTitles
from fullrank_fleet.sets.words import SetWords
from fullrank_service.documents.compact import write_compacted

# Operations applied in one step.
_STEP = 4096


@dataclass(frozen=True, slots=True)
class CompactPlan:
    """What a task needs to compact any shard of a job.

    Attributes:
        parent: Address of the sharded bundle that is compacted.
        folder: Address of the folder of the job.
        target: Address of the new sharded bundle.
        position: Up to which it contains the log.
        created: UTC time of all its bundles, ISO 8601, so that a task that runs again writes the same.
    """

    parent: str
    folder: str
    target: str
    position: LogPosition
    created: str


@dataclass(frozen=True, slots=True)
class About:
    """What a job keeps of a shard until set.json is written.

    Attributes:
        documents: Their number.
        model_id: Of its model; None: it has no documents.
        facts: About the documents.
        words: Of the documents.
        titles: Of the documents.
    """

    documents: int
    model_id: str | None
    facts: Facts
    words: SetWords
    titles: SetTitles

    @classmethod
    def of(cls, bundle: Bundle, shards: int) -> About:
        """Return that of a compacted bundle; shards: their number in the set."""
        own, titles = model_id(bundle.manifest), SetTitles.of(bundle, shards)
        return cls(len(bundle.documents), own, Facts.of(bundle), SetWords.of(bundle), titles)

    def write(self, folder: Folder, number: int) -> None:
        """Write it, before the manifest of the shard; folder: of the job. Raises RemoteError."""
        values = [self.documents, self.model_id, self.facts.dump().decode()]
        content = json.dumps([*values, self.words.dump().decode(), self.titles.dump().decode()])
        (folder / "about").write(_name(number), content.encode())

    @classmethod
    def read(cls, folder: Folder, number: int) -> About | None:
        """Read what ``write`` wrote; None if it was not. Raises RemoteError."""
        content = (folder / "about").read(_name(number))
        if content is None:
            return None
        documents, own, facts, words, titles = json.loads(content)
        return cls(
            documents, own, Facts.parse(facts), SetWords.parse(words), SetTitles.parse(titles)
        )


NOTHING = About(0, None, Facts({}, (), False, {}), SetWords(), SetTitles())
"""About a shard without documents."""


def compact_shard(plan: CompactPlan, number: int, operations: Sequence[str]) -> Shard:
    """Compact one shard, unless it is committed already.

    A shard without documents stays without: the live documents of its partitions are in the shard that owns them.

    Args:
        plan: Of the job.
        number: Of the shard.
        operations: The objects with its operations.

    Returns:
        Its entry in set.json. What that records of the documents is in the folder of the job (``About.read``).

    Raises:
        BundleError: The shard cannot be read.
        DocumentRefused: Its model takes no live documents.
        RemoteError: An object cannot be read or written.
    """
    entry = read_set(Folder(plan.parent)).shards[number]
    folder, target = Folder(plan.folder), Folder(plan.target) / shard_folder(number)
    partitions = range(entry.first, entry.end)
    about, committed = About.read(folder, number), target.read(MANIFEST)
    if about is None or (about.documents and committed is None):
        about, committed = _compact(plan, number, entry, operations)
    if not about.documents or committed is None:
        return empty_entry(partitions)
    return entry_of(partitions, committed)


def _compact(
    plan: CompactPlan, number: int, entry: Shard, operations: Sequence[str]
) -> tuple[About, bytes | None]:
    """Compact a shard and commit it; return what ``About`` has of it, and its manifest."""
    if not entry.documents:
        return _empty(plan, number)
    with BundleCache(default_cache()).scratch() as scratch:
        bundle = open_bundle(_fetched(Folder(plan.parent) / shard_folder(number), entry, scratch))
        if not operations and isinstance(bundle.model, OpenModel):
            # The same bytes, so replicas that have the parent download nothing.
            return _commit(plan, number, bundle)
        view = View.of(bundle)
        later = read_operations(Folder(plan.folder) / "operations", operations)
        while step := list(islice(later, _STEP)):
            view = view.apply(step)
        if not len(view):
            return _empty(plan, number)
        created = datetime.fromisoformat(plan.created)
        path = write_compacted(view, plan.position, scratch / "compacted", created=created)
        return _commit(plan, number, open_bundle(path, verify=False))


def _empty(plan: CompactPlan, number: int) -> tuple[About, None]:
    NOTHING.write(Folder(plan.folder), number)
    return NOTHING, None


def _commit(plan: CompactPlan, number: int, bundle: Bundle) -> tuple[About, bytes]:
    about = About.of(bundle, len(read_set(Folder(plan.parent)).shards))
    about.write(Folder(plan.folder), number)
    return about, upload(bundle.path, Folder(plan.target) / shard_folder(number))


def _fetched(source: Folder, entry: Shard, scratch: Path) -> Path:
    """Return a folder of this machine with the bundle of a shard, downloaded to scratch. Raises BundleError."""
    assert entry.manifest_sha256 is not None
    if source.local is None:
        return BundleCache(scratch / "parent").fetch(source, entry.manifest_sha256)
    content = source.read(MANIFEST)
    if content is None or hashlib.sha256(content).hexdigest() != entry.manifest_sha256:
        raise BundleError(f"{source}/{MANIFEST}: is missing, or is not the one that set.json names")
    return source.local


def _name(number: int) -> str:
    return f"{shard_folder(number)}.json"
