"""Metrics: added up over workers, kept when a worker dies, and in Prometheus's own format."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fullrank.errors import FullrankError
from fullrank_service.base import sharing
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.sharing import FILE_BYTES, FOLDER, PREFIX, leave, metrics_folder

REPOSITORY = Path(__file__).resolve().parents[4]
MONITORING = REPOSITORY / "docs" / "guides" / "operate" / "monitor.md"
LIVEZ = {"method": "GET", "route": "/livez", "status": "200"}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """Return every sample that Prometheus's own parser reads."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"fullrank_{name}", tuple(sorted(labels.items()))))


def value_of(metrics: Metrics, name: str, **labels: str) -> float | None:
    return value(parsed(metrics.render().decode()), name, **labels)


WORKER = """
import sys
from fullrank_service.base import sharing
sharing.join(sys.argv[1])
from fullrank_service.base.metrics import Metrics
metrics = Metrics()
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Worker:
    """A process that counts as one worker of a folder, and runs the lines that it gets."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(number)],
            cwd=REPOSITORY,
            env={**os.environ, FOLDER: str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        while (answer := self.process.stdout.readline()) != "done\n":
            assert answer, f"the worker ended with {self.process.wait()}"

    def samples(self) -> Samples:
        path = self.folder / f"{self.number}.txt"
        self.do(f"open({str(path)!r}, 'wb').write(metrics.render())")
        return parsed(path.read_text())

    def kill(self) -> None:
        """kill -9, and what the supervisor does then."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        leave(self.folder, str(self.number))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Worker, Worker]]:
    folder = tmp_path_factory.mktemp("two")
    workers = Worker(folder, 0), Worker(folder, 1)
    yield workers
    for worker in workers:
        worker.kill()


COUNT = "metrics.request('GET', '/livez', 200, 0.004); metrics.queue.set({0}); metrics.generation.set({0})"


def test_whichever_worker_is_asked_reports_the_sum_over_all(two: tuple[Worker, Worker]) -> None:
    for worker, requests in zip(two, (2, 3), strict=True):
        for _ in range(requests):
            worker.do(COUNT.format(requests))
    for worker in two:
        samples = worker.samples()
        assert value(samples, "requests_total", **LIVEZ) == 5
        assert value(samples, "request_seconds_count", route="/livez") == 5
        assert value(samples, "request_seconds_sum", route="/livez") == pytest.approx(0.02)
        assert value(samples, "request_seconds_bucket", route="/livez", le="0.005") == 5
        assert value(samples, "rankings_in_flight") == 5
        assert value(samples, "generation", worker="0") == 2
        assert value(samples, "generation", worker="1") == 3
        assert not any("pid" in dict(labels) for _, labels in samples)


def test_counts_outlive_a_dead_worker_and_its_gauges_do_not(tmp_path: Path) -> None:
    watching = Worker(tmp_path, 0)
    for life in (1, 2):
        worker = Worker(tmp_path, 1)
        worker.do(COUNT.format(7))
        samples = watching.samples()
        assert value(samples, "rankings_in_flight") == 7
        assert value(samples, "generation", worker="1") == 7
        assert value(samples, "worker_process_id", worker="1") == worker.process.pid
        assert (value(samples, "worker_resident_bytes", worker="1") or 0) > 1 << 20
        worker.kill()
        samples = watching.samples()
        assert value(samples, "requests_total", **LIVEZ) == life
        assert value(samples, "rankings_in_flight") == 0
        assert value(samples, "generation", worker="1") is None
        assert value(samples, "worker_resident_bytes", worker="1") is None
    watching.kill()
    # The replacement of a worker goes on in its files, so they do not pile up.
    left = {"counter_0.db", "counter_1.db", "histogram_0.db", "histogram_1.db"}
    assert {path.name for path in tmp_path.glob("*.db")} == left


def test_counting_needs_no_disk_space_after_the_start(two: tuple[Worker, Worker]) -> None:
    """Otherwise the kernel ends the process that touches a page for which there is no space."""
    for worker in two:
        # More series than a service has: every route of the service with every status.
        worker.do(
            "[metrics.request('GET', f'/v1/some/route/{i}', status, 0.1)"
            " for i in range(40) for status in range(200, 215)]"
        )
    folder = two[0].folder
    files = {path.name: path.stat() for path in folder.glob("*.db")}
    assert {name.rpartition("_")[0] for name in files} == set(FILE_BYTES)
    for name, status in files.items():
        assert status.st_size == FILE_BYTES[name.rpartition("_")[0]]
        assert status.st_blocks * 512 >= status.st_size


def test_a_worker_without_room_for_its_metrics_counts_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(os, "posix_fallocate", full)
    sharing.join("0")
    assert FOLDER not in os.environ
    assert "No space left on device" in caplog.text
    metrics = Metrics()
    metrics.request("GET", "/livez", 200, 0.1)
    assert value_of(metrics, "requests_total", **LIVEZ) == 1


def test_a_folder_of_metrics_is_emptied_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "counter_0.db").write_bytes(b"of a service that was killed")
    (tmp_path / "notes.txt").write_text("not ours")
    with metrics_folder(tmp_path) as folder:
        assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert tmp_path.is_dir()


def test_two_services_cannot_share_a_folder_of_metrics(tmp_path: Path) -> None:
    with (
        metrics_folder(tmp_path),
        pytest.raises(FullrankError, match="another service uses this folder"),
        metrics_folder(tmp_path),
    ):
        pass
    with metrics_folder(tmp_path):
        pass


def test_a_start_removes_the_folders_that_killed_services_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "MEMORY", tmp_path)
    code = (
        "from pathlib import Path\nfrom fullrank_service.base import sharing\n"
        f"sharing.MEMORY = Path({str(tmp_path)!r})\n"
        "with sharing.metrics_folder(None):\n    print('there', flush=True)\n    input()\n"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdin is not None
    assert killed.stdout is not None
    with killed.stdin, killed.stdout:
        assert killed.stdout.readline() == "there\n"
        with metrics_folder(None):
            assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 2, "one of a live service was removed"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 1
    with metrics_folder(None) as folder:
        assert list(tmp_path.glob(f"{PREFIX}*")) == [folder]
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_threads_lose_no_count() -> None:
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
    assert value_of(metrics, "requests_total", method="GET", route="/", status="200") == 20_000
    assert value_of(metrics, "request_seconds_sum", route="/") == 10_000


def test_a_bucket_includes_its_bound() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.0011, 7.0):
        metrics.request("GET", "/", 200, seconds)
    bucket = {
        dict(labels)["le"]: number
        for (name, labels), number in parsed(metrics.render().decode()).items()
        if name == "fullrank_request_seconds_bucket"
    }
    assert (bucket["0.001"], bucket["0.002"], bucket["5.0"], bucket["+Inf"]) == (2, 3, 3, 4)


def test_no_metric_has_a_name_that_is_not_described() -> None:
    metrics = Metrics()
    metrics.request("GET", "/", 200, 0.1)
    described = set(metrics.described())
    histograms = {f"{name}_{part}" for name in described for part in ("bucket", "sum", "count")}
    assert {name for name, _ in parsed(metrics.render().decode())} <= described | histograms


def test_every_metric_is_documented() -> None:
    rows = re.findall(
        r"^\| `(fullrank_\w+)(?:\{([\w,]+)\})?` \| (.*?) \|$", MONITORING.read_text(), re.M
    )
    documented = {
        name: (tuple(filter(None, labels.split(","))), about) for name, labels, about in rows
    }
    assert documented == dict(Metrics().described())
