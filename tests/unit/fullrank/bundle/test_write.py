"""Writing a bundle: all or nothing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import staging as folder
from fullrank.bundle import verify_bundle
from fullrank.bundle import write as publish
from fullrank.bundle.open import replay
from fullrank.encoding import Encoded
from fullrank.errors import BundleError
from fullrank.models.contract import Parts
from fullrank.storage.documents import Document
from tests.bundles import write_bundle
from tests.words_bundle import CREATED, WORDS, planted


@pytest.mark.parametrize("bad", ["", "A", "../x", "a/b", ".tmp-a", "-a", "a" * 101, "a" * 75])
def test_names_that_cannot_name_a_folder_are_refused(bad: str, root: Path) -> None:
    with pytest.raises(BundleError, match="name a bundle"):
        write_bundle(root, bad, **planted())
    assert not root.exists()


def _change(**fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(given: dict[str, Any]) -> None:
        encoded = given["encoded"]
        width = fields.pop("width", encoded.sparse.width)
        given["encoded"] = Encoded.from_arrays(encoded.arrays() | fields, width)

    return change


def _nan_model(given: dict[str, Any]) -> None:
    given["model"].U = given["model"].U * np.float32(np.nan)


def _objects(given: dict[str, Any]) -> None:
    given["model"].U = np.array([[{}]], object)
    given["model"].n_dense = 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_change(width=9), "9 sparse features, the model has 5"),
        (_change(bias=np.full(40, np.nan, np.float32)), "bias.npy: not finite"),
        (_change(bias=np.zeros(40)), "bias.npy: float64, not float32"),
        (_change(dense=np.zeros((40, 2), np.float32)), "dense.npy: shape"),
        (lambda g: g["documents"].reverse(), "does not come after"),
        (lambda g: g["documents"].pop(), "dense.npy: shape"),
        (lambda g: g["documents"].__setitem__(3, g["documents"][2]), "does not come after"),
        (lambda g: g["documents"].__setitem__(39, Document("e\ud800", {})), "no utf-8 form"),
        (lambda g: g["documents"].__setitem__(39, Document("e", {"x": {1}})), "cannot be stored"),
        (lambda g: g.update(card={"x": float("nan")}), "not a JSON value"),
        (_nan_model, "model/U: not finite"),
        (_objects, "model/U.npy: dtype object cannot be stored"),
    ],
)
def test_parts_that_do_not_fit_are_refused_and_leave_nothing(
    change: Callable[[dict[str, Any]], Any], reason: str, root: Path
) -> None:
    given = planted()
    change(given)
    with pytest.raises(BundleError, match=reason):
        write_bundle(root, "planted", **given)
    assert not list(root.rglob("*"))


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (Parts({}, {"../U": np.zeros(1)}, {}), "cannot name a file"),
        (Parts({}, {}, {"a/b": []}), "cannot name a file"),
        (Parts({}, {"U": np.zeros(1), "u": np.zeros(1)}, {}), "two parts of the model"),
        (Parts({}, {"a.offsets": np.zeros(1)}, {"a": []}), "two parts of the model"),
    ],
)
def test_parts_whose_names_cannot_name_a_file_are_refused(
    parts: Parts, reason: str, root: Path
) -> None:
    given = planted()
    given["model"].parts = lambda: parts
    with pytest.raises(BundleError, match=reason):
        write_bundle(root, "planted", **given)
    assert not list(root.rglob("*"))


def test_a_model_that_loads_as_another_is_not_published(root: Path) -> None:
    given = planted()
    model = given["model"]
    model.parts = lambda: Parts(
        model.config, {"U": np.nextafter(model.U, np.float32(9))}, {"words": WORDS}
    )
    with pytest.raises(BundleError, match=r"golden\.jsonl: query 'apple"):
        write_bundle(root, "planted", **given)
    assert not list(root.rglob("*"))


@pytest.mark.sweep
def test_the_same_bundle_published_twice_at_once_is_kept_twice(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is whole, and about to take its name, while the first is checked before it takes the same one."""
    real = replay
    whole, paths = threading.Event(), []

    def again() -> None:
        def progress(part: str, *_: int) -> None:
            if part == "golden queries":
                whole.set()

        paths.append(write_bundle(root, "planted", **planted(), created=CREATED, progress=progress))

    second = threading.Thread(target=again)

    def checked(*arguments: Any) -> None:
        real(*arguments)
        if not whole.is_set():
            second.start()
            assert whole.wait(30)
            second.join(1)  # it waits for its turn

    monkeypatch.setattr(publish, "replay", checked)
    first = write_bundle(root, "planted", **planted(), created=CREATED)
    second.join(30)
    assert sorted([first, *paths]) == sorted(path for path in first.parent.iterdir())
    assert len(paths) == 1
    for path in (first, *paths):
        verify_bundle(path)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), BundleError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
)
@pytest.mark.parametrize("writes", [0, 1, 7, 20])
def test_a_failed_write_leaves_the_folder_unchanged(
    writes: int,
    error: BaseException,
    raised: type[BaseException],
    root: Path,
    written: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sorted(root.rglob("*"))
    real = folder._File.write
    calls = 0

    def write(self: folder._File, content: bytes | memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls > writes:
            raise error
        return real(self, content)

    monkeypatch.setattr(folder._File, "write", write)
    with pytest.raises(raised):
        write_bundle(root, "planted", **planted())
    assert calls == writes + 1
    assert sorted(root.rglob("*")) == before
    verify_bundle(written)


def test_a_full_disk_is_named_in_the_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(BundleError, match=r"cannot write .*: No space left on device"):
        write_bundle(root, "planted", **planted())
    assert not list(root.rglob("*"))


def test_a_failed_rename_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(target))

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(BundleError, match="Directory not empty"):
        write_bundle(root, "planted", **planted())
    assert not list(root.rglob("*"))


def test_the_order_of_steps_survives_a_power_cut(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is synced, then the manifest, then the folders; only then comes the name."""
    steps: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{handle}"))
        real_fsync(handle)

    def rename(self: Path, target: Path) -> Path:
        steps.append("rename")
        return real_rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    path = write_bundle(root, "planted", **planted())
    named = steps.index("rename")
    before = [Path(step).name for step in steps[:named]]
    files = {p.name for p in path.rglob("*") if p.is_file()}
    assert files <= set(before)
    manifest = before.index("manifest.json")
    assert files <= set(before[: manifest + 1])
    assert {"model", "documents"} <= set(before[manifest + 1 :])
    assert steps[named + 1 :] == [str(path.parent), str(root)]
