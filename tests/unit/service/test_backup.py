"""What an archive has, which archives and folders are refused, and that a kill at any step leaves all or nothing."""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fullrank.bundle import list_bundles
from fullrank.bundle.manifest import GOLDEN
from fullrank.cli import build_app
from fullrank.errors import FullrankError
from fullrank.events.log import KEY
from fullrank_service.backup import STAGE, BackupError, back_up, read_archive, restore
from fullrank_service.documents.sqlitelog import FILE
from tests.backups import check_restored, make_service, settings_of, tree


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("service") / "bundles"
    make_service(root)
    return root


def test_all_that_a_service_owns_comes_back(service: Path, tmp_path: Path) -> None:
    archive, root = tmp_path / "a.tar", tmp_path / "restored"
    steps: list[tuple[str, int, int]] = []
    made = back_up(settings_of(service), archive, lambda *step: steps.append(step))
    assert archive.stat().st_mode & 0o777 == 0o600
    assert {part for part, _, _ in steps} == {FILE, "events", "bundles"}
    steps.clear()
    assert restore(archive, settings_of(root), lambda *step: steps.append(step)) == made
    assert {part for part, _, _ in steps} == {"verify", "restore"}
    assert steps[-1][1] == steps[-1][2] == made.bytes
    check_restored(root, service)
    assert tree(root) == set(made.files)
    # Locks, digests and reports alone stay behind.
    left = {
        name for name in tree(service) - tree(root) if not name.endswith((".lock", "-wal", "-shm"))
    }
    assert left == set()


def test_what_settings_move_goes_where_they_say(service: Path, tmp_path: Path) -> None:
    archive, root = tmp_path / "a.tar", tmp_path / "restored"
    back_up(settings_of(service), archive)
    moved = {
        "documents": tmp_path / "log" / "live.db",
        "events_folder": tmp_path / "events",
        "keys": tmp_path / "secret" / "k.json",
    }
    restore(archive, settings_of(root, **moved))
    again = tmp_path / "b.tar"
    assert back_up(settings_of(root, **moved), again).files == read_archive(archive)[0].files
    assert (tmp_path / "log" / KEY).exists()
    assert sorted(path.name for path in root.iterdir() if path.name[0] != ".") == [
        "active.json",
        "docs",
        "loop.json",
    ]
    assert not list(tmp_path.glob(f"**/{STAGE}"))
    with pytest.raises(BackupError, match="exists already"):
        restore(archive, settings_of(tmp_path / "other", **moved))
    assert not (tmp_path / "other").exists()


def test_a_log_in_postgresql_is_named(service: Path, tmp_path: Path) -> None:
    url = "postgresql://me:secret@db.internal/shop"
    made = back_up(settings_of(service, documents_url=url), tmp_path / "a.tar")
    assert made.database == "PostgreSQL db.internal/shop"
    assert FILE not in made.files
    assert b"secret" not in (tmp_path / "a.tar").read_bytes()


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_the_commands(
    command: str, service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, root, run = tmp_path / "a.tar", tmp_path / "restored", CliRunner().invoke
    if command == "backup":
        monkeypatch.setenv("FULLRANK_DOCUMENTS_URL", "postgresql://me:secret@db/shop")
        found = run(build_app(), ["backup", str(service), str(archive)])
        assert "a.tar: 2 versions" in found.stdout
        assert "PostgreSQL db/shop: pg_dump --schema=fullrank" in found.stderr
        return
    assert run(build_app(), ["backup", str(service), str(archive), "--json"]).exit_code == 0
    found = run(build_app(), ["restore", str(archive), str(root), "--json"])
    assert len(json.loads(found.stdout)["versions"]) == 2
    check_restored(root, service)


# Refusals.


def test_nothing_is_overwritten(service: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    back_up(settings_of(service), archive)
    with pytest.raises(BackupError, match="exists already"):
        back_up(settings_of(service), archive)
    root = tmp_path / "used"
    root.mkdir()
    (root / "keys.json").touch()
    with pytest.raises(BackupError, match=r"keys.json: exists already"):
        restore(archive, settings_of(root))
    assert tree(root) == {"keys.json"}
    for bundles, folder in ((tmp_path / "none", tmp_path), (service, tmp_path / "none")):
        with pytest.raises(BackupError, match="none: no such folder"):
            back_up(settings_of(bundles), folder / "b.tar")


def test_a_folder_that_a_volume_begins_with_counts_as_empty(service: Path, tmp_path: Path) -> None:
    back_up(settings_of(service), tmp_path / "a.tar")
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    restore(tmp_path / "a.tar", settings_of(tmp_path / "volume"))
    check_restored(tmp_path / "volume", service)


def test_a_damaged_archive_changes_nothing(service: Path, tmp_path: Path) -> None:
    archive, broken, root = tmp_path / "a.tar", tmp_path / "b.tar", tmp_path / "restored"
    made = back_up(settings_of(service), archive)
    content, draw = archive.read_bytes(), random.Random(1)
    refused = 0
    for case in range(150):
        bytes_ = bytearray(content)
        if case % 3:
            bytes_[draw.randrange(len(bytes_))] ^= 1 << draw.randrange(8)
        else:
            del bytes_[draw.randrange(len(bytes_)) :]
        broken.write_bytes(bytes_)
        try:
            # The zeros after a file are nobody's.
            assert read_archive(broken)[0] == made
        except BackupError:
            refused += 1
            with pytest.raises(BackupError):
                restore(broken, settings_of(root))
            assert not root.exists()
    assert refused > 75


@pytest.mark.parametrize("name", ["../a", "/a", "docs/../a", f"{STAGE}/complete"])
def test_an_archive_writes_nowhere_else(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(BackupError, match="does not belong"):
        restore(tmp_path / "a.tar", settings_of(tmp_path / "root"))


def test_what_is_damaged_is_not_backed_up(tmp_path: Path) -> None:
    root, archive = tmp_path / "bundles", tmp_path / "a.tar"
    make_service(root)
    active = next(info.path for info in list_bundles(root) if info.name == "docs")
    file = active / GOLDEN
    content = file.read_bytes()
    file.write_bytes(b"x" + content[1:])
    with pytest.raises(BackupError, match=f"{GOLDEN}: damaged"):
        back_up(settings_of(root), archive)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=GOLDEN):
        back_up(settings_of(root), archive)
    file.write_bytes(content)
    (active / "manifest.json").write_text("{")
    with pytest.raises(BackupError, match="active version is damaged"):
        back_up(settings_of(root), archive)
    (root / FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(FullrankError, match=r"documents.sqlite: file is not a database"):
        back_up(settings_of(root), archive)
    (root / "wide" / "wide-1").mkdir(parents=True)
    (root / "wide" / "wide-1" / "set.json").touch()
    with pytest.raises(BackupError, match="a sharded bundle"):
        back_up(settings_of(root), archive)
    assert {path.name for path in tmp_path.iterdir()} == {"bundles", "bundles.keys.json"}


def test_a_version_that_is_removed_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, archive = tmp_path / "bundles", tmp_path / "a.tar"
    make_service(root)
    listed = list_bundles(root)
    old = next(info for info in reversed(listed) if info.name == "docs")
    old.path.rename(root / "gone")
    monkeypatch.setattr("fullrank_service.backup.list_bundles", lambda _: listed)
    assert f"docs/{old.version}" not in back_up(settings_of(root), archive).versions
