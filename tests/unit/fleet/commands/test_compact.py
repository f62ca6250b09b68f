"""``fullrank bundles compact`` of a sharded bundle, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from fullrank.errors import BundleNotFound, FullrankError
from fullrank_fleet.commands import jobs as of_fleet
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.sets.manifest import read_set
from fullrank_service.base.experiment import Active
from fullrank_service.commands import bundles as command
from fullrank_service.documents.compact import NothingToCompact
from fullrank_service.documents.log import Caps, Submission, Write
from fullrank_service.models.state import ActiveState, dump_state
from tests.databases import NewDatabase
from tests.databases import new_database as new_database
from tests.databases import postgres_server as postgres_server
from tests.unit.fleet.jobs.planted import planted_set

pytestmark = pytest.mark.server


@pytest.fixture
def address(tmp_path: Path) -> str:
    return planted_set(tmp_path, 20, 2)


@pytest.fixture
def log(new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch) -> LogSource:
    found = LogSource(new_database())
    monkeypatch.setenv("FULLRANK_DOCUMENTS_URL", found.address)
    monkeypatch.setattr(command, "load", lambda *names: of_fleet.compact)
    return found


def write(log: LogSource, *ids: str) -> None:
    opened = log.place().open()
    writes = [Write(id, orjson.dumps({"title": "zebra"})) for id in ids]
    opened.commit([Submission("planted", writes, lambda first: b"")], Caps())
    opened.close()


def run(bundle: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    command.compact(bundle, json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_name_means_the_version_that_serves_else_the_newest(
    address: str, log: LogSource, capsys: pytest.CaptureFixture[str]
) -> None:
    name, version = str(Path(address).parent), Path(address).name
    write(log, "a", "b")
    first = run(name, capsys)
    expected = {"parent": version, "before": 20, "documents": 22, "seq": 2, "removed": 0}
    assert {key: first[key] for key in expected} == expected
    assert first["generation"] is None
    position = read_set(Folder(first["path"])).log_position
    assert position is not None
    assert position.seq == 2
    write(log, "c")
    assert run(name, capsys)["parent"] == first["version"]
    active = ActiveState(1, first["version"], "0" * 64)
    Path(name).parent.joinpath("active.json").write_text(dump_state(active))
    write(log, "d")
    assert run(name, capsys)["parent"] == first["version"]
    assert run(f"{address}/", capsys)["parent"] == version
    # The version that serves by default is of another collection.
    own = {"planted": Active(version, "0" * 64)}
    active = ActiveState(1, "other-20260801t101500z-1f2e3d4c", "0" * 64, collections=own)
    Path(name).parent.joinpath("active.json").write_text(dump_state(active))
    write(log, "e")
    assert run(name, capsys)["parent"] == version


def test_an_address_of_object_storage_is_a_sharded_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(*names: str) -> Any:
        def compact(*arguments: Any, **options: Any) -> dict[str, Any]:
            asked.append((names, arguments, options))
            return {"path": "p", "documents": 1, "before": 2, "generation": 3, "version": "v"}

        return compact

    monkeypatch.setattr(command, "load", load)
    command.compact("s3://sets/planted", activate=False)
    command.compact("sets/planted", ray="auto", activate=True)
    names = ("bundles.compact", "fullrank.fleet")
    assert asked == [
        (names, ("s3://sets/planted",), {"address": None, "activate": False}),
        (names, ("sets/planted",), {"address": "auto", "activate": True}),
    ]


def test_what_cannot_be_compacted_is_refused(
    address: str, log: LogSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NothingToCompact, match="no live document was ever written"):
        command.compact(address)
    with pytest.raises(FullrankError, match="--documents: the live documents of a sharded bundle"):
        command.compact(address, documents=tmp_path / "documents.sqlite")
    with pytest.raises(BundleNotFound, match="no sharded bundle and no version named 'nowhere'"):
        of_fleet.compact(f"{tmp_path}/sets/nowhere", address=None, activate=True)
    monkeypatch.delenv("FULLRANK_DOCUMENTS_URL")
    with pytest.raises(FullrankError, match="FULLRANK_DOCUMENTS_URL is unset"):
        command.compact(address)
