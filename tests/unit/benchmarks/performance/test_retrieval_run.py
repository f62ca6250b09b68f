"""The retrieval benchmark from end to end on a small collection: what it makes, keeps and says."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.planted import write_qrels

DOCUMENTS = 1200


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of collections with a debian of few words, whose documents link to their neighbours."""
    draw = random.Random(1)
    lines, vocabulary = [], [f"w{i}" for i in range(500)]
    for i in range(DOCUMENTS):
        words = [" ".join(draw.choices(vocabulary, k=8)) + "." for _ in range(1 + i % 4)]
        line = {"_id": f"p{i:04}", "title": f"p{i}: {' '.join(draw.choices(vocabulary, k=3))}"}
        lines.append({**line, "text": " ".join(words), "section": ("admin", "games")[i % 2]})
    folder = tmp_path / "data" / "debian"
    folder.mkdir(parents=True)
    with gzip.open(folder / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    for place, split in enumerate(("train", "valid", "test")):
        pairs = [(f"p{i:04}", f"p{i + 1:04}") for i in range(place, DOCUMENTS - 1, 3)]
        write_qrels(folder / "qrels" / f"{split}.tsv", pairs)
    return folder.parent


def run(data: Path, out: Path) -> tuple[int, dict[str, Any], str]:
    command = ["--json", "--sizes", "debian,1000", "--queries", "25", "--seconds", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.performance.retrieval", *command, "--out", str(out)],
        env={**os.environ, "FULLRANK_DATA": str(data)},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.slow
def test_a_small_run_reports_every_figure(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, found, output = run(data, out)
    assert "  epoch 1" in output
    assert list(found["corpora"]) == ["debian", "1000"]
    for name, documents in (("debian", DOCUMENTS), ("1000", 1000)):
        corpus = found["corpora"][name]
        assert corpus["documents"] == documents
        assert corpus["certified_share"] == corpus["equal_to_brute_force"] == 1
        assert corpus["recall_at_10"]["exact"] == 1
        assert corpus["exact_over_flat_scan"] > 0
        assert corpus["bytes_per_document"] > 4 * 128
        assert corpus["memory"]["proportional_set_gb"] > 0.05
    curves = found["corpora"]["1000"]["curves"]
    assert [point["matching"] for point in curves["share"].values()][-1] == 1000
    assert all(
        point["equal_to_brute_force"] == 1
        for points in curves.values()
        for point in points.values()
    )
    assert found["machine"]["cores"] == 1
    # So few documents have no fast mode.
    assert (code, found["held"]["all"]) == (1, False)
    assert (out / "summary.json").is_file()

    _, again, output = run(data, out)
    assert '"training"' not in output
    assert '"encode"' not in output
    assert again["corpora"]["1000"]["bytes"] == found["corpora"]["1000"]["bytes"]


@pytest.mark.slow
def test_sizes_are_measured_and_served(data: Path, tmp_path: Path) -> None:
    command = ["--json", "--sizes", "1000,2000", "--queries", "25", "--seconds", "2"]
    command += ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.performance.sizes",
            *command,
            "--swap",
            "1000",
            "--compact",
            "1000",
        ],
        env={**os.environ, "FULLRANK_DATA": str(data)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["certified_share"] for row in found["sizes"]] == [1, 1]
    [table] = found["tables"]
    lines = {line[0]: line[1:] for line in table["rows"]}
    assert float(lines["bytes on disk, GB"][0]) < float(lines["bytes on disk, GB"][1])
    for what in ("swap", "compact"):
        during = found["served"][what][what]
        assert (during["failed"], during["searches"] > 0) == (0, True)
