"""Operators see the votes of people who were not erased."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fullrank.events.log import erase
from fullrank_service.experiments.status import Reports
from tests.unit.service.experiments.test_loop import Case


def test_votes_of_an_erased_person_are_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path)
    clock = SimpleNamespace(time=lambda: case.now, monotonic=time.monotonic)
    monkeypatch.setattr("fullrank_service.experiments.status.time", clock)
    case.step()
    case.vote(case.old, case.new, 3, 2)
    assert case.experiment is not None
    experiment = case.experiment
    workers = [Reports(case.root, case.log.folder) for _ in range(2)]

    def count(worker: Reports) -> int:
        found = asyncio.run(worker.votes(case.old, experiment))
        return int(found["wins"] + found["losses"])

    assert [count(worker) for worker in workers] == [5, 5]
    # Without an erasure they are counted again after a while.
    case.vote(case.old, case.new, 1, 0)
    assert [count(worker) for worker in workers] == [5, 5]
    # This person voted in both rounds, for one query and on one day: one vote of five.
    erase(case.log.folder, ["u0"], time.time() + 60)
    assert [count(worker) for worker in workers] == [4, 4]
