"""The loop does what is due, once, and survives being killed."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any
from unittest.mock import Mock

import pytest

from fullrank.errors import BundleNotFound, FullrankError
from fullrank.events.decisions import DECISIONS, LOOP_LOCK, Verdict, read_decisions
from fullrank.events.log import EVENTS, LISTS, EventLog
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank_service.base.experiment import Experiment
from fullrank_service.documents.sqlitelog import SqliteLog
from fullrank_service.experiments.loop import FACE_DAYS, Loop, LoopRuns, Options
from fullrank_service.experiments.status import read_status, status_of
from fullrank_service.models.state import read_state
from fullrank_service.models.swap import Swap, SwapFailed, SwapRefused
from tests.bundles import at, make_bundle

DAY = 86_400.0


class Case:
    """Two versions of one model; the first serves."""

    def __init__(self, folder: Path, *, is_pinned: bool = True) -> None:
        self.root = folder / "bundles"
        self.old = make_bundle(self.root, "shop", created=at(1))
        self.swap = Swap(self.root)
        if is_pinned:
            self.swap.activate(self.old)
        self.new = make_bundle(self.root, "shop", created=at(2), n_dense=2)
        self.log = EventLog(self.root / ".events")
        self.click()
        self.asked: list[Sequence[str]] = []
        self.answer: tuple[int, str] = 0, json.dumps({"published": self.new})
        self.now = time.time()

    def run(self, arguments: Sequence[str], lock: int, output: IO[bytes] | None) -> int:
        self.asked.append(arguments)
        code, text = self.answer
        if output is not None:
            output.write(text.encode())
        return code

    def step(self, **options: Any) -> dict[str, Any]:
        given = Options(**options)
        return Loop(
            self.root, "shop", self.log, given, swap=self.swap, run=self.run, clock=lambda: self.now
        ).step()

    def click(self) -> None:
        writer = SegmentWriter(self.log.folder, EVENTS)
        writer.append([Event("click", 1.0, {}).line()])
        writer.close()

    def vote(self, active: str, candidate: str, wins: int, losses: int) -> list[bool]:
        """Log interleaved lists, each with one click, and wait for midnight; return who won each, in their order."""
        lists, events = [], []
        begun = time.time()
        # In any order, as people vote.
        won = [True] * wins + [False] * losses
        random.Random(1).shuffle(won)
        for i, is_win in enumerate(won):
            id, at = f"{active} {candidate} {i} {begun}", begun + 0.001 * (i + 1)
            who = {"user_id": f"u{i}"}
            lists.append(
                ServedList(
                    id, at, "copy", ["x", "y"], model=active, candidate=candidate, teams="ab",
                    texts=who,
                )
            )  # fmt: skip
            events.append(Event("click", at, {"query_id": id, **who}, "y" if is_win else "x"))
        for kind, lines in (
            (LISTS, [served.line() for served in lists]),
            (EVENTS, [event.line() for event in events]),
        ):
            writer = SegmentWriter(self.log.folder, kind)
            writer.append(lines)
            writer.close()
        self.now = max(self.now, (begun // DAY + 1) * DAY)
        return won

    @property
    def experiment(self) -> Experiment | None:
        state = read_state(self.root)
        assert state is not None
        return state.experiment

    @property
    def active(self) -> str | None:
        state = read_state(self.root)
        assert state is not None
        return state.version


def _refuse(*_: Any) -> None:
    raise SwapRefused("no worker has room for it")


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_candidate_begins_an_experiment(case: Case) -> None:
    assert case.step(retrain=["--time", "1m"])["did"] == "began an experiment"
    [arguments] = case.asked
    assert arguments[:2] == ["retrain", case.old]
    assert arguments[-3:] == ["--time", "1m", "--json"]
    assert case.experiment is not None
    assert case.experiment.candidate == case.new
    assert case.active == case.old
    # Votes are open: nothing is due.
    assert case.step()["did"] == "nothing"
    assert len(case.asked) == 1
    did = [made["did"] for made in read_decisions(case.root)]
    assert did == ["trained", "began an experiment"]


def test_a_candidate_that_cannot_begin_is_not_trained_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(case.swap, "start_experiment", _refuse)
        for _ in range(3):
            with pytest.raises(SwapRefused):
                case.step()
    assert len(case.asked) == 1
    assert case.active == case.old
    assert case.step()["did"] == "began an experiment"
    assert len(case.asked) == 1
    # Once it was tried, the next one is trained a day later.
    case.swap.stop_experiment()
    assert case.step()["because"] == "trained lately"


def test_what_serves_is_pinned_before_a_candidate_is_published(tmp_path: Path) -> None:
    case = Case(tmp_path, is_pinned=False)
    newest = case.new

    def train(arguments: Sequence[str], lock: int, output: IO[bytes] | None) -> int:
        assert output is not None
        assert arguments[1] == case.active == newest
        case.new = make_bundle(case.root, "shop", created=at(3), n_dense=3)
        output.write(json.dumps({"published": case.new}).encode())
        return 0

    case.run = train  # type: ignore[method-assign]
    assert case.step()["did"] == "began an experiment"
    assert case.active == newest


def test_live_documents_are_compacted_before_a_training(case: Case) -> None:
    SqliteLog(case.root / "documents.sqlite").close()
    case.step()
    compacted, trained = case.asked
    assert compacted[:3] == ["bundles", "compact", str(case.root / "shop" / case.old)]
    assert trained[:2] == ["retrain", case.old]


def test_a_decision_that_a_kill_cut_short_is_noted_once(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.step()
    case.vote(case.old, case.new, 40, 10)
    with monkeypatch.context() as patch:
        # As a process that dies after it wrote the decision: nothing is taken back.
        patch.setattr(case.swap, "promote", _die)
        with pytest.raises(KeyboardInterrupt):
            case.step()
    assert case.active == case.old
    assert case.step()["did"] == "promoted"
    did = [made["did"] for made in read_decisions(case.root)]
    assert did == ["trained", "began an experiment", "promoted"]


def test_a_decision_that_failed_is_not_noted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.step()
    case.vote(case.old, case.new, 40, 10)
    before = (case.root / DECISIONS).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(case.swap, "promote", _refuse)
        with pytest.raises(SwapRefused):
            case.step()
    assert (case.root / DECISIONS).read_bytes() == before


def test_a_winner_serves_and_faces_the_version_before(case: Case) -> None:
    case.step()
    won = case.vote(case.old, case.new, 40, 10)
    done = case.step()
    assert done["did"] == "promoted"
    counted = won[: done["wins"] + done["losses"]]
    assert (counted.count(True), counted.count(False)) == (done["wins"], done["losses"])
    assert done["e_value"] >= 20
    assert case.active == case.new
    assert case.experiment is not None
    assert (case.experiment.candidate, case.experiment.max_days) == (case.old, FACE_DAYS)
    # Old votes do not count in the new experiment.
    assert case.step()["did"] == "nothing"
    case.vote(case.new, case.old, 30, 2)
    assert case.step()["did"] == "rolled back"
    assert case.active == case.old
    assert case.experiment is None


def test_a_winner_that_holds_stays(case: Case) -> None:
    case.step()
    case.vote(case.old, case.new, 40, 10)
    case.step()
    case.now += (FACE_DAYS + 0.1) * DAY
    assert case.step()["did"] == "defended: ended undecided"
    assert case.active == case.new
    assert case.experiment is None


def test_a_loser_is_stopped(case: Case) -> None:
    case.step()
    case.vote(case.old, case.new, 3, 40)
    assert case.step()["did"] == "stopped"
    assert case.active == case.old
    assert case.experiment is None
    # The next training is a day away.
    assert case.step()["because"] == "trained lately"
    case.now += 1.1 * DAY
    assert case.step()["did"] == "began an experiment"


def test_an_undecided_experiment_ends_in_time(case: Case) -> None:
    case.step(max_days=2)
    case.vote(case.old, case.new, 5, 5)
    assert case.step()["did"] == "nothing"
    case.now += 2.1 * DAY
    assert case.step()["did"] == "ended undecided"
    assert case.active == case.old
    assert case.experiment is None


@pytest.mark.parametrize(
    ("answer", "did"),
    [
        ((1, '{"published": null, "gates": []}'), "trained, not published"),
        ((1, ""), "could not train"),
        ((2, "usage"), "could not train"),
        ((-9, ""), "could not train"),
    ],
)
def test_a_training_that_brings_nothing_is_noted(
    case: Case, answer: tuple[int, str], did: str
) -> None:
    case.answer = answer
    assert case.step()["did"] == did
    assert case.experiment is None
    because = "a training failed lately" if did == "could not train" else "trained lately"
    assert case.step()["because"] == because
    assert read_decisions(case.root)[-1]["did"] == did


def test_an_empty_log_is_looked_at_again(case: Case) -> None:
    shutil.rmtree(case.log.folder)
    assert "no clicks to train on" in case.step()["because"]
    assert not case.asked
    assert not read_decisions(case.root)
    case.click()
    assert case.step()["did"] == "began an experiment"


def test_a_clock_that_was_set_back_does_not_stop_trainings(case: Case) -> None:
    case.answer = 1, '{"published": null}'
    case.step()
    case.now -= 100 * DAY
    assert case.step()["did"] == "trained, not published"


def test_a_failed_training_is_no_success(case: Case) -> None:
    """Nor are the steps that wait for the next training."""
    lock = case.root / LOOP_LOCK
    good, case.answer = case.answer, (1, "")
    case.step()
    os.utime(lock, (0, 0))
    case.now += 2 * DAY
    case.step()
    assert case.step()["because"] == "a training failed lately"
    assert lock.stat().st_mtime == 0
    case.answer = good
    case.now += 2 * DAY
    case.step()
    assert lock.stat().st_mtime > time.time() - 60


def test_a_training_beside_another_one_is_tried_again(case: Case) -> None:
    """`fullrank retrain` that somebody began by hand excludes that of the loop."""
    good, case.answer = case.answer, (75, "")
    assert case.step()["because"] == "another training runs"
    assert read_decisions(case.root) == []
    case.answer = good
    assert case.step()["did"] == "began an experiment"


def test_a_step_that_fails_is_tried_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.step()
    case.vote(case.old, case.new, 40, 10)

    full = Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr("fullrank_service.models.swap.write_state", full)
        with pytest.raises(SwapFailed):
            case.step()
    assert case.active == case.old
    assert case.step()["did"] == "promoted"


def test_one_process_runs_the_loop(case: Case) -> None:
    with (case.root / ".loop.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(LoopRuns):
            case.step()
    assert case.step()["did"] == "began an experiment"


def test_another_model_that_serves_is_left_alone(tmp_path: Path) -> None:
    case = Case(tmp_path, is_pinned=False)
    other = make_bundle(case.root, "other", created=at(3))
    case.swap.activate(other)
    with pytest.raises(BundleNotFound, match="no version of shop"):
        case.step()


def test_the_loop_of_another_collection_leaves_the_default_alone(case: Case) -> None:
    other = make_bundle(case.root, "other", created=at(3))
    case.swap.activate(other)
    assert case.step()["did"] == "began an experiment"
    state = read_state(case.root)
    assert state is not None
    assert (state.version, state.experiment) == (other, None)
    assert state.collections["shop"].experiment is not None
    assert case.step()["because"] == "an experiment is open"


def test_damaged_decisions_are_not_overwritten(case: Case) -> None:
    (case.root / DECISIONS).write_text("[1")
    with pytest.raises(FullrankError, match=DECISIONS):
        case.step()
    assert (case.root / DECISIONS).read_text() == "[1"


def test_the_status_draws_the_evidence(case: Case) -> None:
    assert read_status(case.root, case.log) is None
    case.step()
    case.vote(case.old, case.new, 30, 30)
    assert case.experiment is not None
    found = status_of(case.old, case.experiment, case.log, case.now)
    assert found.wins + found.losses == len(found.e_values)
    assert found.e_values[-1][1] == found.e_value
    assert found.verdict is Verdict.OPEN


def test_the_votes_of_a_day_count_when_it_is_over(case: Case) -> None:
    case.step()
    case.vote(case.old, case.new, 12, 0)
    case.now, midnight = time.time(), case.now
    found = case.step()
    assert (found["did"], found["wins"]) == ("nothing", 0)
    case.now = midnight
    assert case.step()["did"] == "promoted"


def test_an_experiment_that_has_expired_counts_the_votes_of_its_last_day(case: Case) -> None:
    case.step(max_days=0.01)
    won = case.vote(case.old, case.new, 3, 1)
    assert case.experiment is not None
    end = case.experiment.started + 0.01 * DAY
    found = status_of(case.old, case.experiment, case.log, end + 1)
    assert (found.expired, found.wins + found.losses) == (True, len(won))


def test_a_sharded_bundle_is_refused(case: Case) -> None:
    (case.root / "shop" / case.old / "manifest.json").rename(
        case.root / "shop" / case.old / "set.json"
    )
    with pytest.raises(BundleNotFound, match="the loop does not train sharded bundles"):
        case.step()
    assert case.asked == []
