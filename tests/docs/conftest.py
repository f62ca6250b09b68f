"""What the pages of the documentation share: a process that runs commands, and a trained shop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.forking import fork_server
from tests.docs.given import made_once, make_shop
from tests.docs.shell import Shell


@pytest.fixture(scope="session")
def fork_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fork_server(tmp_path_factory.mktemp("fork")) as path:
        yield path


@pytest.fixture(scope="session")
def made_shop(fork_socket: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder with the shop, that no test may change."""
    base = tmp_path_factory.getbasetemp()

    def make(folder: Path) -> None:
        with Shell(folder, fork_socket, {}) as shell:
            make_shop(shell)

    return made_once((base if worker_id == "master" else base.parent) / "docs-shop", make)
