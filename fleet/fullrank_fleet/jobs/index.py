"""Index a corpus shard by shard: split it, build every shard, write set.json.

Everything that a task finishes is committed by the object that it writes last, so a job whose driver, tasks or nodes
died goes on where it was when the same command is run again. The bundles depend on the model, the corpus and the
number of shards, never on the cluster.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from fullrank.bundle.manifest import MANIFEST, Manifest, check_name, parse_manifest, version_of
from fullrank.errors import BundleError, BundleNotFound, CollectionError
from fullrank.progress import Reporter
from fullrank_fleet.jobs.facts import Facts
from fullrank_fleet.jobs.pieces import Corpus, SplitFiles, files_of_shard, split_piece
from fullrank_fleet.jobs.shard import ShardPlan, build_shard, titles_of
from fullrank_fleet.jobs.tasks import Runner
from fullrank_fleet.partitions import runs_of
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets import SetManifest, Shard, shard_folder, write_set
from fullrank_fleet.sets.manifest import model_id
from fullrank_fleet.sets.words import SetTitles, write_titles

_JOB = "job.json"
_QUERIES = "queries.jsonl"


@dataclass(frozen=True)
class SetResult:
    """A written set.

    Attributes:
        address: Of its folder.
        version: Of the set.
        parent: Version of the bundle whose model encoded it.
        documents: Their number.
        shards: Their number, with those that have no documents.
        seconds: Of the whole command.
    """

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
        runner: Runs the tasks.
        queries: Address of a file of typical queries, queries.jsonl, as for ``fullrank_trainer.indexing``.
        reporter: Receives progress; by default it prints to stderr.

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
    runs = runs_of(shards)
    source, parent = Corpus.at(corpus), _read_manifest(bundle)
    name = name or parent.name
    given = None if queries is None else _read(queries)
    key = [parent.bundle_id, source.fingerprint, shards, name, given and given.decode()]
    job = _Job.open(Folder(out), name, hashlib.sha256(repr(key).encode()).hexdigest()[:16])
    if given is not None:
        job.folder.write(_QUERIES, given)
    target = Folder(out) / name / job.version
    has_queries = given is not None
    plan = ShardPlan(bundle, name, str(job.folder), str(target), has_queries, shards, job.created)
    with reporter or Reporter() as report:
        split = _split(source, job, shards, runner, report)
        calls = [
            (plan, number, run, files_of_shard(number, split)) for number, run in enumerate(runs)
        ]
        built: dict[int, tuple[Shard, Facts]] = {}
        with report.stage("shards", total=shards) as stage:
            for number, found in runner.run(build_shard, calls):
                built[number] = found
                stage.advance()
        entries = tuple(built[number][0] for number in range(shards))
        documents = sum(shard.documents for shard in entries)
        if not documents:
            raise CollectionError(f"{corpus}: no documents")
        first = next(number for number, shard in enumerate(entries) if shard.documents)
        titles = SetTitles.merged([titles_of(plan, number) for number in range(shards)])
        facts = Facts.merged([built[number][1] for number in range(shards)])
        card = {
            "parent": parent.version,
            "parent_bundle_id": parent.bundle_id,
            "collection": {"fingerprint": source.fingerprint, "documents": documents},
            "trained": parent.card.get("trained", parent.card),
        }
        manifest = SetManifest(
            name,
            job.version,
            job.created,
            # Shards of a model that an earlier release wrote have tables of words that its bundle lacks.
            model_id(_read_manifest(str(target / shard_folder(first)))),
            entries,
            facts.columns,
            frozenset(facts.time_fields),
            facts.has_ads,
            facts.values,
            card,
            outline=facts.outline,
            titles_sha256=write_titles(target, titles),
        )
        write_set(target, manifest)
        job.folder.remove()
        seconds = time.monotonic() - began
        report.log("written", version=job.version, documents=documents, seconds=seconds)
    return SetResult(str(target), job.version, parent.version, documents, shards, seconds)


@dataclass(frozen=True, slots=True)
class _Job:
    """The folder of a job, which names the version that it writes."""

    folder: Folder
    version: str
    created: str

    @classmethod
    def open(cls, root: Folder, name: str, key: str) -> _Job:
        """Go on with the job of this key, or begin it."""
        folder = root / name / f".job-{key}"
        content = folder.read(_JOB)
        if content is not None:
            return cls(folder, **json.loads(content))
        now = datetime.now(UTC)
        found = cls(folder, version_of(name, now, key), now.isoformat(timespec="microseconds"))
        facts = {"version": found.version, "created": found.created}
        folder.write(_JOB, json.dumps(facts).encode())
        return found


def _split(
    source: Corpus, job: _Job, shards: int, runner: Runner, report: Reporter
) -> list[SplitFiles]:
    pieces = source.pieces()
    calls = [(piece, number, shards, str(job.folder)) for number, piece in enumerate(pieces)]
    found: dict[int, SplitFiles] = {}
    with report.stage("split", total=len(pieces)) as stage:
        for number, files in runner.run(split_piece, calls):
            found[number] = files
            stage.advance()
    return [found[number] for number in range(len(pieces))]


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
