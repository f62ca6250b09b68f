"""Run commands in tests: the result of one, and training that is replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pytest


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
