"""A folder with all that a service owns, and what a restored one must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fullrank.bundle import list_bundles
from fullrank.events.log import EVENTS, FOLDER, KEY, EventLog, erase, read_key
from fullrank.events.records import Event
from fullrank.events.segments import SegmentWriter
from fullrank_service.backup import STAGE
from fullrank_service.base.settings import Settings
from fullrank_service.documents.log import Caps, Submission, Write
from fullrank_service.documents.sqlitelog import FILE, SqliteLog
from fullrank_service.http.keys import create_key, read_keys
from fullrank_service.models.state import ActiveState, read_state, write_state
from tests.api.support import settings_for
from tests.bundles import at, make_bundle


def event(id: str) -> bytes:
    return Event("click", 1e9, {"query_id": id}).line()


def make_service(root: Path) -> ActiveState:
    """Write what a service owns; returns the active state."""
    for hour in (1, 2):
        version = make_bundle(root, "docs", created=at(hour))
    log = SqliteLog(root / FILE)
    log.commit([Submission("docs", [Write("a", b'{"title": "a"}')], lambda _: b"")], Caps())
    log.close()
    read_key(root / KEY)
    create_key(root / "keys.json", ["search"], "mine")
    (root / "loop.json").write_text('[{"at": 1.0, "name": "docs", "did": "nothing"}]')
    (root / ".loop.docs.training").write_bytes(b"{}\n")
    sealed = SegmentWriter(root / FOLDER, EVENTS)
    sealed.append([event("sealed")])
    sealed.close()
    (root / FOLDER / "events-20260101T000000Z-0123abcd.jsonl").write_bytes(
        event("open") + b"\n" + event("torn")[:20]
    )
    erase(root / FOLDER, ["somebody"], 1.0)
    state = ActiveState(7, version, None, (), "docs-1")
    write_state(root, state)
    return state


def settings_of(root: Path, **changes: Any) -> Settings:
    return settings_for(root, **{"keys": None, **changes})


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def check_restored(root: Path, service: Path) -> None:
    assert [(i.name, i.version) for i in list_bundles(root)] == [
        (i.name, i.version) for i in list_bundles(service)
    ]
    for info in list_bundles(service):
        for path in filter(Path.is_file, info.path.rglob("*")):
            assert (root / path.relative_to(service)).read_bytes() == path.read_bytes()
    assert read_state(root) == read_state(service)
    log = SqliteLog(root / FILE)
    assert [found.id for found in log.after("docs", 0, 10)[0]] == ["a"]
    assert log.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    log.close()
    assert (root / KEY).read_bytes() == (service / KEY).read_bytes()
    assert read_keys(root / "keys.json") == read_keys(service / "keys.json")
    found = [event.texts["query_id"] for event in EventLog(root / FOLDER).events()]
    assert found == ["open", "sealed"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in root.iterdir()}
    assert {modes[name] for name in (FILE, KEY, "keys.json")} == {0o600}
    assert modes[FOLDER] == 0o700
    assert not list(root.glob(f"{STAGE}*"))
