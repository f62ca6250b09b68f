"""Run commands in tests: the result of one, and training that is replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from fullrank import cli


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


def stub_training(monkeypatch: pytest.MonkeyPatch, train: Callable[..., object]) -> None:
    training = ModuleType("fullrank_trainer.train")
    training.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fullrank_trainer.train", training)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""

    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fullrank", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured = capsys.readouterr()
        code = exit_.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call
