"""Compact a sharded bundle: its live documents up to one position of the log → a new version of it.

1. fix the position and copy the operations up to it, from one state of the log
2. compact every shard with its own operations
3. write set.json, which has the position; without it nobody serves the version

What is finished stays, so a job whose driver, tasks or nodes died goes on with the same position when the same command
is run again. Writes go on meanwhile: shards and routers that open the version replay those after the position.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from fullrank.bundle import Bundle, open_bundle
from fullrank.bundle.manifest import MANIFEST, LogPosition, version_of
from fullrank.errors import BundleError
from fullrank.live import Operation, View
from fullrank.models.unseen import OpenModel
from fullrank.progress import Reporter
from fullrank_fleet.jobs.facts import Facts
from fullrank_fleet.jobs.shard import empty_entry, entry_of, upload
from fullrank_fleet.jobs.tasks import Runner
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.remote.cache import default_cache
from fullrank_fleet.sets import SetManifest, Shard, read_set, sets_of, shard_folder, write_set
from fullrank_fleet.sets.manifest import SET, model_id
from fullrank_fleet.sets.words import SetTitles, SetWords, write_titles, write_words
from fullrank_service.documents.compact import SETTLED_S, NothingToCompact, write_compacted
from fullrank_service.documents.follow import contained, start_of
from fullrank_service.documents.log import Log
from fullrank_service.documents.sqlitelog import LogPlace
from fullrank_service.models.state import STATE, parse_state

# The live documents that a compaction writes into a set, as objects.
#
# The log keeps only the newest operation on a document, and writes go on while shards are compacted. So the
# operations up to one position are copied once, from one state of the log: every shard has the same position,
# whenever its task runs.


# Operations that are read from the log at once.
_READ = 4096
# Lines are kept in memory up to this many bytes, then written.
_BUFFER_BYTES = 128 << 20
OperationFiles = dict[int, list[str]]
"""For each shard that has operations the names of the objects with them, in the order of the log."""


def write_operations(
    log: Log, manifest: SetManifest, since: int, upto: int, folder: Folder
) -> OperationFiles:
    """Copy the operations on a collection to one object or more for each shard.

    Args:
        log: The log, in a snapshot.
        manifest: Of the set; its name is that of the collection.
        since: The number after which it lacks operations.
        upto: The last number of the snapshot.
        folder: For the objects.

    Returns:
        The objects.

    Raises:
        LogError: The log cannot be read.
        RemoteError: An object cannot be written.
    """
    files: OperationFiles = {}
    buffers: dict[int, bytearray] = {}
    buffered, seq = 0, since

    def write() -> None:
        for shard, content in buffers.items():
            names = files.setdefault(shard, [])
            names.append(f"{shard:05}-{len(names):03}.jsonl")
            folder.write(names[-1], bytes(content))
        buffers.clear()

    while seq < upto:
        found, seq = log.after(manifest.name, seq, _READ)
        for one in found:
            fields = None if one.fields is None else orjson.Fragment(one.fields)
            line = orjson.dumps([one.seq, one.id, fields], option=orjson.OPT_APPEND_NEWLINE)
            buffers.setdefault(manifest.owner(one.id), bytearray()).extend(line)
            buffered += len(line)
        if buffered >= _BUFFER_BYTES:
            write()
            buffered = 0
    write()
    return files


def read_operations(folder: Folder, names: Sequence[str]) -> Iterator[Operation]:
    """Yield the operations of some objects. Raises RemoteError."""
    for name in names:
        with folder.open(name) as file:
            for line in file:
                yield Operation(*orjson.loads(line))


# Compact one shard: its bundle and its live documents → a new bundle, by the code of one machine.


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


_JOB = "job.json"


@dataclass(frozen=True)
class CompactedSet:
    """A new version of a sharded bundle.

    Attributes:
        address: Of its folder.
        version: Its name.
        parent: The version that it was made of.
        documents: Their number.
        before: Their number in the parent.
        seq: The last operation in it.
        seconds: Of the whole command.
    """

    address: str
    version: str
    parent: str
    documents: int
    before: int
    seq: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; the names are those of ``fullrank bundles compact`` on one machine."""
        value = asdict(self)
        return {"path": value.pop("address"), **value}


def compact_set(
    address: str, place: LogPlace, *, runner: Runner, reporter: Reporter | None = None
) -> CompactedSet:
    """Write a new version of a sharded bundle, in the same folder, that contains its live documents.

    Args:
        address: Of the version's folder, <root>/<name>/<version>.
        place: Of the log, of all partitions.
        runner: Runs the tasks.
        reporter: Receives progress; by default it prints to stderr.

    Raises:
        NothingToCompact: The log has no operation that the version lacks.
        BundleError: The version or a shard cannot be read, lacks operations that the log no longer has, or would be
            empty.
        LogError: The log cannot be read.
        RemoteError: An object cannot be read or written.

    Example:
        >>> compact_set("s3://b/shop/shop-1", LogPlace.of_database(url), runner=OnRay(ray)).seq
        31007
    """
    began = time.monotonic()
    parent = read_set(Folder(address))
    folder = Folder(address.rstrip("/").rpartition("/")[0])
    log = place.existing()
    if log is None:
        raise NothingToCompact(f"{place.name}: no live document was ever written")
    try:
        job = _Job.open(folder, parent, log)
    finally:
        log.close()
    target = folder / job.version
    plan = CompactPlan(address, str(job.folder), str(target), job.position, job.created)
    shards = len(parent.shards)
    calls = [(plan, number, job.operations.get(number, [])) for number in range(shards)]
    found: dict[int, Shard] = {}
    with reporter or Reporter() as report:
        with report.stage("shards", total=shards) as stage:
            for number, entry in runner.run(compact_shard, calls):
                found[number] = entry
                stage.advance()
        entries = tuple(found[number] for number in range(shards))
        if not any(entry.documents for entry in entries):
            job.folder.remove()
            raise BundleError(
                f"{parent.version}: every document is deleted, so the new version would be empty"
            )
        manifest = _write(target, parent, job, entries)
        job.folder.remove()
        seconds = time.monotonic() - began
        report.log("written", version=job.version, documents=manifest.documents, seconds=seconds)
    documents, before = manifest.documents, parent.documents
    return CompactedSet(
        str(target), job.version, parent.version, documents, before, job.position.seq, seconds
    )


def trim_log(root: Folder, name: str, place: LogPlace, settled_s: float = SETTLED_S) -> int:
    """Remove from the log the operations that every version of a name in a folder contains; return how many.

    Nothing is removed if the active version is not in the folder any more: replicas may still serve it from memory.

    Args:
        root: Folder of sharded bundles.
        name: Of the sharded bundles, and of their collection.
        place: Of the log.
        settled_s: Operations younger than this stay.

    Raises:
        StateDamaged: active.json cannot be read; nothing was removed.
        BundleError: A version cannot be read, so it may lack any operation; nothing was removed.
        LogError: The log cannot be read or written.
        RemoteError: The folder cannot be read.
    """
    active = active_of(root)
    if active is not None and all(
        (root / own / active).read(SET) is None for own in root.folders()
    ):
        return 0
    log = place.existing()
    if log is None:
        return 0
    try:
        least = min((contained(manifest, log) for manifest in sets_of(root / name)), default=0)
        return log.remove(name, least, settled_s) if least else 0
    finally:
        log.close()


def active_of(root: Folder) -> str | None:
    """Return the version that a fleet serves from a folder of sharded bundles; None if none was activated.

    Raises:
        StateDamaged: active.json cannot be read.
        RemoteError: The folder cannot be read.
    """
    content = root.read(STATE)
    return None if content is None else parse_state(content, f"{root}/{STATE}").version


@dataclass(frozen=True, slots=True)
class _Job:
    """A compaction that has fixed its position.

    Attributes:
        folder: For what it needs until it is finished.
        version: That it writes.
        created: UTC time of the version, ISO 8601.
        position: Of the log.
        operations: The objects with the operations of each shard, in folder/operations.
    """

    folder: Folder
    version: str
    created: str
    position: LogPosition
    operations: OperationFiles

    @classmethod
    def open(cls, root: Folder, parent: SetManifest, log: Log) -> _Job:
        """Go on with the compaction of a version, or fix the position of a new one.

        Args:
            root: Folder of all versions of the name.
            parent: Of the version.
            log: The log.

        Raises:
            NothingToCompact, BundleError, LogError, RemoteError: As ``compact_set``.
        """
        key = hashlib.sha256(repr([parent.version, parent.set_id, log.id]).encode()).hexdigest()
        folder = root / f".compact-{key[:16]}"
        content = folder.read(_JOB)
        if content is None:
            # What is left of a job that died before it had fixed its position.
            folder.remove()
            content = _fixed(folder, parent, log)
            folder.write(_JOB, content)
        facts = json.loads(content)
        operations = {int(shard): names for shard, names in facts["operations"].items()}
        position = LogPosition(log.id, facts["seq"])
        return cls(folder, facts["version"], facts["created"], position, operations)


def _fixed(folder: Folder, parent: SetManifest, log: Log) -> bytes:
    """Fix the position of a job, and copy the operations up to it; return the content of its file."""
    since = start_of(parent, log)
    with log.snapshot():
        seq = log.head()
        files = write_operations(log, parent, since, seq, folder / "operations")
    if not files:
        raise NothingToCompact(f"{parent.version}: it contains every operation of the log")
    now = datetime.now(UTC)
    identity = hashlib.sha256(repr([parent.set_id, log.id, seq]).encode()).hexdigest()
    facts = {
        "version": version_of(parent.name, now, identity),
        "created": now.isoformat(timespec="microseconds"),
        "seq": seq,
        "operations": files,
    }
    return json.dumps(facts).encode()


def _write(
    target: Folder, parent: SetManifest, job: _Job, entries: tuple[Shard, ...]
) -> SetManifest:
    """Write words.json and set.json. Raises BundleError."""
    about = [About.read(job.folder, number) or NOTHING for number in range(len(entries))]
    models = {one.model_id for one in about if one.documents}
    if len(models) != 1:
        raise BundleError(f"{parent.version}: its shards have different models")
    facts = Facts.merged([one.facts for one in about])
    documents = sum(entry.documents for entry in entries)
    card = {
        "parent": parent.version,
        "parent_bundle_id": parent.set_id,
        "compacted": {
            "documents": documents,
            "before": parent.documents,
            "seq": job.position.seq,
        },
        "trained": parent.card.get("trained", parent.card),
    }
    manifest = SetManifest(
        parent.name,
        job.version,
        job.created,
        str(models.pop()),
        entries,
        facts.columns,
        frozenset(facts.time_fields),
        facts.has_ads,
        facts.values,
        card,
        job.position,
        write_words(target, SetWords.merged([one.words for one in about])),
        facts.outline,
        write_titles(target, SetTitles.merged([one.titles for one in about])),
    )
    write_set(target, manifest)
    return manifest
