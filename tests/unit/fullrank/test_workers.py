"""Worker processes: what they import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fullrank.workers import Worker


def test_a_worker_imports_from_where_its_starter_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what happens to lie in the working directory: a project may well have a package called trainer."""
    code = "from multiprocessing.connection import Connection\ndef work(end): Connection(end).send({!r})"
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "planted.py").write_text(code.format(folder))
    monkeypatch.chdir(tmp_path / "theirs")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "ours"), *filter(None, sys.path)])
    worker = Worker.start("planted")
    try:
        assert worker.connection.poll(60)
        assert worker.connection.recv() == "ours"
    finally:
        worker.kill()
        worker.connection.close()
