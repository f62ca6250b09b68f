"""The processor time that a router takes for a search, by the number of shards, without any transport.

    python -m benchmarks.performance.router BUNDLE CORPUS [--shards 1,2,4,8,16] [--queries 300]

The corpus is indexed with the model of the bundle, once for each number of shards. Every query is asked once with the
shards in this process, and what they answer is kept. Then the router ranks each query five times over the answers that
were kept, so that only its own work is timed: it checks and encodes the query, packs the question, unpacks and merges
the answers. The least processor time of each query counts. The result has, for each number of shards, the median and
the 90th percentile of that in ms, the ms that one more shard adds (a line fitted through the medians), and the mean
bytes of a question and of an answer; with a second stage, the calls that show hits are among these. Set
OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness.report import show
from benchmarks.performance.http import read_queries
from fullrank.progress import Reporter
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.serving.asking import Patience
from fullrank_fleet.serving.documents import SetDocuments
from fullrank_fleet.serving.engine import SetEngine
from fullrank_fleet.serving.models import SetModels
from fullrank_fleet.serving.shard import ShardServer
from fullrank_fleet.serving.transport import Failure
from fullrank_fleet.sets import read_set
from fullrank_service.search.request import RankRequest
from fullrank_service.telemetry.metrics import Metrics
from fullrank_service.telemetry.stages import Stages

_TURNS, _PATIENCE = 5, Patience(60.0)


class KeptAnswers:
    """Shards of this process that answer the same question at once when it is asked again."""

    def __init__(self, address: str, cache: Path) -> None:
        self._servers: dict[int, ShardServer] = {}
        for number, shard in enumerate(read_set(Folder(address)).shards):
            if shard.documents:
                self._servers[number] = ShardServer(number, BundleCache(cache))
                self._servers[number].load(address)
        self._kept: dict[tuple[tuple[int, bytes], ...], Mapping[int, bytes | Failure]] = {}

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        asked = tuple(sorted(payloads.items()))
        if asked not in self._kept:
            self._kept[asked] = {
                number: await asyncio.to_thread(self._servers[number].answer, payload)
                for number, payload in payloads.items()
            }
        return self._kept[asked]

    def bytes(self) -> tuple[float, float]:
        """Return the mean size of a question and of an answer."""
        questions = [len(payload) for asked in self._kept for _, payload in asked]
        answers = [
            len(a) for kept in self._kept.values() for a in kept.values() if isinstance(a, bytes)
        ]
        return float(np.mean(questions)), float(np.mean(answers))


async def measure(address: str, cache: Path, texts: Sequence[str]) -> tuple[np.ndarray, Any]:
    """Return the ms of processor time of each query, and the mean bytes of a question and an answer."""
    shards = KeptAnswers(address, cache)
    documents = SetDocuments(shards, _PATIENCE, None)
    models = SetModels(BundleCache(cache), Metrics(), documents)
    models.switch((await models.add(address)).version, 1)
    view = await documents.view(models.serving.resolve(None))
    engine = SetEngine(shards, _PATIENCE)
    taken = np.empty((_TURNS + 1, len(texts)))
    for turn in taken:
        for place, text in enumerate(texts):
            began = time.thread_time()
            await engine.rank(view, RankRequest(text, 10, by_prefix=True), None, Stages())
            turn[place] = time.thread_time() - began
    await engine.close()
    return taken[1:].min(axis=0) * 1e3, shards.bytes()


def main(arguments: Sequence[str] | None = None) -> None:
    """Index, time and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("corpus")
    parser.add_argument("--shards", default="1,2,4,8,16")
    parser.add_argument("--queries", type=int, default=300)
    given = parser.parse_args(arguments)

    texts = read_queries(given.queries, seed=1)
    lines = []
    for shards in map(int, given.shards.split(",")):
        with TemporaryDirectory(prefix="fullrank-router-") as folder:
            quiet = Reporter(quiet=True)
            found = index_set(
                given.bundle,
                given.corpus,
                folder,
                shards=shards,
                runner=InProcess(),
                reporter=quiet,
            )
            ms, (question, answer) = asyncio.run(
                measure(found.address, Path(folder, "cache"), texts)
            )
        lines.append(
            {
                "shards": shards,
                "documents": found.documents,
                "router_ms_p50": round(float(np.median(ms)), 3),
                "router_ms_p90": round(float(np.quantile(ms, 0.9)), 3),
                "question_bytes": round(question),
                "answer_bytes": round(answer),
            }
        )
    result: dict[str, Any] = {"by_shards": lines}
    if len(lines) > 1:
        counts = [float(line["shards"]) for line in lines]
        slope, _ = np.polyfit(counts, [float(line["router_ms_p50"]) for line in lines], 1)
        result["ms_of_a_shard"] = round(float(slope), 4)
    show(result, True)


if __name__ == "__main__":
    main()
