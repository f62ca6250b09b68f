"""A function in a process of its own, and the words for how a process ended."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from fullrank.errors import FullrankError, describe_exit
from fullrank_trainer.workers import Worker


def test_a_worker_imports_from_where_its_starter_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the working directory: a project may well have a package called trainer."""
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
        code = f"def work(connection): connection.send({folder!r})"
        (tmp_path / folder / "planted.py").write_text(code)
    monkeypatch.chdir(tmp_path / "theirs")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "ours"), *filter(None, sys.path)])
    with Worker("planted:work", "plants") as worker:
        assert worker.receive() == "ours"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import os
def echo(connection):
    while True:
        connection.send(connection.recv())
def leave(connection):
    os._exit(int(connection.recv()))
def refuse(connection):
    connection.send(ValueError(connection.recv()))
"""
    (tmp_path / "planted.py").write_text(code)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *filter(None, sys.path)])


@pytest.mark.usefixtures("planted")
def test_messages_go_both_ways_and_the_process_ends_with_its_pipe() -> None:
    with Worker("planted:echo", "echoes") as worker:
        for message in ("a", ["b"]):
            worker.send(message)
            assert worker.receive() == message
    assert worker.process.poll() == -signal.SIGKILL


@pytest.mark.usefixtures("planted")
def test_the_error_of_a_dead_worker_has_its_process_id_and_exit_code() -> None:
    with Worker("planted:leave", "leaves") as worker:
        worker.send("7")
        ending = rf"the process that leaves \(pid {worker.process.pid}\) exited with code 7;"
        with pytest.raises(FullrankError, match=ending):
            worker.receive()


@pytest.mark.usefixtures("planted")
def test_an_exception_that_a_worker_sends_is_raised() -> None:
    with Worker("planted:refuse", "refuses") as worker:
        worker.send("no")
        with pytest.raises(ValueError, match="no"):
            worker.receive()


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exited with code 0"), (3, "exited with code 3"), (-9, "was killed by SIGKILL")],
)
def test_exit_codes_in_words(code: int, words: str) -> None:
    assert describe_exit(code) == words
