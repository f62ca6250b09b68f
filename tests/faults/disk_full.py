"""What test_disk_full.py runs in a mount namespace of its own: a small disk that fills up and is emptied again.

    unshare --mount --map-root-user python -m tests.faults.disk_full FOLDER ROUNDS

Prints what was done as one line of JSON; whatever is not as it should be is an AssertionError.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from fullrank.bundle import find_bundle, list_bundles, verify_bundle
from fullrank.errors import BundleError
from fullrank_service.documents.compact import compact
from fullrank_service.documents.sqlitelog import FILE, LogPlace
from tests.api.support import AUTH, CORPUS, at, make_bundle, served

MB = 1 << 20
# Bundles, of which a compacted one has 26 MB of lists by word, live documents, and 2.1 MB of metrics for each worker.
DISK_MB = 64
DOCUMENT = {"title": "cp", "text": "copy files to a remote host " * 40}


class Disk:
    """A tmpfs, and a file that fills it up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(path)], check=True
        )
        self._filler = path / "filler"

    def fill(self, leave: int = 0) -> None:
        with self._filler.open("ab") as file:
            while (left := self._free() - leave) > 0:
                # A worker may take room in between.
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), file.tell(), left)
                    return

    def _free(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)


class Run:
    """One server on the disk; kept: every acknowledged document."""

    def __init__(self, disk: Disk, root: Path, client: httpx.Client) -> None:
        self.disk, self.root, self.client = disk, root, client
        self.kept: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.sent = 0

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def write(self, lines: int = 1) -> httpx.Response:
        """Write new documents; remember them if they were acknowledged."""
        self.sent += 1
        ids = [f"d/{self.sent}/{i}" for i in range(lines)]
        if lines == 1:
            response = self.client.put(f"/v1/documents/{ids[0]}", json={**DOCUMENT, "n": self.sent})
        else:
            body = "".join(json.dumps({"_id": id, **DOCUMENT, "n": self.sent}) + "\n" for id in ids)
            headers = {"Content-Type": "application/x-ndjson"}
            response = self.client.post("/v1/documents:bulk", content=body, headers=headers)
        if response.status_code == 200:
            self.kept |= dict.fromkeys(ids, self.sent)
        return response

    def read(self) -> None:
        """Check that searches go on, and that each acknowledged document is there once."""
        seq = max(0, len(self.kept))
        body: dict[str, Any] = {"query": "copy files", "limit": 100, "min_seq": seq}
        reply = self.client.post("/v1/search", json=body)
        assert reply.status_code == 200, reply.text
        assert reply.json()["total"] == len(CORPUS) + len(self.kept), (
            reply.json()["total"],
            len(self.kept),
        )
        self.count("searches")

    def refused(self, response: httpx.Response) -> None:
        assert response.status_code == 507, response.text
        assert response.headers["Content-Type"] == "application/problem+json"
        assert response.json()["type"].endswith(":storage-full")
        assert int(response.headers["Retry-After"]) >= 1
        self.count("writes refused")

    def round(self, number: int) -> None:
        for lines in (1, 40):
            assert self.write(lines).status_code == 200
        self.disk.fill(leave=(number % 5) * 16_384)
        # The space that is left is enough for a few more writes, or for none.
        for lines in (1, 40, 40, 40, 40, 40, 40):
            response = self.write(lines)
            self.read()
            if response.status_code != 200:
                self.refused(response)
                break
        else:
            raise AssertionError("the disk never was full")
        self.publish()
        self.swap()
        self.read()
        # Routes and statuses not seen before: metrics that need room of their own.
        for path in ("/livez", "/", f"/v1/documents/none-{number}", "/v1/models/none"):
            self.client.get(path)
        self.client.get("/metrics").raise_for_status()
        self.disk.empty()
        for lines in (1, 40):
            response = self.write(lines)
            assert response.status_code == 200, response.text
        self.read()
        self.count("rounds")

    def publish(self) -> None:
        """Publishing and compacting fail with the reason, and leave nothing."""
        before = {info.version for info in list_bundles(self.root)}
        for what in ("publish", "compact"):
            try:
                if what == "publish":
                    make_bundle(self.root, "other", n_dense=64)
                else:
                    compact(find_bundle(self.root, "docs"), LogPlace.of_file(self.root / FILE))
            except BundleError as error:
                assert "No space left on device" in str(error), error  # noqa: PT017
                self.count(f"{what} refused")
            else:
                raise AssertionError(f"there was room to {what}")
        assert {info.version for info in list_bundles(self.root)} == before
        assert not list(self.root.glob("*/.tmp-*"))

    def swap(self) -> None:
        """A swap that cannot be written is refused, and the old version keeps serving."""
        serving = self.client.get("/readyz").json()
        versions = [info.version for info in list_bundles(self.root)]
        [other] = [version for version in versions if version != serving["model"]]
        response = self.client.put(
            "/v1/models/aliases/default", json={"version": other}, headers=AUTH
        )
        if response.status_code != 200:  # some bytes may be left
            assert response.headers["Content-Type"] == "application/problem+json"
            assert self.client.get("/readyz").json() == serving
            self.count("swaps refused")


def number(client: httpx.Client, id: str) -> int | None:
    response = client.get(f"/v1/documents/{id}")
    if response.status_code == 404:
        return None
    assert response.status_code == 200, response.text
    return int(response.json()["fields"]["n"])


def workers(client: httpx.Client) -> set[float]:
    samples = [
        sample
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    ]
    assert sum(s.value for s in samples if s.name == "fullrank_requests_total") > 0
    found = {s.value for s in samples if s.name == "fullrank_worker_process_id"}
    assert len(found) == 2
    return found


def both_workers(client: httpx.Client) -> set[float]:
    """Wait until both workers have written their metrics."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(AssertionError):
            return workers(client)
        time.sleep(0.1)
    return workers(client)


def main(folder: Path, rounds: int) -> dict[str, Any]:
    folder.mkdir()
    disk = Disk(folder)
    root = folder / "bundles"
    for hour in (1, 2):
        make_bundle(root, "docs", n_dense=hour, created=at(hour))
    settings: dict[str, Any] = {
        "FULLRANK_PRELOAD": "true",
        "FULLRANK_LOG_LEVEL": "error",
        # On the disk that fills up: a worker that counts must not end for lack of room.
        "FULLRANK_METRICS_FOLDER": str(folder / "metrics"),
    }
    with (
        served(root, workers=2, **settings) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        run = Run(disk, root, client)
        before = both_workers(client)
        for turn in range(rounds):
            run.round(turn)
        assert workers(client) == before, "a worker died"
        # With room again all of it succeeds.
        made = compact(find_bundle(root, "docs"), LogPlace.of_file(root / FILE))
        verify_bundle(made.path)
        response = client.put(
            "/v1/models/aliases/default", json={"version": made.path.name}, headers=AUTH
        )
        assert response.status_code == 200, response.text
        run.read()
    with served(root, **settings) as url, httpx.Client(base_url=url, timeout=30) as client:
        run.client = client
        run.read()
        lost = sum(number(client, id) != n for id, n in run.kept.items())
    return {**run.counts, "acknowledged": len(run.kept), "lost": lost}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))  # noqa: T201
