"""Record how long shards of several sizes take to answer a search; capacity.py replays these times.

    python -m benchmarks.fleet.recording BUNDLE --sizes 8000,64000,512000 [--out FILE]
    python -m benchmarks.fleet.recording BUNDLE --corpus $FULLRANK_DATA/tldr --shards 1,2,4,8 [--out FILE]
    python -m benchmarks.fleet.recording BUNDLE --corpus $FULLRANK_DATA/tldr --actors [--out FILE]

The first form cuts the corpus resampled from Debian (benchmarks/performance/resample.py, with the lengths of Debian's
documents) after each number of documents, and indexes each part with the model of BUNDLE as a set of one shard. The
second cuts one corpus into sets of several shards. A router of this process then sends searches for ten hits in exact
mode, and the processor time of every ``ShardServer.answer`` counts: it unpacks the question, searches, and packs the
hits with their fields. Every search is sent three times, and the first is left out. Processor time, because other
programs may use the machine; it has neither the transport nor the wait for a core. The third form is with the
transport: it serves the corpus with one shard on a Ray cluster of this machine, and divides the processor time of the
whole process of the shard by the searches.

FILE gets one entry for each size: the documents of a shard, the bytes of its model and of the rest of its bundle, and
quantiles of the times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from benchmarks.fleet.collection import sharded, titles
from benchmarks.fleet.local import cluster, fleet
from benchmarks.harness.report import data_folder, machine
from benchmarks.performance.resample import read_source, short_queries, write_corpus
from benchmarks.performance.servers import Server
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.serving.asking import Patience
from fullrank_fleet.serving.documents import SetDocuments
from fullrank_fleet.serving.engine import SetEngine
from fullrank_fleet.serving.models import SetModels
from fullrank_fleet.serving.shard import ShardServer
from fullrank_fleet.serving.transport import Failure
from fullrank_fleet.sets import read_set, shard_folder
from fullrank_service.search.request import RankRequest
from fullrank_service.telemetry.metrics import Metrics
from fullrank_service.telemetry.stages import Stages

Float64 = npt.NDArray[np.float64]

RECORDED = Path(__file__).with_name("recorded.json")
_QUANTILES = 200
_TURNS, _PATIENCE = 3, Patience(60.0)
_ABOUT = ("processor", "cores", "memory_gib", "load_at_start", "python", "versions")
# A search of a busy machine is slow, not refused.
_SETTINGS = {"FULLRANK_DEADLINE_MS": "20000"}


@dataclass(frozen=True, slots=True)
class ShardTimes:
    """What was measured on the shards of one set.

    Attributes:
        shards: Of the set.
        documents: Of one shard, on average.
        bytes: Of the bundle of one shard on disk without its model, on average.
        model_bytes: Of the model, which every shard has.
        answer_us: Quantiles of the processor time of an answer, in µs, at (i + ½) / n.
    """

    shards: int
    documents: int
    bytes: int
    model_bytes: int
    answer_us: Sequence[int]

    @property
    def answer_s(self) -> Float64:
        """Return the times in seconds."""
        return np.array(self.answer_us) / 1e6


class TimedShards:
    """Shards of this process, which answer one after another."""

    def __init__(self, servers: Mapping[int, ShardServer]) -> None:
        self._servers = servers
        self.seconds: list[float] = []

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        """See ``fullrank_fleet.serving.transport.Shards.ask``; note the processor time of each answer."""
        found: dict[int, bytes | Failure] = {}
        for number, payload in payloads.items():
            began = time.thread_time()
            found[number] = self._servers[number].answer(payload)
            self.seconds.append(time.thread_time() - began)
        return found


async def answer_seconds(address: str, cache: Path, texts: Sequence[str]) -> list[float]:
    """Search for each text; return the processor time of each answer of a shard, in seconds.

    Args:
        address: Of a set.
        cache: Folder for downloads.
        texts: What to search for.
    """
    servers = {}
    for number, shard in enumerate(read_set(Folder(address)).shards):
        if shard.documents:
            servers[number] = ShardServer(number, BundleCache(cache))
            servers[number].load(address)
    shards = TimedShards(servers)
    documents = SetDocuments(shards, _PATIENCE, None)
    models = SetModels(BundleCache(cache), Metrics(), documents)
    models.switch((await models.add(address)).version, 1)
    view = await documents.view(models.serving.resolve(None))
    engine = SetEngine(shards, _PATIENCE)
    for turn in range(_TURNS):
        if turn == 1:
            shards.seconds.clear()
        for text in texts:
            request = RankRequest(text, 10, mode="exact", by_prefix=True)
            await engine.rank(view, request, None, Stages())
    await engine.close()
    return shards.seconds


def record(bundle: Path, corpus: Path, shards: int, texts: Sequence[str], work: Path) -> ShardTimes:
    """Index a corpus as a set and measure its shards.

    Args:
        bundle: Whose model encodes.
        corpus: Folder with corpus.jsonl[.gz].
        shards: Of the set.
        texts: What to search for.
        work: An empty folder.
    """
    folder = sharded(bundle, corpus, work, shards)
    seconds = asyncio.run(answer_seconds(str(folder), work / "cache", texts))
    places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    counts = [shard.documents for shard in read_set(Folder(str(folder))).shards]
    files = [
        (file.stat().st_size, "model" in file.relative_to(folder).parts)
        for number in range(len(counts))
        for file in (folder / shard_folder(number)).rglob("*")
        if file.is_file()
    ]
    model = sum(size for size, is_model in files if is_model)
    return ShardTimes(
        shards,
        round(sum(counts) / shards),
        round((sum(size for size, _ in files) - model) / shards),
        round(model / shards),
        [round(1e6 * value) for value in np.quantile(seconds, places).tolist()],
    )


def process_us(bundle: Path, corpus: Path, texts: Sequence[str], work: Path) -> float:
    """Return the processor time that the process of a shard takes for a search on Ray, in µs.

    Args:
        bundle: Whose model encodes.
        corpus: Folder with corpus.jsonl[.gz], the documents of the shard.
        texts: What to search for.
        work: An empty folder.
    """
    version = sharded(bundle, corpus, work / "sets", 1)
    with (
        cluster() as address,
        fleet(address, version.parents[1], 1, work, version.name, **_SETTINGS) as running,
        httpx.Client(base_url=running.router.url, timeout=30) as client,
    ):
        process = Server("", (running.pid(0, 0),), ())
        for _ in range(2):
            began = process.cpu_s()
            for text in texts:
                answer = client.post("/v1/search", json={"query": text, "mode": "exact"})
                answer.raise_for_status()
        return 1e6 * (process.cpu_s() - began) / len(texts)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What FILE has.

    Attributes:
        scaling: Sets of one shard of growing size.
        fleet: Sets of one corpus, by the number of shards.
        process_us: Processor time of the process of the one shard of this corpus for a search on Ray.
    """

    scaling: Sequence[ShardTimes]
    fleet: Mapping[int, ShardTimes]
    process_us: float

    @property
    def call_s(self) -> float:
        """Processor time of the process of a shard beside its answer: what a call of Ray costs there."""
        return self.process_us / 1e6 - float(self.fleet[1].answer_s.mean())


def read_recorded(file: Path = RECORDED) -> Recorded:
    """Return what was recorded."""
    found = json.loads(file.read_text("utf-8"))
    scaling = [ShardTimes(**own) for own in found["scaling"]]
    fleet = [ShardTimes(**own) for own in found["fleet"]]
    return Recorded(
        sorted(scaling, key=lambda own: own.documents),
        {own.shards: own for own in fleet},
        found["process_us"],
    )


def add_entry(file: Path, kind: str, entry: ShardTimes | float) -> None:
    """Write an entry, in place of the one of the same size."""
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    about = machine(("numpy", "numba"))
    found.setdefault("machine", {name: about[name] for name in _ABOUT})
    if isinstance(entry, ShardTimes):
        others = [own for own in found.get(kind, []) if own["documents"] != entry.documents]
        found[kind] = [*others, asdict(entry)]
    else:
        found[kind] = round(entry)
    lines = json.dumps(found, indent=1).replace(",\n    ", ", ").replace("[\n    ", "[")
    file.write_text(lines.replace("\n   ]", "]") + "\n", "utf-8")


def main() -> None:
    """Index, record, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--sizes", default="8000,64000,512000")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--shards", default="1,2,4,8")
    parser.add_argument("--actors", action="store_true")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--out", type=Path, default=RECORDED)
    asked = parser.parse_args()
    if asked.corpus is not None:
        texts = titles(asked.corpus, asked.queries)
        if asked.actors:
            with TemporaryDirectory(prefix="fullrank-recording-") as work:
                found = process_us(asked.bundle, asked.corpus, texts, Path(work))
            add_entry(asked.out, "process_us", found)
            return
        for shards in map(int, asked.shards.split(",")):
            with TemporaryDirectory(prefix="fullrank-recording-") as work:
                times = record(asked.bundle, asked.corpus, shards, texts, Path(work))
            add_entry(asked.out, "fleet", times)
        return
    source = read_source(data_folder() / "debian")
    texts = short_queries(source, asked.queries, seed=1)
    for size in map(int, asked.sizes.split(",")):
        with TemporaryDirectory(prefix="fullrank-recording-") as work:
            for _ in write_corpus(source, Path(work, "corpus"), size, seed=1, stretch=1.0):
                pass
            times = record(asked.bundle, Path(work, "corpus"), 1, texts, Path(work, "sets"))
        add_entry(asked.out, "scaling", times)


if __name__ == "__main__":
    main()
