"""The documents of a bundle as arrays and as records: bytes, memory of workers, processor time of a search.

    python -m benchmarks.performance.layouts BUNDLE QUERIES --scratch DIR [--rounds 5]

BUNDLE has an index; QUERIES is a JSON list of texts. Both bundles are made in DIR, on the disk of BUNDLE: they share
all other files with it. Workers are measured as in footprint.py. Then one process, on one thread, searches both in
turn; the time of a query is the least of all rounds. Every answer must have equal bits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.performance.footprint import folder_bytes, workers
from fullrank.bundle import Bundle, open_bundle
from fullrank.bundle.documents import ARRAYS, RECORDS, write_records
from fullrank.bundle.manifest import MANIFEST, bundle_id
from fullrank.bundle.staging import StagingFolder
from fullrank.encoding import Encoded
from fullrank.retrieval import Ranking

LAYOUTS = "arrays", "records"
_FIELDS = ("rows", "scores", "dense", "lexical", "bias")
_DEPTH = 10


def in_layout(bundle: Bundle, layout: str, root: Path) -> tuple[Path, float]:
    """Write a bundle again with its documents in one of LAYOUTS; its other files are linked.

    Args:
        bundle: The bundle.
        layout: "arrays" or "records".
        root: The root to write to; what is there is removed.

    Returns:
        The folder, and the seconds of processor time that the documents took.
    """
    documents = {f"documents/{name}.npy" for name in ARRAYS} | {RECORDS}
    shutil.rmtree(root, ignore_errors=True)
    with StagingFolder(root / bundle.name) as folder:
        for name, entry in bundle.manifest.files.items():
            if name not in documents:
                (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(bundle.path / name, folder.path / name)
                folder.files[name] = entry
        encoded = bundle.encoded.whole()
        began = time.process_time()
        for name, array in encoded.arrays().items():
            folder.write_array(f"documents/{name}.npy", array)
        arrays = {name: folder.map_array(f"documents/{name}.npy") for name in ARRAYS}
        if layout == "records":
            write_records(folder, Encoded.from_arrays(arrays, encoded.width))
        took = time.process_time() - began
        identity = bundle_id(folder.files, bundle.manifest.model)
        manifest = replace(bundle.manifest, files=dict(folder.files), bundle_id=identity)
        folder.write_text(MANIFEST, manifest.dump())
        folder.sync()
        folder.publish(root / bundle.name / bundle.version)
    return root / bundle.name / bundle.version, took


def paired(bundles: Sequence[Bundle], texts: Sequence[str], rounds: int) -> dict[str, Any]:
    """Search bundles of equal documents in turn; return the processor time of a query in each, by mode.

    Raises:
        RuntimeError: Two answers differ.
    """
    queries = [bundles[0].model.encode_queries([text]) for text in texts]
    found = {}
    for mode in bundles[0].retriever.modes:
        took = np.zeros((rounds + 1, len(queries), len(bundles)))
        for turn in range(rounds + 1):
            for i, query in enumerate(queries):
                answers: list[Ranking] = []
                for place in range(len(bundles))[:: 1 if turn % 2 else -1]:
                    retriever = bundles[place].retriever
                    began = time.thread_time_ns()
                    answers += retriever.search(query, _DEPTH, mode=mode)
                    took[turn, i, place] = (time.thread_time_ns() - began) / 1000
                if len({_bits(answer) for answer in answers}) > 1:
                    raise RuntimeError(f"{mode}: other answers to {texts[i]!r}")
        least = took[1:].min(axis=0)  # without the first round, which maps the pages
        found[mode] = {
            "p50_us": np.median(least, axis=0).round(1).tolist(),
            "added_us": round(float(np.median(least[:, 1] - least[:, 0])), 1),
            "ratio": round(float(np.median(least[:, 1] / least[:, 0])), 4),
        }
    return found


def _bits(answer: Ranking) -> bytes:
    return b"".join(getattr(answer, name).tobytes() for name in _FIELDS)


def main() -> None:
    """Make both bundles, measure them and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    texts = json.loads(given.queries.read_text("utf-8"))
    paths: list[Path] = []
    report: dict[str, Any] = {}
    for layout in LAYOUTS:
        # Opened each time, so that no process maps the documents while the workers are measured.
        root = given.scratch / layout
        path, write_s = in_layout(open_bundle(given.bundle, verify=False), layout, root)
        paths.append(path)
        report[layout] = {
            "bytes": folder_bytes(path)["documents"],
            "write_cpu_s": round(write_s, 2),
            "memory": workers(path, texts, given.scratch),
        }
    bundles = [open_bundle(path, verify=False) for path in paths]
    report["search"] = {"queries": len(texts), **paired(bundles, texts, given.rounds)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
