"""The commands and the service agree on where the log and its key are."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from fullrank import cli
from fullrank.cli.arguments import event_log
from fullrank.events.log import EventLog
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.events.recorder import Recorder


@pytest.mark.parametrize("setting", ["FULLRANK_EVENTS_FOLDER", "FULLRANK_DOCUMENTS", None])
@pytest.mark.parametrize("named", ["log", "bundles"])
def test_commands_use_the_log_and_the_key_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, named: str
) -> None:
    bundles, elsewhere = tmp_path / "bundles", tmp_path / "elsewhere"
    manifest = bundles / "shop" / "version" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    clicks = tmp_path / "clicks.csv"
    clicks.write_text("user,query,document\nann,copy,a\nbert,copy,a\neve,copy,a\n", "utf-8")
    monkeypatch.setenv("FULLRANK_BUNDLES", str(bundles))
    values = {"FULLRANK_EVENTS_FOLDER": "clicks", "FULLRANK_DOCUMENTS": "documents.sqlite"}
    if setting is not None:
        monkeypatch.setenv(setting, str(elsewhere / values[setting]))
    recorder = Recorder.from_settings(Settings(), Metrics())
    log = recorder.folder if named == "log" else bundles

    def run(*arguments: str | Path) -> None:
        monkeypatch.setattr(sys, "argv", ["fullrank", "events", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code

    def events() -> int:
        return len(list(EventLog(recorder.folder).events()))

    run("import", log, clicks)
    assert events() == 3
    asyncio.run(recorder.erase("ann"))
    assert events() == 2
    run("forget", log, "bert")
    assert events() == 1
    run("compact", log)
    assert len(list(tmp_path.rglob(".events.key"))) == 1
    given = recorder.folder if setting == "FULLRANK_EVENTS_FOLDER" else None
    assert event_log(bundles, given).folder == recorder.folder
