"""Fixtures of the command line: a folder of bundles, a collection, and a way to run a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fullrank.models import registry as kinds
from tests.bundles import write_bundle
from tests.databases import new_database as new_database
from tests.databases import postgres_server as postgres_server
from tests.unit.cli.counting import DOCUMENTS, CountingModel
from tests.unit.cli.running import run as run


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture(scope="module", autouse=True)
def _train_fast(few_made_up_words: None) -> None:
    """Calibrate floors quickly."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of bundles that holds one version of one model."""
    monkeypatch.setitem(kinds.KINDS, "counting", lambda _: CountingModel())
    folder = tmp_path / "bundles"
    counting = CountingModel()
    encoded = counting.encode_documents([item.texts(["text"]) for item in DOCUMENTS])
    write_bundle(
        folder,
        "mine",
        model=counting,
        encoded=encoded,
        documents=DOCUMENTS,
        golden_queries=["ant", "bee cat"],
        card={"recipe": "counting", "author": "é", "metrics": {"mrr": 0.5}},
    )
    return folder


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": item.id, **item.fields} for item in DOCUMENTS]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in corpus))
    queries = [{"_id": "q1", "text": "ant"}, {"_id": "q2", "text": "bee"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in queries))
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "test.tsv").write_text(header + "q1\ta\t1\nq2\tb\t1\nq2\tb\t1\n")
    (folder / "qrels" / "train.tsv").write_text(header + "q2\ta\t1\n")
    return folder
