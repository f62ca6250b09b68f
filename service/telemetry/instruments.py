"""Counters, gauges and histograms over the cells of the workers, and how all workers' become one answer.

Observing costs a fraction of a microsecond and may be done on any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from service.telemetry.cells import Cells, Snapshot

Kind: TypeAlias = Literal["counter", "gauge", "each", "histogram"]
"""What is told of a metric: the sum over all workers there ever were (counter, histogram), the sum over those that live
(gauge), or the number of each live one under the label ``worker`` (each)."""

PREFIX = "fullrank_"
WORKER = "worker"


class Counter:
    """Counts up."""

    __slots__ = ("_at", "_lock", "_view")

    def __init__(self, cells: Cells, at: int) -> None:
        self._lock, self._view, self._at = cells.lock, cells.view, at

    def inc(self, amount: float = 1.0) -> None:
        """Add; what is added is never negative."""
        with self._lock:
            self._view[self._at] += amount


class Gauge:
    """Is what it was last set to."""

    __slots__ = ("_at", "_view")

    def __init__(self, cells: Cells, at: int) -> None:
        self._view, self._at = cells.view, at

    def set(self, value: float) -> None:
        """From now on it is that."""
        self._view[self._at] = value


class Histogram:
    """Counts how many values came up to each bound, and adds all up."""

    __slots__ = ("_at", "_bounds", "_lock", "_sum", "_view")

    def __init__(self, cells: Cells, at: int, bounds: Sequence[float]) -> None:
        self._lock, self._view, self._at, self._bounds = cells.lock, cells.view, at, bounds
        self._sum = at + len(bounds) + 1

    def observe(self, value: float) -> None:
        """One more value."""
        at = self._at + bisect_left(self._bounds, value)
        with self._lock:
            self._view[at] += 1.0
            self._view[self._sum] += value


S = TypeVar("S", Counter, Gauge, Histogram)


class Family(Generic[S]):
    """One metric: a series for each value of its labels, made when it is first asked for."""

    def __init__(
        self,
        cells: Cells,
        make: Callable[[int], S],
        kind: Kind,
        name: str,
        about: str,
        label_names: Sequence[str],
        bounds: Sequence[float] = (),
    ) -> None:
        self._cells = cells
        self._make: Callable[[int], S] = make
        self.kind, self.name, self.about = kind, name, about
        self.label_names, self.bounds = tuple(label_names), tuple(bounds)
        self._series: dict[tuple[str, ...], S] = {}

    @property
    def told_as(self) -> tuple[str, tuple[str, ...]]:
        """Name and labels as Prometheus knows them."""
        suffix = "_total" if self.kind == "counter" else ""
        labels = (WORKER,) if self.kind == "each" else self.label_names
        return PREFIX + self.name + suffix, labels

    def labels(self, *values: str) -> S:
        """The series of these label values, in the order of the names."""
        found = self._series.get(values)
        if found is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
            # A histogram has a cell for each bound, one beyond the last, and one for the sum.
            size = len(self.bounds) + 2 if self.kind == "histogram" else 1
            found = self._make(self._cells.place((self.name, values), size))
            self._series[values] = found
        return found

    def told(self, slots: Sequence[Snapshot]) -> Metric:
        """The metric over the workers of these slots."""
        name, labels = PREFIX + self.name, self.told_as[1]
        live = [slot for slot in slots if slot.pid is not None]
        if self.kind == "histogram":
            distribution = HistogramMetricFamily(name, self.about, labels=labels)
            for values, cells in self._sums(slots):
                bounds = [*map(str, self.bounds), "+Inf"]
                below = [float(count) for count in accumulate(cells[:-1])]
                distribution.add_metric(values, list(zip(bounds, below, strict=True)), cells[-1])
            return distribution
        if self.kind == "counter":
            counter = CounterMetricFamily(name, self.about, labels=labels)
            for values, cells in self._sums(slots):
                counter.add_metric(values, cells[0])
            return counter
        gauge = GaugeMetricFamily(name, self.about, labels=labels)
        if self.kind == "gauge":
            for values, cells in self._sums(live):
                gauge.add_metric(values, cells[0])
        else:
            for slot in live:
                if (self.name, ()) in slot.numbers:
                    gauge.add_metric([str(slot.slot)], slot.numbers[self.name, ()][0])
        return gauge

    def _sums(self, slots: Sequence[Snapshot]) -> Iterator[tuple[tuple[str, ...], list[float]]]:
        """Label values with their cells, added up over the slots; in the order of the values."""
        found: dict[tuple[str, ...], list[list[float]]] = {}
        for slot in slots:
            for (name, values), cells in slot.numbers.items():
                if name == self.name:
                    found.setdefault(values, []).append(cells)
        for values in sorted(found):
            yield values, [sum(column) for column in zip(*found[values], strict=True)]


class Table:
    """The metrics of one worker. Without a folder they are shared with nobody."""

    def __init__(self, folder: Path | None = None) -> None:
        self._cells = Cells(folder)
        self.families: list[Family[Counter] | Family[Gauge] | Family[Histogram]] = []

    def counter(self, name: str, about: str, *labels: str) -> Family[Counter]:
        """Told as <name>_total."""
        made = Family(self._cells, partial(Counter, self._cells), "counter", name, about, labels)
        self.families.append(made)
        return made

    def gauge(self, name: str, about: str) -> Gauge:
        """Told as the sum over live workers."""
        return self._gauge("gauge", name, about)

    def each(self, name: str, about: str) -> Gauge:
        """Told for each live worker."""
        return self._gauge("each", name, about)

    def histogram(
        self, name: str, about: str, bounds: Sequence[float], *labels: str
    ) -> Family[Histogram]:
        """Told as <name>_bucket, <name>_sum and <name>_count."""
        make = partial(Histogram, self._cells, bounds=tuple(bounds))
        made = Family(self._cells, make, "histogram", name, about, labels, bounds)
        self.families.append(made)
        return made

    def described(self) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """Name, labels and meaning of every metric, as they are told."""
        for family in self.families:
            yield (*family.told_as, family.about)

    def snapshots(self) -> list[Snapshot]:
        """What the workers have counted."""
        return self._cells.read()

    def told(self, slots: Sequence[Snapshot]) -> Iterator[Metric]:
        """All metrics over the workers of these slots."""
        for family in self.families:
            yield family.told(slots)

    def close(self) -> None:
        """The worker ends: its gauges go, what it counted stays."""
        self._cells.close()

    def _gauge(self, kind: Kind, name: str, about: str) -> Gauge:
        made = Family(self._cells, partial(Gauge, self._cells), kind, name, about, ())
        self.families.append(made)
        # What stands there was said by the worker that had the cells before.
        series = made.labels()
        series.set(0.0)
        return series
