"""A backup of a service that writes; kill -9 of a backup and of a restore at their steps."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from fullrank.bundle import list_bundles, open_bundle
from fullrank.events.log import FOLDER, EventLog
from fullrank_service.backup import STAGE, BackupError, Contents, back_up, read_archive, restore
from fullrank_service.documents.follow import replayed
from fullrank_service.documents.sqlitelog import FILE, SqliteLog
from tests.api.support import AUTH, at, environment_for, make_bundle
from tests.backups import check_restored, make_service, settings_of
from tests.faults.real import Writer, service
from tests.faults.test_documents_kill import Bulk
from tests.faults.test_events_kill import Clicking
from tests.killing import killing
from tests.waiting import LONG_S, join


def run(root: Path, *arguments: str | Path, **settings: str) -> None:
    """Run a command with the settings of the service of a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "fullrank", *map(str, arguments)],
        env=environment_for(root, 0, **settings), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def client_of(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=AUTH, timeout=LONG_S)


@contextmanager
def writing(url: str, writers: Sequence[Writer]) -> Iterator[None]:
    """Let writers write during the block."""
    answered, enough = [threading.Event() for _ in writers], threading.Event()
    threads = [
        threading.Thread(target=writer.run, args=(url, event, enough), daemon=True)
        for writer, event in zip(writers, answered, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        assert all(event.wait(30) for event in answered)
        yield
    finally:
        enough.set()
        join(*threads)


class SlowBulk(Bulk):
    """Sends few enough documents for a service to be ready soon."""

    def write(self, client: httpx.Client) -> None:
        super().write(client)
        time.sleep(0.2)


def test_what_was_acknowledged_before_a_backup_is_in_it(tmp_path: Path) -> None:
    root = tmp_path / "bundles"
    make_bundle(root, "docs", created=at(1))
    documents, clicks = [SlowBulk(f"w{i}") for i in range(2)], [Clicking(f"c{i}") for i in range(2)]
    archives: list[tuple[Path, dict[str, int], list[str]]] = []
    with service(root, 2) as (_, port), client_of(port) as client:
        rule = {"query": {"is": "copy"}, "pin": [{"id": "ls", "position": 1}]}
        assert client.put("/v1/rules/mine", json=rule).status_code == 200
        with writing(str(client.base_url), [*documents, *clicks]):
            for number in range(3):
                kept = {id: n for writer in documents for id, n in [*writer.kept.items()]}
                reported = [id for writer in clicks for id in [*writer.kept]]
                archive = tmp_path / f"{number}.tar"
                run(root, "backup", root, archive)
                archives.append((archive, kept, reported))
                if number == 1:
                    # What the log loses now is in the new version.
                    run(root, "bundles", "compact", root / "docs")
    for number, (archive, kept, reported) in enumerate(archives):
        assert kept
        assert reported
        restored = tmp_path / f"restored-{number}"
        keys = {"FULLRANK_KEYS": str(tmp_path / f"keys-{number}.json")}
        run(restored, "restore", archive, restored, **keys)
        found = {event.texts["query_id"] for event in EventLog(restored / FOLDER).events()}
        assert found >= set(reported)
        bundle, log = open_bundle(restored / "docs", verify=False), SqliteLog(restored / FILE)
        view = replayed(bundle, log).view
        log.close()
        assert all(view.fields(id)["n"] >= n for id, n in kept.items())
        with service(restored, 1, **keys) as (_, port), client_of(port) as client:
            for id in list(kept)[-20:]:
                # A writer may have replaced it meanwhile.
                assert client.get(f"/v1/documents/{id}").json()["fields"]["n"] >= kept[id]
            assert [rule["id"] for rule in client.get("/v1/rules").json()["rules"]] == ["mine"]
            assert client.post("/v1/search", json={"query": "copy"}).json()["hits"][0]["id"] == "ls"
            assert client.put("/v1/documents/new", json={"title": "new"}).status_code == 200


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stopped") / "bundles"
    make_service(root)
    return root


_KILLED = """
from pathlib import Path
from fullrank_service.backup import back_up, restore
from tests.backups import settings_of

def work(folder):
    {what}
"""


def test_a_backup_that_is_killed_leaves_no_archive(stopped: Path, tmp_path: Path) -> None:
    what = f"back_up(settings_of(Path({str(stopped)!r})), folder / 'a.tar')"
    made: Contents | None = None
    with killing(_KILLED.format(what=what)) as program:
        step = 0
        while program.killed_before(step, tmp_path):
            if (tmp_path / "a.tar").exists():
                made, _ = read_archive(tmp_path / "a.tar")
                (tmp_path / "a.tar").unlink()
            step += 1
    assert step > 5
    assert made is not None
    # The last run has removed what the killed ones left.
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_a_restore_that_is_killed_goes_on_in_the_next(stopped: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    back_up(settings_of(stopped), archive)
    # The log and what belongs to it are in another folder.
    settings = "settings_of(folder / 'root', documents=folder / 'log' / 'documents.sqlite')"
    with killing(_KILLED.format(what=f"restore(Path({str(archive)!r}), {settings})")) as program:

        def is_killed(step: int) -> bool:
            folder = tmp_path / str(step)
            folder.mkdir()
            root, log = folder / "root", folder / "log"
            killed = program.killed_before(step, folder)
            if root.exists() and list_bundles(root):
                assert (log / FILE).exists()
            if killed:
                with suppress(BackupError):  # it was killed after its end
                    restore(archive, settings_of(root, documents=log / FILE))
            for stage in folder.glob(f"*/{STAGE}"):
                stage.rmdir()
            for path in log.iterdir():
                path.rename(root / path.name)
            check_restored(root, stopped)
            return killed

        stride, step = 60, 0
        while is_killed(step):
            step += stride
        # Its last steps rename what it has written.
        for near in range(step - stride + 1, step):
            is_killed(near)
