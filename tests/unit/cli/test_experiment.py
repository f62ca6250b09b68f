"""``fullrank experiment``, ``retrain`` and ``loop``, from a click log to a version that serves."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import IO

import pytest

from fullrank.events.log import EVENTS, LISTS
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank.storage.documents import Document
from fullrank_service.models.state import read_state
from fullrank_trainer.promotion.retrain import SCRATCH, scratch_folder
from tests.bundles import at, make_bundle
from tests.unit.cli.running import Run

THINGS = [Document(f"d{i:02}", {"title": f"thing{i}", "text": "a thing"}) for i in range(30)]


@pytest.fixture(autouse=True)
def _equally_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a search takes here says nothing about the code."""
    monkeypatch.setattr("fullrank_trainer.promotion.gates.slowest", lambda *_: (0.001, 0.001))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A bundle, and a log of people who search `alias i` and click document i."""
    root = tmp_path / "bundles"
    make_bundle(root, "shop", THINGS, created=at(1))
    draw, lists, events = random.Random(1), [], []
    ids = [document.id for document in THINGS]
    for number in range(900):
        i = draw.randrange(30)
        shown = draw.sample([id for id in ids if id != ids[i]], 9)
        shown.insert(draw.randrange(10), ids[i])
        who = {"user_id": f"u{draw.randrange(50)}"}
        id, when = f"q{number}", time.time() - 600 * (900 - number)
        lists.append(ServedList(id, when, f"alias{i} thing", shown, texts=who).line())
        events.append(Event("click", when + 2, {"query_id": id, **who}, ids[i]).line())
    for kind, lines in ((LISTS, lists), (EVENTS, events)):
        writer = SegmentWriter(root / ".events", kind)
        writer.append(lines)
        writer.close()
    return root


def test_a_collection_has_its_own_version_and_experiment(run: Run, tmp_path: Path) -> None:
    first, second, other = (
        make_bundle(tmp_path, name, THINGS[:3], created=at(hour))
        for name, hour in (("help", 1), ("help", 2), ("shop", 3))
    )
    folder, own = tmp_path / "help", ("--collection", "help")
    refused = run("bundles", "activate", folder / first, "--collection")
    assert "activate one first" in refused.err
    assert run("bundles", "activate", tmp_path / "shop").code == 0
    for version in (first, second):
        assert run("bundles", "activate", folder / version, "--collection").code == 0
    assert f"serves {first} " in run("bundles", "rollback", tmp_path, *own).out
    assert run("experiment", "start", folder / second, "--collection").code == 0
    assert f"{second} against {first}" in run("experiment", "status", tmp_path, *own).out
    assert run("experiment", "status", tmp_path).out == "no experiment is running\n"
    assert f"{first} serves alone" in run("experiment", "stop", tmp_path, *own).out
    state = read_state(tmp_path)
    assert state is not None
    assert (state.version, state.collections["help"].version) == (other, first)


def test_retrain_publishes_and_an_experiment_begins(run: Run, shop: Path) -> None:
    got = run("retrain", "shop", "--bundles", shop, "--recipe", "word-translation", "--json")
    assert got.code == 0, got.err
    found = json.loads(got.out)
    assert {gate["name"] for gate in found["gates"]} == {"clicks", "empty", "speed"}
    candidate = shop / "shop" / found["published"]
    old = found["active"]
    assert run("experiment", "status", shop).out == "no experiment is running\n"
    assert json.loads(run("experiment", "status", shop, "--json").out) == {"decisions": []}
    assert run("bundles", "activate", shop / "shop" / old).code == 0
    begun = run("experiment", "start", candidate, "--share", "0.5", "--max-days", "3", "--json")
    assert json.loads(begun.out)["active"] == old
    state = read_state(shop)
    assert state is not None
    assert state.experiment is not None
    assert (state.experiment.candidate, state.experiment.share) == (candidate.name, 0.5)
    shown = run("experiment", "status", shop).out
    assert "0 votes for the candidate" in shown
    assert json.loads(run("experiment", "status", shop, "--json").out)["verdict"] == "open"
    assert "serves alone" in run("experiment", "stop", shop).out
    assert run("experiment", "stop", shop, "--json").code == 0


def test_retrain_without_clicks_says_so(run: Run, shop: Path, tmp_path: Path) -> None:
    got = run("retrain", "shop", "--bundles", shop, "--events", tmp_path / "none")
    assert got.code == 1
    assert "no clicks to learn from" in got.err
    assert run("retrain", "absent", "--bundles", shop).code == 1


def test_retrain_refuses_while_another_one_runs(run: Run, shop: Path) -> None:
    with scratch_folder(shop / SCRATCH / "shop"):
        got = run("retrain", "shop", "--bundles", shop, "--recipe", "word-translation", "--json")
    assert (got.code, got.out) == (75, "")
    [line] = got.err.strip().splitlines()
    assert line.startswith("fullrank: ")
    assert line.endswith("another fullrank retrain of shop runs; try again when it has ended")


def test_an_experiment_needs_two_versions(run: Run, shop: Path) -> None:
    got = run("experiment", "start", shop / "shop")
    assert got.code == 1
    assert len(got.err.strip().splitlines()) == 1
    assert run("experiment", "status", shop).out == "no experiment is running\n"


def test_the_loop_says_what_it_did(run: Run, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = make_bundle(shop, "shop", THINGS, created=at(2), n_dense=2)
    first = min(path.name for path in (shop / "shop").iterdir())
    assert run("bundles", "activate", shop / "shop" / first).code == 0
    asked = []

    def train(arguments: list[str], lock: int, output: IO[bytes]) -> int:
        asked.append(arguments)
        output.write(json.dumps({"published": newer}).encode())
        return 0

    monkeypatch.setattr("fullrank_service.experiments.loop.run_fullrank", train)
    got = run("loop", "shop", "--bundles", shop, "--time", "30s", "--with", "judged", "--json")
    assert json.loads(got.out)["did"] == "began an experiment"
    assert asked[0][:2] == ["retrain", first]
    assert asked[0][-5:] == ["--with", "judged", "--time", "30s", "--json"]
    assert run("loop", "shop", "--bundles", shop).out == "nothing: an experiment is open\n"
    began = f"shop: began an experiment: {newer} against {first}\n"
    assert began in run("experiment", "status", shop).out
    gates = [
        {"name": "clicks", "passed": False, "reason": "MRR 0.5 -> 0.4"},
        {"name": "empty", "passed": True, "reason": "none"},
    ]

    def fail(arguments: list[str], lock: int, output: IO[bytes]) -> int:
        output.write(json.dumps({"published": None, "gates": gates}).encode())
        return 1

    assert run("experiment", "stop", shop).code == 0
    monkeypatch.setattr("fullrank_service.experiments.loop.run_fullrank", fail)
    line = "trained, not published; failed gates: clicks: MRR 0.5 -> 0.4\n"
    assert run("loop", "shop", "--bundles", shop, "--every-days", "0").out == line
    assert f"shop: {line}" in run("experiment", "status", shop).out
    refused = run("loop", "other", "--bundles", shop)
    assert refused.code == 1
    assert "no version of other" in refused.err
