"""Numbers of several workers: added up right, kept when a worker dies, and told in Prometheus's own format."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.telemetry import cells
from service.telemetry.instruments import Table
from service.telemetry.metrics import Metrics

REPOSITORY = Path(__file__).resolve().parents[4]
OPERATIONS = REPOSITORY / "docs" / "operations.md"


def told(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample that Prometheus's own parser reads."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return told(metrics).get((f"fullrank_{name}", tuple(sorted(labels.items()))))


def test_workers_are_added_up_whichever_is_asked(tmp_path: Path) -> None:
    one, two = Metrics(tmp_path), Metrics(tmp_path)
    for metrics, times in ((one, 2), (two, 3)):
        for _ in range(times):
            metrics.request("GET", "/livez", 200, 0.004)
        metrics.queue.set(times)
        metrics.generation.set(times)
    for metrics in (one, two):
        assert value(metrics, "requests_total", method="GET", route="/livez", status="200") == 5
        assert value(metrics, "request_seconds_count", route="/livez") == 5
        assert value(metrics, "request_seconds_sum", route="/livez") == pytest.approx(0.02)
        assert value(metrics, "rankings_in_flight") == 5
        assert value(metrics, "generation", worker="0") == 2
        assert value(metrics, "generation", worker="1") == 3


def test_what_a_worker_counted_outlives_it_and_its_gauges_do_not(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom service.telemetry.metrics import Metrics\n"
        f"metrics = Metrics(Path({str(tmp_path)!r}))\n"
        "metrics.request('GET', '/livez', 200, 0.004)\n"
        "metrics.queue.set(7)\nmetrics.generation.set(7)\n"
        "print('counted', flush=True)\ntime.sleep(60)\n"
    )
    watching = Metrics(tmp_path)
    for life in (1, 2, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == "counted\n"
        assert value(watching, "rankings_in_flight") == 7
        assert value(watching, "generation", worker="1") == 7
        assert (value(watching, "worker_resident_bytes", worker="1") or 0) > 1 << 20
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        labels = {"method": "GET", "route": "/livez", "status": "200"}
        assert value(watching, "requests_total", **labels) == life
        assert value(watching, "rankings_in_flight") == 0
        assert value(watching, "generation", worker="1") is None
        assert value(watching, "worker_resident_bytes", worker="1") is None
    # One slot, taken over each time: files do not pile up.
    assert sorted(path.name for path in tmp_path.glob("*.cells")) == ["0.cells", "1.cells"]


def test_a_worker_that_takes_a_slot_over_starts_with_fresh_gauges(tmp_path: Path) -> None:
    first = Metrics(tmp_path)
    first.swaps.labels("done").inc()
    first.models_loaded.set(4)
    first.close()
    second = Metrics(tmp_path)
    assert value(second, "swaps_total", result="done") == 1
    assert value(second, "models_loaded", worker="0") == 0
    second.swaps.labels("done").inc()
    assert value(second, "swaps_total", result="done") == 2


def test_a_line_cut_off_by_a_kill_costs_nothing_else(tmp_path: Path) -> None:
    first = Metrics(tmp_path)
    first.swaps.labels("done").inc()
    first.close()
    with (tmp_path / "0.names").open("ab") as file:
        file.write(b'["requests", ["GET"')
    second = Metrics(tmp_path)
    second.request("GET", "/livez", 200, 0.1)
    second.close()
    third = Metrics(tmp_path)
    assert value(third, "swaps_total", result="done") == 1
    assert value(third, "requests_total", method="GET", route="/livez", status="200") == 1


@pytest.mark.parametrize("written", [None, 5])
def test_a_metric_whose_name_finds_no_room_on_the_disk_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    metrics, write = Metrics(tmp_path), os.write

    def full(descriptor: int, line: bytes) -> int:
        if written is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, line[:written])

    with monkeypatch.context() as patched:
        patched.setattr("service.telemetry.cells.os.write", full)
        metrics.request("GET", "/livez", 200, 0.1)
    metrics.request("GET", "/readyz", 200, 0.1)
    told = {"method": "GET", "status": "200"}
    assert value(metrics, "requests_total", route="/livez", **told) is None
    assert value(metrics, "requests_total", route="/readyz", **told) == 1


def test_counting_needs_no_room_on_the_disk_that_was_not_there_at_the_start(tmp_path: Path) -> None:
    """Else the kernel would end the process that touches a page for which there is none."""
    metrics = Metrics(tmp_path)
    assert (tmp_path / "0.cells").stat().st_blocks * 512 >= 8 * cells.CELLS
    metrics.close()


def test_more_series_than_there_is_room_for_are_not_counted_and_hurt_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table()
    counter = table.counter("many", "Many", "label")
    first = counter.labels("first")
    for i in range(cells.CELLS + 10):
        counter.labels(str(i)).inc()
    first.inc()
    [told] = table.told(table.snapshots())
    numbers = {sample.labels["label"]: sample.value for sample in told.samples}
    assert numbers["first"] == 1
    assert set(numbers.values()) == {1}
    assert len(caplog.records) == 1


def test_threads_lose_nothing() -> None:
    metrics = Metrics()
    threads = [
        threading.Thread(
            target=lambda: [metrics.request("GET", "/", 200, 0.5) for _ in range(5_000)]
        )
        for _ in range(4)
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert value(metrics, "requests_total", method="GET", route="/", status="200") == 20_000
    assert value(metrics, "request_seconds_sum", route="/") == 10_000


def test_buckets_hold_what_comes_up_to_their_bound() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.0011, 7.0):
        metrics.request("GET", "/", 200, seconds)
    bucket = {
        labels[0][1]: number
        for (name, labels), number in told(metrics).items()
        if name == "fullrank_request_seconds_bucket"
    }
    assert (bucket["0.001"], bucket["0.002"], bucket["5.0"], bucket["+Inf"]) == (2, 3, 3, 4)


def test_labels_of_another_number_are_a_mistake_in_the_code() -> None:
    with pytest.raises(ValueError, match="labels"):
        Metrics().swaps.labels()


def test_every_metric_is_documented_as_it_is() -> None:
    rows = re.findall(
        r"^\| `(fullrank_\w+)(?:\{([\w,]+)\})?` \| (.*?) \|$", OPERATIONS.read_text(), re.M
    )
    documented = {
        name: (tuple(filter(None, labels.split(","))), about) for name, labels, about in rows
    }
    assert documented == Metrics().described()
