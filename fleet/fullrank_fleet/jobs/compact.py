"""Compact a sharded bundle: its live documents up to one position of the log → a new version of it.

1. fix the position and copy the operations up to it, from one state of the log
2. compact every shard with its own operations
3. write set.json, which has the position; without it nobody serves the version

What is finished stays, so a job whose driver, tasks or nodes died goes on with the same position when the same command
is run again. Writes go on meanwhile: shards and routers that open the version replay those after the position.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import orjson

from fullrank.bundle import open_bundle
from fullrank.bundle.manifest import LogPosition
from fullrank.errors import BundleError
from fullrank.live import Operation, View
from fullrank.models.unseen import OpenModel
from fullrank.progress import Reporter
from fullrank_fleet.jobs.job import (
    NOTHING,
    Job,
    SortedLines,
    commit,
    committed,
    empty_entry,
    finish,
)
from fullrank_fleet.jobs.tasks import Runner, run_all
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.remote.cache import default_cache
from fullrank_fleet.sets.manifest import SET, SetManifest, Shard, fetch_shard, read_set, sets_of
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
OperationFiles = dict[int, list[str]]
"""For each shard that has operations the names of the objects with them, in the order of the log."""


def write_operations(
    log: Log, manifest: SetManifest, since: int, upto: int, folder: Folder
) -> OperationFiles:
    """Copy the operations up to the last one of a snapshot of the log to objects for each shard."""
    lines, seq = SortedLines(folder), since
    while seq < upto:
        found, seq = log.after(manifest.name, seq, _READ)
        for one in found:
            fields = None if one.fields is None else orjson.Fragment(one.fields)
            line = orjson.dumps([one.seq, one.id, fields], option=orjson.OPT_APPEND_NEWLINE)
            lines.add(manifest.owner(one.id), line)
    lines.write()
    return lines.files


def read_operations(folder: Folder, names: Sequence[str]) -> Iterator[Operation]:
    for name in names:
        with folder.open(name) as file:
            for line in file:
                yield Operation(*orjson.loads(line))


# Compact one shard: its bundle and its live documents → a new bundle, by the code of one machine.


# Operations applied in one step.
_STEP = 4096


def compact_shard(
    job: Job, number: int, operations: Sequence[str], parent: str, position: LogPosition
) -> Shard:
    """Compact one shard with the operations of some objects, unless it is committed already.

    A shard without documents stays without: the live documents of its partitions are in the shard that owns them.
    """
    folder = Folder(parent)
    manifest = read_set(folder)
    entry = manifest.shards[number]
    partitions = range(entry.first, entry.end)
    found = committed(job, number, partitions)
    if found is not None:
        return found
    with BundleCache(default_cache()).scratch() as scratch:
        if entry.documents:
            copies = BundleCache(scratch / "parent")
            bundle = open_bundle(fetch_shard(copies, folder, manifest, number))
            if not operations and isinstance(bundle.model, OpenModel):
                # The same bytes, so replicas that have the parent download nothing.
                return commit(job, number, partitions, bundle)
            view = View.of(bundle)
            later = read_operations(job.folder / "operations", operations)
            while step := list(islice(later, _STEP)):
                view = view.apply(step)
            if len(view):
                out = scratch / "compacted"
                path = write_compacted(view, position, out, created=job.created)
                return commit(job, number, partitions, open_bundle(path, verify=False))
    NOTHING.write(job.folder, number)
    return empty_entry(partitions)


@dataclass(frozen=True)
class CompactedSet:
    """A new version of a sharded bundle; seq: the last operation in it, before: number of documents in the parent."""

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
        reporter: By default it prints to stderr.

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
        key = hashlib.sha256(repr([parent.version, parent.set_id, log.id]).encode()).hexdigest()
        own, shards = folder / f".compact-{key[:16]}", len(parent.shards)
        job = Job.open(own, folder, parent.name, shards, lambda: _fixed(own, parent, log))
        position = LogPosition(log.id, job.facts["seq"])
    finally:
        log.close()
    operations, light = job.facts["operations"], replace(job, facts={})
    calls = [(light, n, operations.get(str(n), []), address, position) for n in range(shards)]
    with reporter or Reporter() as report:
        entries = run_all(runner, compact_shard, calls, report, "shards")
        documents, before = sum(entry.documents for entry in entries), parent.documents
        if not documents:
            job.folder.remove()
            raise BundleError(
                f"{parent.version}: every document is deleted, so the new version would be empty"
            )
        card = {
            "parent": parent.version,
            "parent_bundle_id": parent.set_id,
            "compacted": {"documents": documents, "before": before, "seq": position.seq},
            "trained": parent.card.get("trained", parent.card),
        }
        finish(job, entries, card, position)
        seconds = time.monotonic() - began
        report.log("written", version=job.version, documents=documents, seconds=seconds)
    return CompactedSet(
        str(job.target), job.version, parent.version, documents, before, position.seq, seconds
    )


def trim_log(root: Folder, name: str, place: LogPlace, settled_s: float = SETTLED_S) -> int:
    """Remove from the log the operations that every version of a name in a folder contains; return how many.

    Nothing is removed if the active version is not in the folder any more: replicas may still serve it from memory.
    Operations younger than ``settled_s`` stay.

    Raises:
        StateDamaged, BundleError: active.json or a version cannot be read; nothing was removed.
        LogError: The log cannot be read or written.
        RemoteError: The folder cannot be read.
    """
    active = active_of(root, name)
    if active is not None and (root / name / active).read(SET) is None:
        return 0
    log = place.existing()
    if log is None:
        return 0
    try:
        least = min((contained(manifest, log) for manifest in sets_of(root / name)), default=0)
        return log.remove(name, least, settled_s) if least else 0
    finally:
        log.close()


def active_of(root: Folder, name: str) -> str | None:
    """Return the version of a name that a fleet serves from a folder of sharded bundles; None if it serves none.

    Raises:
        StateDamaged, RemoteError: active.json cannot be read.
    """
    content = root.read(STATE)
    return None if content is None else parse_state(content, f"{root}/{STATE}").of(name).version


def _fixed(folder: Folder, parent: SetManifest, log: Log) -> tuple[str, dict[str, Any]]:
    """Fix the position of a job and copy the operations up to it; return as ``begin`` of ``Job.open``."""
    since = start_of(parent, log)
    with log.snapshot():
        seq = log.head()
        files = write_operations(log, parent, since, seq, folder / "operations")
    if not files:
        raise NothingToCompact(f"{parent.version}: it contains every operation of the log")
    identity = hashlib.sha256(repr([parent.set_id, log.id, seq]).encode()).hexdigest()
    return identity, {"seq": seq, "operations": files}
