"""The cache of bundles: what is damaged, incomplete or interrupted is never opened; two downloads at once agree."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from fullrank.bundle import open_bundle
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank_fleet.remote import BundleCache, Folder, RemoteError
from tests.unit.fleet.jobs.planted import planted_bundle
from tests.unit.fleet.remote.test_folder import noted_syncs

MANIFEST = "manifest.json"
DAMAGED = "documents/weights.npy"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_bundle(tmp_path_factory.mktemp("bundles"))


@pytest.fixture
def source(original: Path, tmp_path: Path) -> Path:
    """A copy of the bundle that a test may damage."""
    found: Path = shutil.copytree(original, tmp_path / "remote" / original.name)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def sha256_of(bundle: Path) -> str:
    return hashlib.sha256((bundle / MANIFEST).read_bytes()).hexdigest()


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_bundle_is_downloaded_once(source: Path, root: Path) -> None:
    expected, sha256 = content_of(source), sha256_of(source)
    found = BundleCache(root).fetch(Folder(str(source)))
    assert found == root / sha256
    assert content_of(found) == expected
    open_bundle(found)
    # The hash alone is enough for a copy that is there.
    shutil.rmtree(source)
    assert BundleCache(root).fetch(Folder(str(source)), sha256) == found
    with pytest.raises(BundleNotFound):
        BundleCache(root).fetch(Folder(str(source)))


def test_a_bundle_comes_from_object_storage(source: Path, root: Path, tmp_path: Path) -> None:
    remote = Folder(f"memory://{tmp_path.name}")
    for name in content_of(source):
        remote.upload(source / name, name)
    assert content_of(BundleCache(root).fetch(remote)) == content_of(source)


def test_the_folder_is_private(source: Path, root: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        BundleCache(root).fetch(Folder(str(source)))
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
        (tmp_path / "open").mkdir(mode=0o777)
    finally:
        os.umask(old)
    (tmp_path / "link").symlink_to(root)
    refused = [tmp_path / "open", tmp_path / "link"]
    if os.getuid() == 0:
        refused.append(tmp_path / "of-another")
        refused[-1].mkdir()
        os.chown(refused[-1], 12345, -1)
    for folder in refused:
        with pytest.raises(FullrankError, match=f"{folder}: the cache of bundles must be"):
            BundleCache(folder).fetch(Folder(str(source)), sha256_of(source))


def other_manifest(copy: Path) -> None:
    (copy / MANIFEST).write_text((copy / MANIFEST).read_text().replace("planted", "forged!"))


def half_a_file(copy: Path) -> None:
    truncated(copy / DAMAGED)


def changed_file(copy: Path) -> None:
    damaged(copy / DAMAGED)


def missing_manifest(copy: Path) -> None:
    (copy / MANIFEST).unlink()


@pytest.mark.parametrize("change", [other_manifest, half_a_file, changed_file, missing_manifest])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_copy_is_not_trusted_by_its_name(
    change: Callable[[Path], None], is_named: bool, source: Path, root: Path
) -> None:
    expected, sha256 = content_of(source), sha256_of(source)
    change(BundleCache(root).fetch(Folder(str(source))))
    found = BundleCache(root).fetch(Folder(str(source)), sha256 if is_named else None)
    assert found == root / sha256
    assert content_of(found) == expected


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "error", "reason"),
    [
        (damaged, BundleError, f"{DAMAGED}: sha256 differs"),
        (truncated, BundleError, rf"{DAMAGED}: \d+ bytes, the manifest says \d+"),
        (Path.unlink, RemoteError, f"{DAMAGED}: No such file"),
    ],
)
def test_a_download_that_is_not_as_the_manifest_says_is_refused(
    damage: object, error: type[Exception], reason: str, source: Path, root: Path
) -> None:
    expected, whole = content_of(source), (source / DAMAGED).read_bytes()
    damage(source / DAMAGED)  # type: ignore[operator]
    for sha256 in (None, sha256_of(source)):
        with pytest.raises(error, match=reason):
            BundleCache(root).fetch(Folder(str(source)), sha256)
        assert list(root.iterdir()) == []
    (source / DAMAGED).write_bytes(whole)
    assert content_of(BundleCache(root).fetch(Folder(str(source)))) == expected


@pytest.mark.parametrize("content", [b"{}", b"\xff", b""])
def test_a_damaged_manifest_is_refused(content: bytes, source: Path, root: Path) -> None:
    asked = sha256_of(source)
    (source / MANIFEST).write_bytes(content)
    with pytest.raises(BundleError, match="is not the manifest that was asked for"):
        BundleCache(root).fetch(Folder(str(source)), asked)
    with pytest.raises(BundleError, match=str(source)):
        BundleCache(root).fetch(Folder(str(source)))
    assert list(root.iterdir()) == []


# Kills its process while the third file is half written.
_INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from fullrank_fleet.remote import BundleCache, Folder

class Dying(Folder):
    count = 0

    def download(self, name, target):
        Dying.count += 1
        super().download(name, target)
        if Dying.count == 3:
            os.truncate(target, target.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

BundleCache(Path(sys.argv[1])).fetch(Dying(sys.argv[2]))
"""


@pytest.mark.sweep
def test_what_an_interrupted_download_leaves_is_not_a_bundle(source: Path, root: Path) -> None:
    command = [sys.executable, "-c", _INTERRUPTED, str(root), str(source)]
    ended = subprocess.run(command, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    [left] = root.iterdir()
    assert len(content_of(left)) == 3
    found = BundleCache(root).fetch(Folder(str(source)), sha256_of(source))
    assert content_of(found) == content_of(source)
    # What the killed process left is gone.
    assert list(root.iterdir()) == [found]


@dataclass(frozen=True)
class Meeting(Folder):
    """A folder whose downloads of a name wait for each other."""

    name: str
    barrier: ClassVar[threading.Barrier] = threading.Barrier(2)

    def download(self, name: str, target: Path) -> None:
        super().download(name, target)
        if name == self.name:
            self.barrier.wait(30)


def test_two_downloads_at_once_give_one_copy(source: Path, root: Path) -> None:
    """Both have a file of their own before either is done."""
    folder = Meeting(str(source), DAMAGED)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(BundleCache(root).fetch, folder) for _ in range(2)]
        found = {one.result(60) for one in asked}
    assert found == {root / sha256_of(source)}
    assert list(root.iterdir()) == list(found)
    assert content_of(*found) == content_of(source)


def test_a_discarded_copy_is_downloaded_again(source: Path, root: Path) -> None:
    cache, sha256 = BundleCache(root), sha256_of(source)
    found = cache.fetch(Folder(str(source)))
    opened = open_bundle(found)
    before = opened.documents.ids[0]
    cache.discard(sha256)
    cache.discard(sha256)
    assert list(root.iterdir()) == []
    assert opened.documents.ids[0] == before
    assert content_of(cache.fetch(Folder(str(source)))) == content_of(source)


def test_a_copy_is_synced_before_it_gets_its_name(
    source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = noted_syncs(monkeypatch)
    found = BundleCache(root).fetch(Folder(str(source)))
    *before, last = synced
    assert last == root
    [folder] = {path for path in before if path.parent == root}
    assert folder != found
    assert {path.relative_to(folder) for path in before} >= {
        path.relative_to(found) for path in found.rglob("*")
    }
