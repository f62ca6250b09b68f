"""When caching an embedding saves time: encode again, the cache of the process, and Redis, for queries and pages.

    python -m benchmarks.performance.caching [--json] [--texts 200] [--seconds 30] [--out DIR]

The models train on Debian's package descriptions for at most --seconds per fit, because only their cost matters, and
are stored in --out: BM25, a fielded model (256 dimensions), the towers of DSSM, and query expansion, whose encoder
searches first. Texts are queries of at most six words, and runs of 1 kB and (half as many) of 20 kB from joined titles
and descriptions. Redis is a separate process, asked over TCP on the loopback interface, one call at a time.

Every text is measured in all ways, in rounds of 20 in which the ways alternate, so compared values come from the same
second. Ratios are computed within a round; the report gives their median and quartiles.

none        encode the text
process     hash the text, find its embedding in the cache of the process
redis       hash the text, ask Redis, check and unpack the value
miss        hash the text, ask Redis without success, pack and store: the extra cost of a miss
by default  with Redis, without the cache of the process, with the default settings of the service

Redis saves time from the hit rate h at which h (none − redis) = (1 − h) miss. Every cached embedding must have the same
bytes as the encoded one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.lab import Lab
from benchmarks.harness.report import data_folder, machine
from benchmarks.harness.tables import Table
from benchmarks.performance.rounds import ROUND, Timed
from benchmarks.performance.swap import read_queries
from fullrank.bundle import Bundle, open_bundle
from fullrank.encoding import Encoded
from fullrank_service.search.caching.cache import EmbeddingCache
from fullrank_service.search.caching.embedding import Key
from fullrank_service.search.caching.redis_cache import RedisCache
from fullrank_service.settings import Settings
from fullrank_service.telemetry.metrics import Metrics
from fullrank_trainer.train import train

_PACKAGES = ("fullrank", "numpy", "scipy", "redis")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_COLLECTION = "debian"
# Recipe, and settings that make training quick; the time to encode does not depend on them.
MODELS: Mapping[str, Sequence[str]] = {
    "bm25": (),
    "fielded": ("train.epochs=1", "model.dimension=256", "train.valid_queries=100"),
    "dssm": ("train.epochs=1", "train.valid_queries=100"),
    "query-expansion": ("train.valid_queries=100",),
}
_PAGE_CHARS = 20_000
WAYS = ("none", "process", "redis", "miss", "by default")

Way = Callable[[str], Awaitable[Encoded | None]]


def bundles(folder: Path, seconds: float, lab: Lab) -> dict[str, Bundle]:
    """Return the models; train the missing ones."""
    found = {}
    for recipe, overrides in MODELS.items():
        there = sorted(folder.glob(f"{recipe}/*/manifest.json"))
        if not there:
            lab.report.log("training", recipe=recipe)
            limit = [f"train.seconds={seconds}"] if recipe in ("fielded", "dssm") else []
            path = train(
                data_folder() / _COLLECTION,
                folder,
                recipe,
                recipe=recipe,
                overrides=[*overrides, *limit],
                reporter=lab.report,
            ).path
        else:
            path = there[-1].parent
        found[recipe] = open_bundle(path)
    return found


def texts(number: int, seed: int) -> dict[str, list[str]]:
    """Return distinct texts by kind."""
    draw = random.Random(seed)
    short = read_queries(data_folder() / _COLLECTION, 4 * number, seed)
    queries = list(dict.fromkeys(" ".join(text.split()[:6]) for text in short))[:number]
    words = " ".join(read_queries(data_folder() / _COLLECTION, 4000, seed + 1)).split()

    def run_of(chars: int) -> str:
        start = draw.randrange(len(words) // 2)
        return " ".join(words[start:] + words[:start])[:chars]

    return {
        "query": queries,
        "1 kB": [run_of(1_000) for _ in range(number)],
        "20 kB": [run_of(_PAGE_CHARS) for _ in range(number // 2)],
    }


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run Redis on a free port of the loopback interface; yield its address."""
    program = shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError("redis-server is not on PATH; install Debian's redis-server")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


def ways(bundle: Bundle, url: str, defaults: Settings) -> tuple[dict[str, Way], list[RedisCache]]:
    """Return the compared ways by name, over one bundle, and their connections."""
    model = bundle.model
    metrics = Metrics()

    def redis(min_chars: int) -> RedisCache:
        return RedisCache(url, metrics, ttl_s=3600, timeout_s=5, retry_s=5, min_chars=min_chars)

    def key(text: str) -> Key:
        return Key.of(bundle.bundle_id, text, model.n_dense, model.n_sparse)

    asked, missed, ruled = (redis(chars) for chars in (0, 0, defaults.redis_min_chars))
    table, shared = (
        EmbeddingCache(1 << 20, metrics, max_bytes=1 << 30),
        EmbeddingCache(0, metrics, asked),
    )
    absent, usual = EmbeddingCache(0, metrics, missed), EmbeddingCache(0, metrics, ruled)
    counted = 0

    async def none(text: str) -> Encoded:
        return model.encode_queries([text])

    async def process(text: str) -> Encoded | None:
        return await table.get(key(text))

    async def found(text: str) -> Encoded | None:
        return await shared.get(key(text))

    async def miss(text: str) -> None:
        nonlocal counted
        counted += 1
        # A text of the same length that was never cached.
        unheard = f"zq{counted}zq "
        new = key(unheard + text[len(unheard) :])
        assert await absent.get(new) is None
        absent.put(new, rows[text], 1.0)
        await missed.written()

    async def default(text: str) -> Encoded:
        place = key(text)
        row = await usual.get(place)
        if row is None:
            began = time.perf_counter()
            row = model.encode_queries([text])
            usual.put(place, row, time.perf_counter() - began)
        return row

    rows: dict[str, Encoded] = {}

    async def fill(text: str) -> None:
        began = time.perf_counter()
        rows[text] = model.encode_queries([text])
        took = time.perf_counter() - began
        for cache in (table, shared):
            cache.put(key(text), rows[text], took)
        await asked.written()
        await default(text)
        await ruled.written()

    made: dict[str, Way] = {
        "fill": fill,
        "none": none,
        "process": process,
        "redis": found,
        "miss": miss,
        "by default": default,
    }
    return made, [asked, missed, ruled]


async def measured(
    bundle: Bundle, asked: Sequence[str], url: str, defaults: Settings
) -> dict[str, Any]:
    """Measure all ways over the same texts, in rounds."""
    made, connections = ways(bundle, url, defaults)
    fill = made.pop("fill")
    for text in asked:
        await fill(text)
    for text in asked[:ROUND]:
        for way in made.values():
            await way(text)
    seconds = {name: np.zeros(len(asked)) for name in made}
    answers: dict[str, list[Encoded | None]] = {name: [] for name in made}
    gc.collect()
    gc.disable()
    for turn, start in enumerate(range(0, len(asked), ROUND)):
        names = list(made)[turn % len(made) :] + list(made)[: turn % len(made)]
        for name in names:
            for i in range(start, min(start + ROUND, len(asked))):
                began = time.perf_counter()
                answers[name].append(await made[name](asked[i]))
                seconds[name][i] = time.perf_counter() - began
        gc.collect()
    gc.enable()
    for connection in connections:
        await connection.close()
    timed = Timed(seconds, answers, ROUND)
    equal = {
        name: sum(map(_same, answers["none"], answers[name]))
        for name in ("process", "redis", "by default")
    }
    # Divided by the time of the same round, because a busy machine slows all ways alike.
    pays = _break_even(
        *(float(np.median(timed._rounds(name))) for name in ("none", "redis", "miss"))
    )
    return {
        "texts": len(asked),
        "characters": round(float(np.mean([len(text) for text in asked]))),
        "milliseconds": {name: timed.figures(name)["p50_ms"] for name in WAYS},
        "over_none": {name: timed.ratio(name, "none") for name in WAYS[1:]},
        "redis_over_process": timed.ratio("redis", "process"),
        "pays_from_hits": pays,
        "equal": equal,
    }


def _same(one: Encoded | None, other: Encoded | None) -> bool:
    if one is None or other is None:
        return False
    return all(
        a.tobytes() == b.tobytes() for a, b in zip(_arrays(one), _arrays(other), strict=True)
    )


def _arrays(encoded: Encoded) -> tuple[npt.NDArray[Any], ...]:
    rows = encoded.sparse
    return encoded.dense, rows.indptr, rows.indices, rows.values, encoded.bias


def _break_even(none: float, redis: float, miss: float) -> float | None:
    """Return the hit rate from which Redis saves time; None if it never does."""
    return None if redis >= none else round(miss / (none - redis + miss), 3)


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a row per model and kind of text."""
    rows = []
    for model, kinds in found.items():
        for kind, facts in kinds.items():
            over = facts["over_none"]
            pays = facts["pays_from_hits"]
            rows.append(
                [
                    model,
                    kind,
                    f"{facts['milliseconds']['none']:.3f}",
                    *(_ratio(over[name]) for name in ("process", "redis", "miss")),
                    "never" if pays is None else f"{pays:.0%}",
                    _ratio(over["by default"]),
                ]
            )
    return Table(
        "What remembering an embedding costs, as a share of encoding it",
        (
            "model",
            "text",
            "encode, ms",
            "process",
            "Redis",
            "miss",
            "Redis pays from",
            "by default",
        ),
        rows,
        (
            "medians over rounds of 20 texts, quartiles in brackets; encoding: median of the texts",
            "miss: a failed look-up and a write, relative to encoding; Redis saves time from this hit rate",
            "by default: no cache in the process, default FULLRANK_REDIS_MIN_CHARS",
        ),
        left=2,
    )


def _ratio(ratio: Mapping[str, float] | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio['median']:.2f} ({ratio['q25']:.2f}–{ratio['q75']:.2f})"


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    form = found.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="the tables as Markdown")
    found.add_argument("--texts", type=int, default=200, help="texts of a kind; default 200")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--seconds", type=float, default=30, help="of a fit; default 30")
    found.add_argument("--out", type=Path, help="folder of results; default out/caching")
    return found


def main() -> None:
    """Train missing models, measure and report; exit 1 if a cached embedding differs from the encoded one."""
    given = parser().parse_args()
    if any(os.environ.get(name) != "1" for name in _THREADS):
        # Libraries read these at import.
        environment = os.environ | dict.fromkeys(_THREADS, "1")
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.performance.caching", *sys.argv[1:]],
            environment,
        )
    given.set, given.fresh, given.systems, given.queries = [], False, None, given.texts
    with Lab("caching", given) as lab:
        lab.machine = machine(_PACKAGES)
        models = bundles(lab.store.folder / "bundles", given.seconds, lab)
        asked = texts(given.texts, given.seed)
        found: dict[str, dict[str, Any]] = {}
        with redis_server(lab.scratch) as url:
            for name, bundle in models.items():
                lab.report.log("measuring", model=name)
                found[name] = {
                    kind: asyncio.run(measured(bundle, of, url, Settings.defaults()))
                    for kind, of in asked.items()
                }
        lab.tell([table(found)], models=found)
    facts = [kind for kinds in found.values() for kind in kinds.values()]
    sys.exit(any(number != fact["texts"] for fact in facts for number in fact["equal"].values()))


if __name__ == "__main__":
    main()
