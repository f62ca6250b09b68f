"""docs/clicks.md: its commands run as they stand there, in their order."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from fullrank.bundle.catalog import active_version
from fullrank.events.decisions import read_decisions
from tests.unit.cli.running import Run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "clicks.md"
RECIPE = ["--recipe", "tfidf"]
COMMANDS = [
    line.split()[1:]
    for line in PAGE.read_text("utf-8").splitlines()
    if re.match(r" {4}fullrank ", line)
]


def test_the_commands_of_the_page_run(
    run: Run, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "page"
    shutil.copytree(collection, folder / "shop")
    (folder / "bundles").mkdir()
    rows = [f"u{i},ant {i % 30},{'ab'[i % 2]},a|b,{1_795_000_000 + 3000 * i}" for i in range(120)]
    table = "user,query,document,shown,time\n" + "\n".join([*rows, "ann,ant,b,a|b,1795000000"])
    (folder / "clicks.csv").write_text(table + "\n", "utf-8")
    monkeypatch.chdir(folder)
    names = []
    # How long a search takes here says nothing about the code.
    monkeypatch.setattr("fullrank_trainer.promotion.gates.slowest", lambda *_: (0.001, 0.001))

    def retrain(arguments: Sequence[str], lock: int, output: IO[bytes]) -> int:
        got = run(*arguments, *RECIPE)
        output.write(got.out.encode())
        return got.code

    monkeypatch.setattr("fullrank_service.experiments.loop.run_fullrank", retrain)
    serving = []
    for arguments in COMMANDS:
        more = RECIPE if arguments[0] in ("train", "retrain") else []
        got = run(*arguments, *more)
        assert got.code == 0, (arguments, got.err, got.out)
        if arguments[0] == "evaluate":
            assert "--exclude-split" not in got.err
            warned = run(*arguments, "--exclude-split", "train")
            assert "takes away what people chose before" in warned.err
        if arguments[0] == "retrain":
            assert "fullrank experiment start bundles/shop" in got.out
        groups = ("events", "bundles", "experiment")
        names.append(" ".join(arguments[: 2 if arguments[0] in groups else 1]))
        serving.append(active_version(folder / "bundles"))
    assert names == [
        "events import",
        "events status",
        "events export",
        "train",
        "evaluate",
        "bundles activate",
        "retrain",
        "experiment start",
        "experiment status",
        "experiment stop",
        "loop",
        "bundles activate",
        "bundles rollback",
        "events forget",
        "events compact",
    ]
    first, third = serving[5], serving[11]
    assert serving == [None] * 5 + [first] * 6 + [third] + [first] * 3
    versions = {path.name for path in (folder / "bundles" / "shop").iterdir()}
    assert {first, third} < versions
    assert len(versions) == 3
    trained, began = read_decisions(folder / "bundles")
    assert (trained["did"], began["did"]) == ("trained", "began an experiment")
    assert trained["report"]["published"] == began["candidate"] == third


def test_the_line_of_cron_runs_the_loop() -> None:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if "* * * *" in line]
    assert [line.split("&& fullrank ")[1].split() for line in lines] == [["loop", "shop"]]
    assert ["loop", "shop"] in COMMANDS


@pytest.mark.parametrize(
    "command", [["events", "export"], ["retrain"], ["experiment", "start"], ["loop"]], ids=" ".join
)
def test_every_option_and_rule_is_on_the_page(run: Run, command: list[str]) -> None:
    help_ = run(*command, "--help").out
    text = PAGE.read_text("utf-8")
    for option in set(re.findall(r"--[a-z][a-z0-9-]+", help_)) - {"--help", "--json"}:
        assert option in text, option
