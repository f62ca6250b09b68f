"""Take the next step: train a candidate, follow its experiment, promote it or roll back.

    an experiment runs    its votes promote the candidate, stop it, or its time ends
    a candidate won       it serves, and faces the version before it in the same test for three days
    nothing runs          once a day `fullrank retrain` makes a candidate, which then begins an experiment

Each step ends with one atomic change of a file, and begins by reading what is there; so the loop may be killed at any
moment, and called as often as one likes. A training goes on when its loop is killed; no other loop begins until it has
ended, and the next one takes up what it published. loop.json beside the bundles has the decisions and
their numbers.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from fullrank.bundle import find_bundle, list_bundles
from fullrank.bundle.manifest import MANIFEST
from fullrank.errors import BundleNotFound, FullrankError
from fullrank.events.decisions import (
    LOOP_LOCK,
    MAX_DAYS,
    SHARE,
    Verdict,
    candidate_of,
    read_decisions,
    write_decisions,
)
from fullrank.events.log import EventLog
from fullrank.storage.files import sync_folder
from fullrank.storage.strict_json import parse_time
from fullrank_service.base.settings import Settings
from fullrank_service.documents.sqlitelog import place_of
from fullrank_service.experiments.status import Status, status_of
from fullrank_service.models.state import read_state
from fullrank_service.models.swap import Swap, serving_version

# The training that the loop begins: a process of its own, which may outlive the loop.
#
# Its file has one line that says what was begun, then what the process printed. The process keeps the lock of the
# loop. So a loop that has the lock and finds the file knows: the training has ended, and nobody has acted on its
# result.

FULLRANK = (sys.executable, "-m", "fullrank")


@dataclass(frozen=True)
class Begun:
    """A training that was begun at a time, and what `fullrank retrain` printed; None if it ended without a report."""

    active: str
    at: float
    report: dict[str, Any] | None


class TrainingFile:
    """The file of the training of one model."""

    def __init__(self, root: Path, name: str) -> None:
        self._root, self._name = root, name
        self._path = root / f".loop.{name}.training"

    @contextmanager
    def begin(self, active: str, at: float) -> Iterator[IO[bytes]]:
        """Write what is begun; yield the file for the output of the process."""
        with self._path.open("wb", buffering=0) as file:
            file.write(orjson.dumps({"active": active, "at": at}) + b"\n")
            os.fsync(file.fileno())
            sync_folder(self._root)
            yield file

    def printed(self) -> str:
        """Return what the process printed."""
        return self._path.read_bytes().partition(b"\n")[2].decode()

    def read(self) -> Begun | None:
        """Return what was begun; None without a file, or if the loop was killed before the training began."""
        try:
            line, _, printed = self._path.read_bytes().partition(b"\n")
            begun = orjson.loads(line)
            active, at = str(begun["active"]), float(begun["at"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        try:
            report = orjson.loads(printed)
        except ValueError:
            # It was killed, or failed; it may have published a version before that.
            return Begun(active, at, self._published(active, at))
        return Begun(active, at, report if isinstance(report, dict) else None)

    def remove(self) -> None:
        """Remove the file: its result was noted."""
        self._path.unlink(missing_ok=True)

    def _published(self, active: str, at: float) -> dict[str, Any] | None:
        for info in list_bundles(self._root):
            facts = info.card.get("clicks", {})
            is_new = parse_time(info.created) >= at
            if is_new and info.name == self._name and facts.get("active") == active:
                return {"published": info.version, **facts}
        return None


def run_fullrank(arguments: Sequence[str], lock: int, output: IO[bytes] | None) -> int:
    """Run a command in a process of its own, so that its memory is free again, and return its exit code.

    Args:
        arguments: Of `fullrank`.
        lock: Descriptor of the lock of the loop. The process inherits it, so the lock lasts until both have ended: a
            loop that is killed leaves the process running, and no other loop may begin meanwhile.
        output: Gets the standard output; None: it is not read. It is a file, because a pipe breaks with its reader.
    """
    to = subprocess.DEVNULL if output is None else output
    return subprocess.run(
        [*FULLRANK, *arguments], stdout=to, pass_fds=[lock], check=False
    ).returncode


_HOUR_S, _DAY_S = 3600, 86_400
FACE_DAYS = 3.0
"""Days for which a promoted version is compared with its predecessor."""
# Exit codes of `fullrank retrain`: nothing was published; another one of this model runs.
_UNCHANGED, _BUSY = 1, 75
_FAILED = "could not train"
_FAILED_LATELY = "a training failed lately"
Run = Callable[[Sequence[str], int, IO[bytes] | None], int]


class LoopRuns(FullrankError):
    """Another process runs the loop."""


@dataclass(frozen=True)
class Options:
    """How the loop runs; ``every_days`` a training, with further arguments of `fullrank retrain`."""

    share: float = SHARE
    max_days: float = MAX_DAYS
    every_days: float = 1.0
    retrain: Sequence[str] = ()


class Loop:
    """Runs what is due for one model."""

    def __init__(
        self,
        root: Path,
        name: str,
        log: EventLog,
        options: Options,
        *,
        swap: Swap | None = None,
        run: Run | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root, self._name, self._log, self._options = root, name, log, options
        self._swap = swap or Swap(root)
        self._run = run or run_fullrank
        self._clock = clock
        self._training = TrainingFile(root, name)

    def step(self) -> dict[str, Any]:
        """Take the step that is due and return its record; loop.json records it unless nothing was due.

        Raises:
            LoopRuns: Another process does it.
            FullrankError: A step failed; the next call tries again.
        """
        with _lock(self._root) as lock:
            done = self._step(lock)
            if done["did"] != _FAILED and done.get("because") != _FAILED_LATELY:
                os.utime(lock)  # the service shows this time
            return done

    def _step(self, lock: int) -> dict[str, Any]:
        active = self._active()
        taken_up = self._take_up()
        decisions = self._decisions()
        state = read_state(self._root)
        state = None if state is None else state.of(self._name)
        if state is not None and state.experiment is not None and state.version is not None:
            if state.experiment.candidate == _untried(decisions):
                # A loop that was killed began the experiment and did not note it.
                self._note_experiment(state.experiment.candidate)
            status = status_of(state.version, state.experiment, self._log, self._clock())
            return self._follow(status, is_defence=state.previous == status.candidate)
        if taken_up is not None and taken_up != active:
            return self._try(taken_up)
        trained = [made for made in decisions if "retrained" in made]
        last = max((made["at"] for made in trained), default=0.0)
        # A training more than an hour ahead was noted before the clock was set back.
        if not -_HOUR_S <= self._clock() - last < self._options.every_days * _DAY_S:
            if not any(event.is_click for event in self._log.events()):
                because = f"{self._log.folder} has no clicks to train on"
                return self._done({"did": "nothing", "because": because})
            if state is None or state.version is None:
                # Otherwise a service that starts would take the newest version: the candidate.
                self._swap.activate(active, self._own)
            return self._retrain(active, lock)
        if (candidate := _untried(decisions)) is not None:
            return self._try(candidate)
        failed = trained[-1]["did"] == _FAILED
        because = _FAILED_LATELY if failed else "trained lately"
        return self._done({"did": "nothing", "because": because})

    def _follow(self, status: Status, *, is_defence: bool) -> dict[str, Any]:
        """Act on the votes of an experiment; in a defence the candidate served before the active version."""
        names = ("active", "candidate", "started", "wins", "losses", "e_value", "e_values")
        numbers = {name: getattr(status, name) for name in names}
        if status.verdict is Verdict.PROMOTE and is_defence:
            return self._note(
                {"did": "rolled back", **numbers},
                lambda: self._swap.activate(status.candidate, self._own),
            )
        if status.verdict is Verdict.PROMOTE:
            return self._note(
                {"did": "promoted", **numbers},
                lambda: self._swap.promote(
                    status.candidate, self._options.share, FACE_DAYS, self._own
                ),
            )
        if status.verdict is Verdict.STOP or status.expired:
            why = "stopped" if status.verdict is Verdict.STOP else "ended undecided"
            why = f"defended: {why}" if is_defence else why
            return self._note(
                {"did": why, **numbers}, lambda: self._swap.stop_experiment(self._own)
            )
        return self._done({"did": "nothing", "because": "an experiment is open", **numbers})

    def _retrain(self, active: str, lock: int) -> dict[str, Any]:
        if place_of(Settings(), self._root).is_written:
            # People clicked live documents, too. It fails if the version has them all.
            path = self._root / self._name / active
            self._run(["bundles", "compact", str(path), "--json"], lock, None)
            active = self._active()
        arguments = ["retrain", active, "--bundles", str(self._root), "--events"]
        arguments += [str(self._log.folder), *self._options.retrain, "--json"]
        with self._training.begin(active, round(self._clock(), 3)) as output:
            code = self._run(arguments, lock, output)
        if code == _BUSY:
            self._training.remove()
            return self._done({"did": "nothing", "because": "another training runs"})
        text = self._training.printed()
        if code not in (0, _UNCHANGED) or not text.strip():
            done = self._note({"did": _FAILED, "retrained": active, "code": code})
            self._training.remove()
            return done
        found = json.loads(text)
        done = self._note_training(active, found)
        return done if found["published"] is None else self._try(found["published"])

    def _take_up(self) -> str | None:
        """Note the training that ended after its loop was killed; return the version that it published."""
        begun = self._training.read()
        decisions = self._decisions()
        is_noted = begun is not None and any(
            "retrained" in made and made["at"] >= begun.at for made in decisions
        )
        if begun is None or begun.report is None or is_noted:
            self._training.remove()
            return None
        self._note_training(begun.active, begun.report)
        published: str | None = begun.report["published"]
        return published

    def _note_training(self, active: str, report: dict[str, Any]) -> dict[str, Any]:
        # Noted first: if the experiment cannot begin, the next call tries that again, and does not train again.
        did = "trained, not published" if report["published"] is None else "trained"
        done = self._note({"did": did, "retrained": active, "report": report})
        self._training.remove()
        return done

    def _try(self, candidate: str) -> dict[str, Any]:
        # Not noted first: what is noted was tried. If this process is killed in between, the next one notes it.
        options = self._options
        self._swap.start_experiment(candidate, options.share, options.max_days, self._own)
        return self._note_experiment(candidate)

    def _note_experiment(self, candidate: str) -> dict[str, Any]:
        return self._note(
            {"did": "began an experiment", "active": self._active(), "candidate": candidate}
        )

    def _decisions(self) -> list[dict[str, Any]]:
        return [made for made in read_decisions(self._root) if made["name"] == self._name]

    def _active(self) -> str:
        serving = serving_version(self._root, self._name)
        if serving is not None and (self._root / self._name / serving).is_dir():
            if not (self._root / self._name / serving / MANIFEST).is_file():
                raise BundleNotFound(
                    f"{self._root}: {serving} is no bundle; the loop does not train sharded bundles"
                )
            return serving
        if serving is not None:
            raise BundleNotFound(
                f"{self._root}: {serving} serves, which is no version of {self._name}; activate one in its collection "
                f"with: fullrank bundles activate --collection {self._root / self._name}"
            )
        return find_bundle(self._root, self._name).name

    @property
    def _own(self) -> str | None:
        """The collection; None while nothing was activated: then the name of what serves by default is this one."""
        state = read_state(self._root)
        return None if state is None or state.version is None else self._name

    def _note(
        self, done: dict[str, Any], change: Callable[[], object] = lambda: None
    ) -> dict[str, Any]:
        """Write a decision, then carry it out; if that fails, take it back.

        A run that is killed in between leaves the decision. The next one comes to the same, and replaces it.
        """
        before = read_decisions(self._root)
        done = self._done(done)
        kept = before[:-1] if before and _is_repeated(before[-1], done) else before
        write_decisions(self._root, [*kept, done])
        try:
            change()
        except Exception:
            write_decisions(self._root, before)
            raise
        return done

    def _done(self, done: dict[str, Any]) -> dict[str, Any]:
        return {"at": round(self._clock(), 3), "name": self._name, **done}


def _is_repeated(before: dict[str, Any], done: dict[str, Any]) -> bool:
    names = ("name", "did", "candidate", "started")
    return "started" in done and all(before.get(name) == done[name] for name in names)


def _untried(decisions: Sequence[dict[str, Any]]) -> str | None:
    last = max((i for i, made in enumerate(decisions) if "retrained" in made), default=None)
    if last is None:
        return None
    candidate = candidate_of(decisions[last])
    tried = {made.get("candidate") for made in decisions[last + 1 :]}
    return None if candidate in tried else candidate


@contextmanager
def _lock(root: Path) -> Iterator[int]:
    """Lock the loop; yield the descriptor, which a process may inherit to keep it locked. Raises LoopRuns."""
    with (root / LOOP_LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LoopRuns(f"{root}: another process runs the loop") from None
        yield file.fileno()
