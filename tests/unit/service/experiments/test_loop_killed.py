"""The loop is killed: what it had begun goes on, and the next loop takes it up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fullrank.bundle.catalog import publish
from fullrank.events.decisions import read_decisions
from fullrank_service.experiments.loop import LoopRuns
from tests.bundles import make_bundle
from tests.unit.service.experiments.test_loop import Case
from tests.waiting import LONG_S, wait_until

# Stands for `fullrank retrain`: notes its process id, publishes a version that lies ready, and prints the report.
TRAINING = """
import json, os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
with (folder / "pids").open("a") as file:
    print(os.getpid(), file=file)
while not (folder / "go").exists():
    time.sleep(0.01)
report = json.loads((folder / "report").read_text())
if report["published"] is not None:
    (folder / "ready").rename(folder / "bundles" / "shop" / report["published"])
if (folder / "kill-both").exists():
    os.kill(os.getppid(), 9)
    os.kill(os.getpid(), 9)
print(json.dumps(report))
"""
# One step of a loop, which kills itself before a call of a function.
LOOP = """
import os, sys
from pathlib import Path
from fullrank.events.log import EventLog
from fullrank_service.experiments import loop, loop as training

folder, owner, name, left = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
training.FULLRANK = (sys.executable, str(folder / "training.py"), str(folder))

def killing(function):
    def call(*args, **more):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return function(*args, **more)
    return call

owner = getattr(loop, owner)
setattr(owner, name, killing(getattr(owner, name)))
loop.Loop(folder / "bundles", "shop", EventLog(folder / "bundles/.events"), loop.Options()).step()
"""


class Killed(Case):
    """A folder in which a loop is begun as a process; `step` of this process is the next loop."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        (folder / "training.py").write_text(TRAINING)
        later = datetime.now(UTC) + timedelta(minutes=1)
        staged = make_bundle(folder / "staged", "shop", created=later, n_dense=3)
        facts = {"clicks": {"active": self.old, "gates": []}}
        ready = publish(folder / "staged" / "shop" / staged, folder / "other", facts)
        self.new = ready.name
        ready.rename(folder / "ready")
        self.report(self.new)

    def report(self, published: str | None) -> None:
        found = {"published": published, "active": self.old, "gates": list[str]()}
        (self.folder / "report").write_text(json.dumps(found))

    def begin(self, call: str, left: int = 0) -> subprocess.Popen[bytes]:
        arguments = [str(self.folder), *call.split("."), str(left)]
        path = os.pathsep.join(sys.path)
        return subprocess.Popen(
            [sys.executable, "-c", LOOP, *arguments], env={**os.environ, "PYTHONPATH": path}
        )

    def go(self) -> None:
        (self.folder / "go").touch()

    @property
    def trainings(self) -> list[int]:
        try:
            return [int(line) for line in (self.folder / "pids").read_text().split()]
        except FileNotFoundError:
            return []

    @property
    def done(self) -> list[str]:
        return [made["did"] for made in read_decisions(self.root)]


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    case = Killed(tmp_path)
    yield case
    # A training that still waits ends.
    case.report(None)
    case.go()


def test_a_training_outlives_its_loop_and_keeps_others_out(killed: Killed) -> None:
    loop = killed.begin("Loop._try")
    wait_until(lambda: killed.trainings, "a training has begun")
    loop.send_signal(signal.SIGKILL)
    assert loop.wait(LONG_S) == -signal.SIGKILL
    # The training runs; another one would remove its folder.
    for _ in range(3):
        with pytest.raises(LoopRuns):
            killed.step()
    assert killed.done == []
    killed.go()
    wait_until(lambda: _has_ended(killed), "the loop can go on")
    assert killed.experiment is not None
    assert killed.experiment.candidate == killed.new
    assert killed.done == ["trained", "began an experiment"]
    assert (len(killed.trainings), killed.asked) == (1, [])


def _has_ended(killed: Killed) -> bool:
    try:
        killed.step()
    except LoopRuns:
        return False
    return True


@pytest.mark.parametrize(
    ("call", "left"),
    [
        pytest.param("Loop._note", 0, id="published, not noted"),
        pytest.param("TrainingFile.remove", 1, id="noted, and its file is there"),
        pytest.param("Loop._try", 0, id="noted, no experiment"),
        pytest.param("Loop._note_experiment", 0, id="experiment started, not noted"),
    ],
)
def test_the_next_loop_takes_up_what_was_published(killed: Killed, call: str, left: int) -> None:
    killed.go()
    assert killed.begin(call, left).wait(LONG_S) == -signal.SIGKILL
    assert (killed.root / "shop" / killed.new).is_dir()
    killed.step()
    assert killed.step()["because"] == "an experiment is open"
    assert killed.experiment is not None
    assert killed.experiment.candidate == killed.new
    assert killed.active == killed.old
    assert killed.done == ["trained", "began an experiment"]
    # Once it has ended, it does not begin again.
    killed.swap.stop_experiment()
    assert killed.step()["because"] == "trained lately"
    assert (len(killed.trainings), killed.asked) == (1, [])


def test_a_version_whose_training_was_killed_after_it_is_taken_up(killed: Killed) -> None:
    (killed.folder / "kill-both").touch()
    killed.go()
    assert killed.begin("Loop._try").wait(LONG_S) == -signal.SIGKILL
    assert killed.step()["did"] == "began an experiment"
    assert killed.done == ["trained", "began an experiment"]
    assert (len(killed.trainings), killed.asked) == (1, [])


def test_a_training_that_published_nothing_is_not_repeated(killed: Killed) -> None:
    killed.report(None)
    killed.go()
    assert killed.begin("Loop._note").wait(LONG_S) == -signal.SIGKILL
    assert killed.step()["because"] == "trained lately"
    assert killed.done == ["trained, not published"]
    assert killed.asked == []


def test_a_training_that_was_killed_too_is_repeated(killed: Killed) -> None:
    loop = killed.begin("Loop._try")
    wait_until(lambda: killed.trainings, "a training has begun")
    loop.send_signal(signal.SIGKILL)
    loop.wait(LONG_S)
    os.kill(killed.trainings[0], signal.SIGKILL)
    killed.answer = 0, '{"published": null}'
    wait_until(lambda: _has_ended(killed), "the loop can go on")
    assert [arguments[:2] for arguments in killed.asked] == [["retrain", killed.old]]
