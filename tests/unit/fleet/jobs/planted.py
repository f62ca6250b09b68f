"""A bundle with a planted model, and a corpus of its words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle import Bundle, open_bundle
from fullrank.progress import Reporter
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.sets.manifest import fetch_shard, read_set
from tests.golden.test_golden import DOCUMENTS, WORDS, write_planted
from tests.reranking import stage_of

QUIET = Reporter(quiet=True)


def planted_bundle(root: Path, *, is_reordered: bool = False) -> Path:
    stage = stage_of(DOCUMENTS, seed=3) if is_reordered else None
    return write_planted(root, {"recipe": {"name": "planted"}}, stage)


def document(number: int) -> dict[str, Any]:
    """Return a corpus line; the kinds of "size" differ between documents."""
    rng = np.random.default_rng(number)
    return {
        "_id": f"d{number:05}",
        "title": " ".join(rng.choice(WORDS, number % 3)),
        "text": " ".join(rng.choice(WORDS, 1 + number % 11)),
        "size": number if number % 2 else "large",
    }


def corpus_of(folder: Path, count: int, first: int = 0) -> Path:
    """Write corpus.jsonl without a newline at its end."""
    lines = [json.dumps(document(first + number)) for number in range(count)]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    return folder


def planted_set(folder: Path, count: int, shards: int, **options: Any) -> str:
    bundle, corpus = planted_bundle(folder / "bundles", **options), corpus_of(folder, count)
    sets = str(folder / "sets")
    return index_set(
        str(bundle), str(corpus), sets, shards=shards, runner=InProcess(), reporter=QUIET
    ).address


def open_shard(address: str, number: int) -> Bundle:
    folder, copies = Folder(address), Path(address).parents[1].with_name("copies")
    return open_bundle(fetch_shard(BundleCache(copies), folder, read_set(folder), number))
