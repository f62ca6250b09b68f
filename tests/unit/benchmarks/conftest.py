"""A collection whose queries only clicks can explain."""

from __future__ import annotations

import random
from pathlib import Path

import pytest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Queries share a word with ten documents, and have another that only clicks can explain."""
    draw = random.Random(1)
    source = tmp_path / "source"
    (source / "qrels").mkdir(parents=True)
    lines = [f'{{"_id": "d{i:03}", "title": "group{i % 10} thing{i}"}}\n' for i in range(100)]
    (source / "corpus.jsonl").write_text("".join(lines))
    queries = [
        (f"q{i}-{k}", f"alias{i} group{i % 10} w{k}", i) for i in range(100) for k in range(6)
    ]
    draw.shuffle(queries)
    lines = [f'{{"_id": "{id}", "text": "{text}"}}\n' for id, text, _ in queries]
    (source / "queries.jsonl").write_text("".join(lines))
    for split, part in (
        ("train", queries[:450]),
        ("valid", queries[450:470]),
        ("test", queries[470:]),
    ):
        rows = "".join(f"{id}\td{i:03}\t1\n" for id, _, i in part)
        (source / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return source
