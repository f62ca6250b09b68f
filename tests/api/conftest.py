"""Fixtures of the HTTP tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.api.support import at, make_bundle, running


@dataclass(frozen=True)
class Root:
    """A folder with two models over the same documents."""

    path: Path
    learned: str
    bm25: str


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """The learned one is the newer and serves."""
    bm25 = make_bundle(tmp_path, "bm25", created=at(1))
    learned = make_bundle(tmp_path, "learned", n_dense=8, created=at(2))
    return Root(tmp_path, learned, bm25)


@pytest.fixture
async def client(root: Root) -> AsyncIterator[httpx.AsyncClient]:
    async with running(root.path) as client:
        yield client
