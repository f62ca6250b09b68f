"""Progress: bars on a terminal, text elsewhere, JSON lines on request, nothing when quiet."""

from __future__ import annotations

import io
import json

import pytest

from fullrank import progress
from fullrank.progress import Reporter


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_events_are_json_lines_on_request(stream: io.StringIO) -> None:
    with Reporter(stream, as_json=True) as report:
        report.log("epoch", epoch=3, loss=0.123456789, valid_map=None, name="é")
        report.say("warning", "too few clicks")
    assert lines(stream) == [
        {"event": "epoch", "epoch": 3, "loss": 0.12346, "valid_map": None, "name": "é"},
        {"event": "warning", "reason": "too few clicks"},
    ]
    assert stream.getvalue().startswith('{"event": "epoch"')


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_without_a_terminal_that_redraws_events_are_lines_of_text(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.0)
    with Reporter(stream) as report, report.stage("training", 10) as stage:
        report.log("epoch", epoch=1, loss=0.123456, valid_map=None)
        stage.advance(4, loss=0.25)
        report.say("warning", "too few clicks")
    first, second, third = stream.getvalue().splitlines()
    assert third == "warning: too few clicks"
    assert first == "epoch  epoch 1  loss 0.1235"
    assert second.startswith("training  done 4  total 10  left_s ")


def test_a_stage_logs_rate_and_time_left_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rate and time left from the work that is done."""
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])  # type: ignore[attr-defined]
    stream = io.StringIO()
    with Reporter(stream, as_json=True) as report, report.stage("training", 100) as stage:
        for _ in range(12):
            clock[0] += 1
            stage.advance(5, loss=0.5)
    found = lines(stream)
    assert [line["done"] for line in found] == [25, 50]
    assert found[0] == {
        "event": "training", "done": 25, "total": 100, "left_s": 15.0, "loss": 0.5, "rate": 5.0,
    }  # fmt: skip
    assert found[1]["left_s"] == 10.0


def test_stage_without_a_total_has_no_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.0)
    stream = io.StringIO()
    with Reporter(stream, as_json=True) as report, report.stage("reading") as stage:
        stage.advance()
    assert lines(stream)[0]["left_s"] is None
    assert lines(stream)[0]["total"] is None


def test_a_quiet_reporter_writes_nothing() -> None:
    for stream in (io.StringIO(), Terminal()):
        with Reporter(stream, quiet=True) as report, report.stage("x", 3) as stage:
            report.log("event", a=1)
            stage.advance(3)
        assert stream.getvalue() == ""


def test_terminal_shows_bars_and_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    stream = Terminal()
    with Reporter(stream) as report, report.stage("training", 10) as stage:
        assert report.bars is not None
        stage.advance(4, loss=0.25)
        assert report.bars.tasks[0].completed == 4
        assert "loss 0.25" in report.bars.tasks[0].fields["figures"]
        assert "rate" in report.bars.tasks[0].fields["figures"]
        report.log("epoch", epoch=1, loss=0.123456, note="[bold]")
    assert report.bars.tasks == []
    assert "epoch  epoch 1  loss 0.1235  note [bold]" in stream.getvalue()
    assert "{" not in stream.getvalue()


def test_a_failing_stage_removes_its_bar() -> None:
    report = Reporter(Terminal())
    with pytest.raises(ValueError, match="no"), report, report.stage("x", 3):
        raise ValueError("no")
    assert report.bars is not None
    assert report.bars.tasks == []
