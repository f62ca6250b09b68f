"""Encode the documents of one shard, and commit them as an ordinary bundle."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fullrank.bundle import open_bundle
from fullrank.bundle.manifest import MANIFEST, Manifest, parse_manifest
from fullrank.errors import CollectionError
from fullrank.progress import Reporter
from fullrank_fleet.jobs.facts import Facts
from fullrank_fleet.remote import BundleCache, Folder, RemoteError
from fullrank_fleet.remote.cache import default_cache
from fullrank_fleet.sets import Shard, shard_folder
from fullrank_fleet.sets.words import SetTitles
from fullrank_trainer.indexing import index

# Commit the bundle of a shard: its manifest is uploaded last, so a shard that has one is complete.


def upload(bundle: Path, target: Folder) -> bytes:
    """Copy a bundle of this machine into a folder and return its manifest. Raises RemoteError."""
    content = (bundle / MANIFEST).read_bytes()
    for name in parse_manifest(content.decode()).files:
        target.upload(bundle / name, name)
    target.write(MANIFEST, content)
    return content


def entry_of(partitions: range, committed: bytes) -> Shard:
    """Return what set.json records of a shard, given its manifest."""
    manifest = parse_manifest(committed.decode())
    return Shard(
        partitions.start,
        partitions.stop,
        manifest.bundle_id,
        hashlib.sha256(committed).hexdigest(),
        _documents(manifest),
        manifest.total_bytes,
    )


def empty_entry(partitions: range) -> Shard:
    """Return the entry of a shard without documents."""
    return Shard(partitions.start, partitions.stop, None, None, 0, 0)


def _documents(manifest: Manifest) -> int:
    shape = manifest.files["documents/bias.npy"].shape
    assert shape is not None
    return shape[0]


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """What a task needs to build any shard of a job.

    Attributes:
        bundle: Address of the bundle whose model encodes.
        name: Of the model.
        folder: Address of the folder of the job.
        target: Address of the sharded bundle.
        has_queries: Whether the job has a file of typical queries.
        shards: Number of shards of the set.
        created: UTC time of all its bundles, ISO 8601, so that a task that runs again writes the same.
    """

    bundle: str
    name: str
    folder: str
    target: str
    has_queries: bool
    shards: int
    created: str


def build_shard(
    plan: ShardPlan, number: int, partitions: range, lines: Sequence[str]
) -> tuple[Shard, Facts]:
    """Build the bundle of one shard, unless it is committed already.

    Its manifest is uploaded last, so a shard with a manifest is complete, whenever a task or its node dies.

    Args:
        plan: Of the job.
        number: Of the shard.
        partitions: Which it owns.
        lines: The objects with its lines.

    Returns:
        Its entry in set.json, and what that records of its documents.

    Raises:
        CollectionError: A document is malformed, or two have the same id.
        BundleError: The bundle of the model cannot be read.
        RemoteError: An object cannot be read or written.
    """
    if not lines:
        return empty_entry(partitions), Facts({}, (), False, {})
    target = Folder(plan.target) / shard_folder(number)
    committed, facts = target.read(MANIFEST), _facts_folder(plan).read(_facts_name(number))
    if committed is None or facts is None:
        committed, facts = _build(plan, number, lines, target)
    return entry_of(partitions, committed), Facts.parse(facts)


def titles_of(plan: ShardPlan, number: int) -> SetTitles:
    """Return the titles of a shard that is built. Raises RemoteError."""
    content = _titles_folder(plan).read(_facts_name(number))
    return SetTitles() if content is None else SetTitles.parse(content)


def _titles_folder(plan: ShardPlan) -> Folder:
    return Folder(plan.folder) / "titles"


def _facts_folder(plan: ShardPlan) -> Folder:
    return Folder(plan.folder) / "facts"


def _facts_name(number: int) -> str:
    return f"{shard_folder(number)}.json"


def _build(
    plan: ShardPlan, number: int, lines: Sequence[str], target: Folder
) -> tuple[bytes, bytes]:
    """Build and upload a bundle; return its manifest and the facts about its documents."""
    source, cache = Folder(plan.folder), BundleCache(default_cache())
    with cache.scratch() as scratch:
        corpus = scratch / "corpus.jsonl"
        with corpus.open("wb") as file:
            for name in lines:
                content = (source / "split").read(name)
                if content is None:
                    raise RemoteError(
                        f"{source / 'split'}/{name}: missing; remove {source} and run the command again"
                    )
                file.write(content)
        queries = scratch / "queries.jsonl" if plan.has_queries else None
        if queries is not None:
            source.download(queries.name, queries)
        path = Folder(plan.bundle).local or cache.fetch(Folder(plan.bundle))
        out = scratch / "out"
        with Reporter(quiet=True) as quiet:
            try:
                built = index(
                    path, corpus, out, plan.name, queries=queries, processes=1,
                    created=datetime.fromisoformat(plan.created), reporter=quiet,
                )  # fmt: skip
            except CollectionError as error:
                # The line numbers are those of a file that nobody has seen.
                reason = re.sub(r"^:(\d+:)?\s*", "", str(error).removeprefix(str(corpus)))
                raise CollectionError(f"shard {number}: {reason}") from None
        # Before the manifest, so that a shard which is committed has them.
        bundle = open_bundle(built.path, verify=False)
        titles, facts = SetTitles.of(bundle, plan.shards).dump(), Facts.of(bundle).dump()
        _titles_folder(plan).write(_facts_name(number), titles)
        _facts_folder(plan).write(_facts_name(number), facts)
        return upload(built.path, target), facts
