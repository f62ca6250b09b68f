"""Fixtures of the HTTP tests."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.api.support import Client, at, make_bundle, running
from tests.databases import new_database as new_database
from tests.databases import postgres_server as postgres_server
from tests.unit.cli.running import Outcome, Run
from tests.unit.cli.running import run as run


@dataclass(frozen=True)
class Root:
    """A folder with two models over the same documents."""

    path: Path
    learned: str
    bm25: str


@pytest.fixture(scope="session")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Bundles that no test may change. The learned one is the newer and serves."""
    path = tmp_path_factory.mktemp("two-models")
    bm25 = make_bundle(path, "bm25", created=at(1))
    learned = make_bundle(path, "learned", n_dense=8, created=at(2))
    return Root(path, learned, bm25)


@pytest.fixture
def root(two_models: Root, tmp_path: Path) -> Root:
    return copy_of(two_models, tmp_path)


def copy_of(root: Root, folder: Path) -> Root:
    """A copy of both bundles, without what services over the originals have logged."""
    ignore = shutil.ignore_patterns(".events*", "..events*")
    shutil.copytree(root.path, folder, dirs_exist_ok=True, ignore=ignore)
    return replace(root, path=folder)


@pytest.fixture
async def client(root: Root) -> AsyncIterator[Client]:
    async with running(root.path) as client:
        yield client


@pytest.fixture(scope="module")
async def reader(
    two_models: Root, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    """One service for all tests of a module that leave it as it is."""
    async with running(copy_of(two_models, tmp_path_factory.mktemp("reader")).path) as client:
        yield client


@pytest.fixture
def refusal(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Outcome]:
    """Runs `fullrank serve` in this process, which must not start to serve."""

    def started(*_: object) -> None:
        raise AssertionError("the service has started")

    monkeypatch.setattr("fullrank_service.process.run.run", started)
    monkeypatch.setattr("os.execv", started)
    return lambda: run("serve")
