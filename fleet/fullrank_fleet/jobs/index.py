"""Index a corpus shard by shard: split it, build every shard, write set.json.

The bundles depend on the model, the corpus and the number of shards, never on the cluster.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fullrank.bundle import open_bundle
from fullrank.bundle.manifest import MANIFEST, Manifest, check_name, parse_manifest
from fullrank.errors import BundleError, BundleNotFound, CollectionError
from fullrank.progress import Reporter
from fullrank_fleet.jobs.job import Job, commit, committed, empty_entry, finish
from fullrank_fleet.jobs.pieces import Corpus, files_of_shard, split_piece
from fullrank_fleet.jobs.tasks import Runner, run_all
from fullrank_fleet.partitions import runs_of
from fullrank_fleet.remote import BundleCache, Folder, RemoteError
from fullrank_fleet.remote.cache import default_cache
from fullrank_fleet.sets.manifest import Shard
from fullrank_trainer.indexing import index

_QUERIES = "queries.jsonl"


@dataclass(frozen=True)
class SetResult:
    """A written set; parent: version of the bundle whose model encoded it, shards: also those without documents."""

    address: str
    version: str
    parent: str
    documents: int
    shards: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; the names are those of ``fullrank index``."""
        value = asdict(self)
        return {"bundle": value.pop("address"), **value}


def index_set(
    bundle: str,
    corpus: str,
    out: str,
    name: str | None = None,
    *,
    shards: int,
    runner: Runner,
    queries: str | None = None,
    reporter: Reporter | None = None,
) -> SetResult:
    """Encode a corpus with the model of a bundle and write the sharded bundle out/name/version.

    Args:
        bundle: Address of the bundle whose model encodes. Every node of the cluster must be able to read this and the
            other addresses.
        corpus: Address of the corpus, as ``Corpus.at`` takes it.
        out: Address of the folder of bundles.
        name: Of the new bundle; by default that of ``bundle``.
        shards: 1 to 4,096.
        queries: Address of a file of typical queries, queries.jsonl, as for ``fullrank_trainer.indexing``.
        reporter: By default it prints to stderr.

    Raises:
        BundleError: The bundle cannot be read, or the name cannot name one.
        CollectionError: The corpus is malformed, or two documents have one id. What was finished stays, without
            set.json, so nobody serves it; the job goes on from there once the corpus is mended.
        RemoteError: An object cannot be read or written.

    Example:
        >>> index_set("s3://b/shop/shop-1", "s3://corpus", "s3://b", shards=16, runner=OnRay(ray)).documents
        40000000
    """
    began = time.monotonic()
    if name is not None:
        check_name(name)
    runs_of(shards)  # or there cannot be so many
    source, parent = Corpus.at(corpus), _read_manifest(bundle)
    name = name or parent.name
    given = None if queries is None else _read(queries)
    facts = [parent.bundle_id, source.fingerprint, shards, name, given and given.decode()]
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    sets = Folder(out) / name
    job = Job.open(sets / f".job-{key}", sets, name, shards, lambda: (key, {}))
    if given is not None:
        job.folder.write(_QUERIES, given)
    with reporter or Reporter() as report:
        pieces = [(p, i, shards, str(job.folder)) for i, p in enumerate(source.pieces())]
        split = run_all(runner, split_piece, pieces, report, "split")
        calls = [(job, n, files_of_shard(n, split), bundle) for n in range(shards)]
        entries = run_all(runner, build_shard, calls, report, "shards")
        documents = sum(shard.documents for shard in entries)
        if not documents:
            raise CollectionError(f"{corpus}: no documents")
        card = {
            "parent": parent.version,
            "parent_bundle_id": parent.bundle_id,
            "collection": {"fingerprint": source.fingerprint, "documents": documents},
            "trained": parent.card.get("trained", parent.card),
        }
        finish(job, entries, card)
        seconds = time.monotonic() - began
        report.log("written", version=job.version, documents=documents, seconds=seconds)
    return SetResult(str(job.target), job.version, parent.version, documents, shards, seconds)


def build_shard(job: Job, number: int, lines: Sequence[str], model: str) -> Shard:
    """Build one shard from the objects with its lines by the model at an address, unless it is committed already."""
    partitions, cache = runs_of(job.shards)[number], BundleCache(default_cache())
    if not lines:
        return empty_entry(partitions)
    found = committed(job, number, partitions)
    if found is not None:
        return found
    with cache.scratch() as scratch:
        corpus = scratch / "corpus.jsonl"
        with corpus.open("wb") as file:
            for name in lines:
                content = (job.folder / "split").read(name)
                if content is None:
                    raise RemoteError(
                        f"{job.folder / 'split'}/{name}: missing; "
                        f"remove {job.folder} and run the command again"
                    )
                file.write(content)
        queries = scratch / _QUERIES if job.folder.has(_QUERIES) else None
        if queries is not None:
            job.folder.download(_QUERIES, queries)
        path = Folder(model).local or cache.fetch(Folder(model))
        out = scratch / "out"
        with Reporter(quiet=True) as quiet:
            try:
                built = index(
                    path, corpus, out, job.name, queries=queries, processes=1,
                    created=job.created, reporter=quiet,
                )  # fmt: skip
            except CollectionError as error:
                # The line numbers are those of a file that nobody has seen.
                reason = re.sub(r"^:(\d+:)?\s*", "", str(error).removeprefix(str(corpus)))
                raise CollectionError(f"shard {number}: {reason}") from None
        bundle = open_bundle(built.path, verify=False)
        return commit(job, number, partitions, bundle)


def _read_manifest(bundle: str) -> Manifest:
    content = Folder(bundle).read(MANIFEST)
    if content is None:
        raise BundleNotFound(f"{bundle}: no {MANIFEST}, so no bundle")
    try:
        return parse_manifest(content.decode())
    except (BundleError, UnicodeDecodeError) as error:
        raise BundleError(f"{bundle}: {error}") from error


def _read(address: str) -> bytes:
    folder, _, name = address.rpartition("/")
    content = Folder(folder or ".").read(name)
    if content is None:
        raise CollectionError(f"{address}: no such file")
    return content
