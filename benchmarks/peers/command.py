"""The command that all peers share: train, choose on valid, measure, print one JSON line for each system and split.

    python -m benchmarks.peers.<peer> [--collection tldr/en] [--systems NAME,...] [--set KEY=VALUE]

system, collection, cold, split, queries, documents
mrr, map, ndcg@10 and their _error    mean over queries and its standard error
train_seconds       wall time from texts to a model that answers, of the chosen settings
train_cpu_seconds   processor time of the same, on all threads and in child processes
search_seconds      wall time of all settings that were tried
query_ms            median wall time of one query on one thread, from its text to ten documents
query_cpu_ms        median processor time of the same
peak_memory_mb      largest resident memory so far, of the process or of a child process
settings, trials    the chosen settings; validation MRR of all

With --cold, a tenth of the documents is judged by the test alone, and the test judges no others
(benchmarks.harness.derive.cold_splits). The settings are chosen by MRR on valid.
Each system runs in a process of its own, so that memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness.derive import cold_splits, write_splits
from benchmarks.harness.lab import collection_folder
from benchmarks.peers.data import PeerData, read_peer_data
from benchmarks.peers.ranking import Trained, measure, query_time
from fullrank.measures import estimate
from fullrank_trainer.collection import read_collection

Settings = Mapping[str, Any]
Fit = Callable[[PeerData, Settings], Trained]

MEASURES = ("mrr", "map", "ndcg@10")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class PeerSystem:
    """One line of the table.

    Attributes:
        name: of the system.
        fit: trains it.
        trials: settings to try; the first are the library's own.
        needs_queries: skipped where documents are the queries.
    """

    name: str
    fit: Fit
    trials: Sequence[Settings] = ({},)
    needs_queries: bool = False


def parser(doc: str) -> argparse.ArgumentParser:
    """Return the shared options. ``doc`` is the module's; its first line is shown."""
    found = argparse.ArgumentParser(description=doc.splitlines()[0])
    found.add_argument(
        "--collection", default="tldr/en", help="name under FULLRANK_DATA, or folder"
    )
    found.add_argument(
        "--cold", action="store_true", help="train without the documents of the test"
    )
    found.add_argument("--systems", help="comma-separated; default all")
    found.add_argument("--splits", default="valid,test", help="comma-separated; default valid,test")
    found.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="setting of every trial"
    )
    found.add_argument("--timed", type=int, default=200, help="queries that are timed; default 200")
    found.add_argument("--runs", type=Path, help="folder to write TREC runs to")
    found.add_argument(
        "--in-process", action="store_true", help="do not start a process per system"
    )
    return found


def overrides(words: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE; the value is JSON or else a string. Exits if there is no equals sign."""
    found: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            sys.exit(f"--set {word!r}: write KEY=VALUE")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def run(
    module: str,
    systems: Sequence[PeerSystem],
    given: argparse.Namespace,
    packages: Sequence[str],
    arguments: Sequence[str] | None = None,
) -> None:
    """Run the chosen systems.

    Args:
        module: name of the peer's module.
        systems: that it has.
        given: the parsed options.
        packages: whose versions are reported.
        arguments: that ``given`` was parsed from; default those of the command line.
    """
    known = {system.name: system for system in systems}
    names = given.systems.split(",") if given.systems else list(known)
    for name in names:
        if name not in known:
            sys.exit(f"no system {name!r}; there are: {', '.join(known)}")
    if not given.in_process:
        words = sys.argv[1:] if arguments is None else list(arguments)
        # BLAS reads its number of threads when it is loaded, so a new process has to set it.
        environment = os.environ | dict.fromkeys(_ONE_THREAD, "1")
        for name in names:
            command = [sys.executable, "-m", module, *words, "--systems", name, "--in-process"]
            code = subprocess.run(command, env=environment, check=False).returncode
            if code:
                sys.exit(code)
        return
    with tempfile.TemporaryDirectory(prefix="fullrank-peer-") as scratch:
        data = read_peer_data(measured_folder(given.collection, given.cold, Path(scratch)))
    changed = overrides(given.set)
    for name in names:
        if known[name].needs_queries and data.collection.queries is None:
            print(
                f"{name}: skipped, the queries of {given.collection} are documents", file=sys.stderr
            )
            continue
        for line in measure_system(known[name], data, given, changed):
            versions = {package: version(package) for package in packages}
            print(json.dumps(line | {"versions": versions}, ensure_ascii=False), flush=True)


def measured_folder(name: str, cold: bool, scratch: Path) -> Path:
    """Return the folder of a collection, or of its cold splits, which are written to ``scratch``."""
    named = Path(name)
    folder = named if named.is_dir() else collection_folder(name)
    return write_splits(folder, scratch, cold_splits(read_collection(folder))) if cold else folder


def measure_system(
    system: PeerSystem, data: PeerData, given: argparse.Namespace, changed: Settings
) -> list[dict[str, Any]]:
    """Train a system, choose its settings on valid, and return one line for each measured split."""
    trials = _distinct([{**trial, **changed} for trial in system.trials])
    valid = data.asked("valid") if len(trials) > 1 else None
    tried: list[dict[str, Any]] = []
    best: tuple[float, Settings, Trained, float, float] | None = None
    began = time.perf_counter()
    for settings in trials:
        started, used = time.perf_counter(), _cpu_seconds()
        trained = system.fit(data, settings)
        seconds, cpu = time.perf_counter() - started, _cpu_seconds() - used
        mrr = 0.0 if valid is None else float(measure(trained.score, data, valid)["mrr"].mean())
        tried.append(
            {"settings": dict(settings), "mrr": round(mrr, 4), "seconds": round(seconds, 1)}
        )
        print(f"{system.name} {tried[-1]}", file=sys.stderr, flush=True)
        if best is None or mrr > best[0]:
            best = (mrr, settings, trained, seconds, cpu)
    if best is None:
        raise ValueError(f"{system.name}: no settings to try")
    searched = time.perf_counter() - began
    _, chosen, trained, seconds, cpu = best
    lines = []
    for split in given.splits.split(","):
        asked = data.asked(split)
        label = f"{given.collection}-cold" if given.cold else given.collection
        path = _run_path(given.runs, system.name, label, split)
        found = measure(trained.score, data, asked, path)
        timed = query_time(trained.score, asked.texts, given.timed)
        line: dict[str, Any] = {
            "system": system.name,
            "collection": given.collection,
            "cold": given.cold,
            "split": split,
            "queries": len(asked.judgements),
            "documents": len(data.documents),
        }
        for name in MEASURES:
            value = estimate(found[name])
            line |= {name: round(value.mean, 4), f"{name}_error": round(value.standard_error, 4)}
        line |= {
            "train_seconds": round(seconds, 3),
            "train_cpu_seconds": round(cpu, 3),
            "search_seconds": round(searched, 3),
            "query_ms": round(timed.wall_ms, 3),
            "query_cpu_ms": round(timed.cpu_ms, 3),
            "peak_memory_mb": round(peak_memory_mb()),
            "load": round(os.getloadavg()[0], 1),
            "settings": dict(chosen),
            "trials": tried,
        }
        lines.append({**line, **trained.facts})
    return lines


def _distinct(trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop trials that an override made equal."""
    return [trial for i, trial in enumerate(trials) if trial not in trials[:i]]


def _run_path(folder: Path | None, system: str, collection: str, split: str) -> Path | None:
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    words = f"{system}-{collection}-{split}".replace("/", "-").replace(" ", "-")
    return folder / f"{words}.run"


def _cpu_seconds() -> float:
    """Return the processor time of this process and its ended child processes."""
    return sum(os.times()[:4])


def peak_memory_mb() -> float:
    """Return the largest resident memory of this process or of an ended child process."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(own, child) / 1024
