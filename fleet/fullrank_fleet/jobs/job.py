"""What the jobs that write a set share: their folder, what they keep of each shard, and the set.json at the end.

Everything that a task finishes is committed by the object that it writes last, so a job whose driver, tasks or nodes
died goes on where it was when the same command is run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fullrank.bundle import Bundle, is_of_model
from fullrank.bundle.manifest import MANIFEST, LogPosition, parse_manifest, version_of
from fullrank.errors import BundleError
from fullrank_fleet.jobs.facts import Facts
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets.manifest import (
    SetManifest,
    Shard,
    model_id,
    shard_folder,
    write_checked,
    write_set,
)
from fullrank_fleet.sets.words import TITLES, WORDS, SetTitles, SetWords

_JOB = "job.json"
# Lines are kept in memory up to this many bytes, then written.
_BUFFER_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """A job that has begun, as its tasks get it.

    Attributes:
        name: Of the set.
        folder: Its working folder, removed when it is finished.
        target: Folder of the version that it writes.
        shards: Their number.
        created: UTC time of the version and of all its bundles, so that a task that runs again writes the same.
        facts: The other facts that ``begin`` returned.
    """

    name: str
    folder: Folder
    target: Folder
    shards: int
    created: datetime
    facts: Mapping[str, Any]

    @classmethod
    def open(
        cls,
        folder: Folder,
        sets: Folder,
        name: str,
        shards: int,
        begin: Callable[[], tuple[str, dict[str, Any]]],
    ) -> Job:
        """Go on with the job of a folder, or begin it.

        Args:
            sets: Folder of all versions of the name.
            begin: Prepares a new job; returns the text that its version hashes, and facts to keep.

        Raises:
            RemoteError: An object cannot be read or written; or as ``begin``.
        """
        content = folder.read(_JOB)
        if content is None:
            # Remove what a job left that died before it wrote job.json.
            folder.remove()
            identity, facts = begin()
            now = datetime.now(UTC)
            facts["version"] = version_of(name, now, identity)
            facts["created"] = now.isoformat(timespec="microseconds")
            content = json.dumps(facts).encode()
            folder.write(_JOB, content)
        facts = json.loads(content)
        target, created = sets / facts.pop("version"), datetime.fromisoformat(facts.pop("created"))
        return cls(name, folder, target, shards, created, facts)

    @property
    def version(self) -> str:
        return self.target.address.rpartition("/")[2]


class SortedLines:
    """Lines sorted by shard, written to one object or more for each; ``files`` has their names, in their order."""

    def __init__(self, folder: Folder, prefix: str = "") -> None:
        self._folder, self._prefix = folder, prefix
        self.files: dict[int, list[str]] = {}
        self._buffers: dict[int, bytearray] = {}
        self._buffered = 0

    def add(self, shard: int, line: bytes) -> None:
        """Add a line, with its line end. Raises RemoteError."""
        self._buffers.setdefault(shard, bytearray()).extend(line)
        self._buffered += len(line)
        if self._buffered >= _BUFFER_BYTES:
            self.write()

    def write(self) -> None:
        for shard, content in self._buffers.items():
            names = self.files.setdefault(shard, [])
            names.append(f"{self._prefix}{shard:05}-{len(names):03}.jsonl")
            self._folder.write(names[-1], bytes(content))
        self._buffers.clear()
        self._buffered = 0


@dataclass(frozen=True, slots=True)
class About:
    """What a job keeps of a shard until set.json is written; without documents it has no model."""

    documents: int
    model_id: str | None
    facts: Facts
    words: SetWords
    titles: SetTitles

    @classmethod
    def read(cls, folder: Folder, number: int) -> About | None:
        content = (folder / "about").read(_name(number))
        if content is None:
            return None
        documents, own, facts, words, titles = json.loads(content)
        return cls(
            documents, own, Facts.parse(facts), SetWords.parse(words), SetTitles.parse(titles)
        )

    def write(self, folder: Folder, number: int) -> None:
        values = [self.documents, self.model_id, self.facts.dump().decode()]
        content = json.dumps([*values, self.words.dump().decode(), self.titles.dump().decode()])
        (folder / "about").write(_name(number), content.encode())


NOTHING = About(0, None, Facts({}, (), False, {}), SetWords(), SetTitles())
"""About a shard without documents."""


def committed(job: Job, number: int, partitions: range) -> Shard | None:
    """Return what set.json records of a shard that is finished; None if it is not. Raises RemoteError."""
    about = About.read(job.folder, number)
    if about is None:
        return None
    if not about.documents:
        return empty_entry(partitions)
    manifest = (job.target / shard_folder(number)).read(MANIFEST)
    return None if manifest is None else _entry(partitions, manifest, about.documents)


def commit(job: Job, number: int, partitions: range, bundle: Bundle) -> Shard:
    """Commit a shard, whose bundle is on this machine; return what set.json records of it.

    Its manifest is uploaded last, so a shard that has one is complete. The set has the files of the model once.
    """
    count, titles = len(bundle.documents), SetTitles.of(bundle, job.shards)
    own = model_id(bundle.manifest)
    About(count, own, Facts.of(bundle), SetWords.of(bundle), titles).write(job.folder, number)
    folder, content = job.target / shard_folder(number), (bundle.path / MANIFEST).read_bytes()
    for name in parse_manifest(content.decode()).files:
        if not is_of_model(name):
            folder.upload(bundle.path / name, name)
        elif not job.target.has(name):
            job.target.upload(bundle.path / name, name)
    folder.write(MANIFEST, content)
    return _entry(partitions, content, count)


def empty_entry(partitions: range) -> Shard:
    return Shard(partitions.start, partitions.stop, None, None, 0, 0)


def finish(
    job: Job, entries: Sequence[Shard], card: Mapping[str, Any], position: LogPosition | None = None
) -> None:
    """Write the set of finished shards, and remove the folder of the job.

    Args:
        position: Which live documents it contains; None: it was not compacted, so it has no words of them.

    Raises:
        BundleError: The shards have different models.
    """
    about = [About.read(job.folder, number) or NOTHING for number in range(len(entries))]
    models = {one.model_id for one in about if one.documents}
    if len(models) != 1:
        raise BundleError(f"{job.version}: its shards have different models")
    facts = Facts.merged([one.facts for one in about])
    words = SetWords.merged([one.words for one in about])
    titles = SetTitles.merged([one.titles for one in about])
    manifest = SetManifest(
        job.name,
        job.version,
        job.created.isoformat(timespec="microseconds"),
        str(models.pop()),
        tuple(entries),
        facts.columns,
        frozenset(facts.time_fields),
        facts.has_ads,
        facts.values,
        card,
        position,
        None if position is None else write_checked(job.target, WORDS, words.dump()),
        facts.outline,
        write_checked(job.target, TITLES, titles.dump()),
    )
    write_set(job.target, manifest)
    job.folder.remove()


def _entry(partitions: range, content: bytes, documents: int) -> Shard:
    manifest = parse_manifest(content.decode())
    return Shard(
        partitions.start,
        partitions.stop,
        manifest.bundle_id,
        hashlib.sha256(content).hexdigest(),
        documents,
        manifest.total_bytes,
    )


def _name(number: int) -> str:
    return f"{shard_folder(number)}.json"
