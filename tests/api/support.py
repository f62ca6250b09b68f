"""Run the service over small bundles, in this process or in its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI
from pydantic import TypeAdapter

from fullrank.replies import SearchReply
from fullrank_service.app import create_app
from fullrank_service.base.settings import Settings
from fullrank_service.http.keys import SCOPES
from fullrank_service.models.registry import Registry
from fullrank_service.models.routes import ModelsReply
from fullrank_service.models.workers import reports
from tests.bundles import CORPUS as CORPUS
from tests.bundles import at as at
from tests.bundles import linear_model as linear_model
from tests.bundles import make_bundle as make_bundle
from tests.ports import free_port as free_port
from tests.waiting import LONG_S

KEY = f"fr_test_{'k' * 43}"
AUTH = {"Authorization": f"Bearer {KEY}"}
# What tests may do without a key, so that few of them need to know of keys.
ANONYMOUS = "search,ingest,events"
# A busy machine makes requests slow, and a service refuses what it expects to miss the deadline.
DEADLINE_MS = 60_000


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


class GivenSettings(Settings):
    """Settings that do not read the environment, which takes longer than all else that an app does at its start."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: Any, init_settings: Any, *_: Any, **others: Any
    ) -> tuple[Any, ...]:
        return (init_settings,)


def settings_for(root: Path, **changes: Any) -> Settings:
    """Settings of a test app, whatever the environment says."""
    return GivenSettings.model_validate(
        {
            **Settings.defaults().model_dump(),
            "bundles": root,
            "keys": keys_beside(root),
            "anonymous": ANONYMOUS,
            "allowed_hosts": "*",
            "deadline_ms": DEADLINE_MS,
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
        "FULLRANK_ALLOWED_HOSTS": "*",
        "FULLRANK_DEADLINE_MS": str(DEADLINE_MS),
        "FULLRANK_LOG_LEVEL": "warning",
        **changes,
    }


class Client(httpx.AsyncClient):
    """A client that talks to an app without a socket."""

    def __init__(self, app: FastAPI) -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        super().__init__(transport=transport, base_url="http://test")
        self.app = app

    @property
    def root(self) -> Path:
        """The folder of bundles."""
        return Path(self.app.state.shared.settings.bundles)

    async def search(self, query: str, **body: Any) -> dict[str, Any]:
        """The reply to a search, checked against its schema and headers."""
        response = await self.post("/v1/search", json={"query": query, **body})
        reply: dict[str, Any] = ok(response)
        TypeAdapter(SearchReply).validate_json(response.content)
        assert response.headers["X-Model-Version"] == reply["model"]
        assert response.headers["X-Model-Generation"] == str(reply["generation"])
        return reply

    async def write(self, id: str, fields: Mapping[str, Any]) -> int:
        """Write a document; gives its sequence number."""
        return int(ok(await self.put(f"/v1/documents/{id}", json=fields))["seq"])


def ok(response: httpx.Response) -> Any:
    """The body of an answer with 200."""
    assert response.status_code == 200, response.text
    return response.json()


def ids(reply: Mapping[str, Any]) -> list[str]:
    """The ids of the hits, best first."""
    return [hit["id"] for hit in reply["hits"]]


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[Client]:
    """A client of an app that it starts and ends."""
    async with app.router.lifespan_context(app), Client(app) as client:
        yield client


@asynccontextmanager
async def running(root: Path, **changes: Any) -> AsyncIterator[Client]:
    """An app over a folder of bundles."""
    async with client_of(create_app(settings_for(root, **changes))) as client:
        yield client


class Bridge(httpx.BaseTransport):
    """Sends the requests of a synchronous client to an app in this process."""

    def __init__(self, portal: BlockingPortal, transport: httpx.ASGITransport) -> None:
        self._portal, self._transport = portal, transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._portal.call(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        sent = httpx.Request(
            request.method, request.url, headers=request.headers, content=request.content
        )
        reply = await self._transport.handle_async_request(sent)
        return httpx.Response(reply.status_code, headers=reply.headers, content=await reply.aread())


@contextmanager
def bridged(app: FastAPI) -> Iterator[Bridge]:
    """Start an app for synchronous clients; ends it."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
    ):
        yield Bridge(portal, httpx.ASGITransport(app))


async def rules_applied(client: Client, collection: str, ids: Collection[str]) -> None:
    """Wait until the searches of a client's app follow exactly these rules of a collection."""
    rules = client.app.state.rules
    async with asyncio.timeout(10):
        while rules.ids(collection) != set(ids):
            await asyncio.sleep(0.005)


@contextmanager
def served(root: Path, *, workers: int = 1, **environment: str) -> Iterator[str]:
    """The real server as a process of its own; gives its address once all its workers have started."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "fullrank_service.process.run"],
        env=environment_for(root, port, FULLRANK_WORKERS=str(workers), **environment),
        cwd=Path(__file__).resolve().parents[2],
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url + "/livez", process)
        wait_for_workers(root, workers)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(LONG_S)


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


def wait_for_workers(root: Path, workers: int, seconds: float = 60) -> None:
    """Until so many workers answer. Raises RuntimeError when time runs out."""
    end = time.monotonic() + seconds
    while sum(report.started for report in reports(root)) < workers:
        if time.monotonic() >= end:
            raise RuntimeError(f"fewer than {workers} workers started in {seconds} s")
        time.sleep(0.02)


def find_redis_server() -> str:
    """Find the system's redis-server, or skip the test."""
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("needs redis-server on PATH (Debian: apt-get install redis-server)")
    return found


@contextmanager
def redis_process(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A real Redis on a Unix socket of its own; gives its address and process."""
    path = folder / "redis.sock"
    process = subprocess.Popen(
        [
            find_redis_server(),
            "--port",
            "0",
            "--unixsocket",
            str(path),
            "--save",
            "",
            "--dir",
            folder,
        ],
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
        process.wait(LONG_S)


def answer_of(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an answer that do not name the moment it was given."""
    return {key: reply[key] for key in reply if key not in ("query_id", "took_ms")}


async def activate(client: Client, version: str) -> httpx.Response:
    """Ask for a version to serve."""
    return await client.put("/v1/models/aliases/default", json={"version": version}, headers=AUTH)


async def models(client: Client) -> dict[str, Any]:
    """What /v1/models lists, checked against its schema."""
    reply: dict[str, Any] = ok(await client.get("/v1/models", headers=AUTH))
    ModelsReply.model_validate(reply)
    return reply


async def serving(client: Client) -> str:
    """The version that answers a search now."""
    return str((await client.search("copy"))["model"])


def registry(client: Client) -> Registry:
    """The registry of the app behind a client without a socket."""
    return cast(Registry, client.app.state.models)


async def until(ask: Any, answer: Any) -> None:
    """Ask until the answer comes; fail after ten seconds."""
    async with asyncio.timeout(10):
        while await ask() != answer:
            await asyncio.sleep(0.02)
