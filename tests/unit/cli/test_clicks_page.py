"""docs/clicks.md: its commands run as they stand there, in their order."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.unit.cli.running import Run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "clicks.md"
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
    for arguments in COMMANDS:
        more = ["--recipe", "tfidf"] if arguments[0] == "train" else []
        got = run(*arguments, *more)
        assert got.code == 0, (arguments, got.err)
        names.append(" ".join(arguments[: 2 if arguments[0] == "events" else 1]))
    assert names == [
        "events import",
        "events status",
        "events export",
        "train",
        "events forget",
        "events compact",
    ]
    assert any((folder / "bundles" / "shop").iterdir())


def test_every_option_and_rule_is_on_the_page(run: Run) -> None:
    help_ = run("events", "export", "--help").out
    text = PAGE.read_text("utf-8")
    for option in set(re.findall(r"--[a-z][a-z0-9-]+", help_)) - {"--help", "--json"}:
        assert option in text, option
