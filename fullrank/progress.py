"""Report the progress of long work on stderr: bars on a terminal, else lines of text, or JSON lines."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

Progress = Callable[[str, int, int], object]
"""(part, done, total): how much of a part is done; total is 0 where its size is unknown."""

_INTERVAL_S = 5.0  # between two lines of one stage


def silent(part: str, done: int, total: int) -> None:
    """No-op progress callback."""


class Stage:
    """One piece of work with a known amount."""

    def __init__(self, reporter: Reporter, name: str, total: int | None) -> None:
        self._reporter, self._name, self._total = reporter, name, total
        self._done, self._started, self._logged = 0, time.monotonic(), time.monotonic()
        self._task: TaskID | None = None
        if reporter.bars is not None:
            self._task = reporter.bars.add_task(name, total=total, figures="")

    def advance(self, amount: int = 1, **figures: float) -> None:
        """Add to the amount that is done, and show figures such as loss=0.4 next to it."""
        self._done += amount
        seconds = time.monotonic() - self._started
        figures["rate"] = self._done / max(seconds, 1e-9)
        if self._task is not None and self._reporter.bars is not None:
            text = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
            self._reporter.bars.update(self._task, advance=amount, figures=text)
        elif time.monotonic() - self._logged >= _INTERVAL_S:
            self._logged = time.monotonic()
            left_s = None
            if self._total and self._done:
                left_s = round(seconds * (self._total / self._done - 1), 1)
            self._reporter.log(
                self._name, done=self._done, total=self._total, left_s=left_s, **figures
            )

    def close(self) -> None:
        """Remove the bar."""
        if self._task is not None and self._reporter.bars is not None:
            self._reporter.bars.remove_task(self._task)


class Reporter:
    """Where long work reports its events and its progress.

    Example:
        with Reporter() as report, report.stage("reading", total=len(lines)) as stage:
            for line in lines:
                stage.advance()
            report.log("read", documents=len(lines))
    """

    def __init__(
        self, stream: IO[str] | None = None, *, quiet: bool = False, as_json: bool = False
    ) -> None:
        """Report to a stream."""
        # A process started with stderr closed has no sys.stderr.
        self._stream: IO[str] = stream or sys.stderr or io.StringIO()
        self._quiet, self._as_json = quiet, as_json
        self.bars: Bars | None = None
        if self._stream.isatty() and not quiet and not as_json:
            bars = _bars(self._stream)
            # A dumb terminal cannot redraw a bar.
            self.bars = bars if bars.console.is_interactive else None

    def log(self, event: str, **figures: Any) -> None:
        """Report one event: a line of text, or a JSON object with ``event`` first."""
        if self._quiet:
            return
        if self._as_json:
            rounded = {k: round(v, 5) if isinstance(v, float) else v for k, v in figures.items()}
            print(json.dumps({"event": event, **rounded}), file=self._stream, flush=True)
            return
        known = ((key, value) for key, value in figures.items() if value is not None)
        text = "  ".join([event, *(f"{key} {_short(value)}" for key, value in known)])
        if self.bars is not None:
            self.bars.console.print(text, markup=False)
        else:
            print(text, file=self._stream, flush=True)

    def say(self, event: str, sentence: str) -> None:
        """Report one event in a sentence, which is the ``reason`` of a JSON object."""
        if self._as_json:
            self.log(event, reason=sentence)
        else:
            self.log(f"{event}: {sentence}")

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """Show a bar while the block runs."""
        stage = Stage(self, name, total)
        try:
            yield stage
        finally:
            stage.close()

    @contextmanager
    def callback(self) -> Iterator[Progress]:
        """Give work that reports (part, done, total) a callback that shows one bar a part."""
        current, reported = "", 0
        stage: Stage | None = None

        def progress(part: str, done: int, total: int) -> None:
            nonlocal current, stage, reported
            if part != current:
                if stage is not None:
                    stage.close()
                self.log("write", part=part)
                current, stage, reported = part, Stage(self, part, total or None), 0
            if stage is not None and done > reported:
                stage.advance(done - reported)
                reported = done

        try:
            yield progress
        finally:
            if stage is not None:
                stage.close()

    def __enter__(self) -> Reporter:
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()


def _bars(stream: IO[str]) -> Bars:
    # Imported here because workers of the service import this module and never draw a bar.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
        console=Console(file=stream, highlight=False),
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
