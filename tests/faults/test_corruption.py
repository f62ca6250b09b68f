"""Every way a bundle can be damaged on disk: it is refused with the reason, and the old model keeps serving.

The bundle has everything a bundle can have: a learned part, an index with the cells of the fast mode, columns.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from fullrank.bundle import open_bundle, read_manifest
from fullrank.errors import BundleError
from fullrank.storage.documents import Document
from fullrank_service.models.state import read_state
from tests.api.support import AUTH, at, make_bundle, running
from tests.forging import Damage, agree, array, flip, link, value

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bundles: "whole" will be damaged, "old" serves."""
    root = tmp_path_factory.mktemp("intact")
    documents = [
        Document(
            f"d{i:03}",
            {
                "title": f"word{i % 13} word{i % 7}",
                "text": f"copy files {i}",
                "n": i,
                "tag": "ab"[i % 2],
            },
        )
        for i in range(300)
    ]
    with pytest.MonkeyPatch.context() as patch:
        # So few documents have no index otherwise.
        for name in ("INDEXED_FROM", "FAST_FROM"):
            patch.setattr(f"fullrank.bundle.write.{name}", 1)
        queries = [f"word{i % 13} word{i % 7}" for i in range(40)]
        version = make_bundle(
            root, "whole", documents, n_dense=8, sample_queries=queries, created=at(1)
        )
    files = read_manifest(root / "whole" / version).files
    assert {
        "index/cells.rows.npy",
        "index/codes.npy",
        "columns/0.keyword.codes.npy",
    } <= files.keys()
    make_bundle(root, "old", created=at(2))
    return root


@pytest.fixture
def root(intact: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "bundles"
    shutil.copytree(intact, copy)
    return copy


def whole(root: Path) -> Path:
    [path] = (root / "whole").iterdir()
    return path


def names(path: Path) -> list[str]:
    return sorted(read_manifest(path).files)


def swapped(one: str, other: str, *, forged: bool = False) -> Damage:
    def damage(path: Path) -> None:
        (path / one).rename(path / "x")
        (path / other).rename(path / one)
        (path / "x").rename(path / other)
        if forged:
            agree(path, one, other)

    return damage


def pickled(name: str) -> Damage:
    """An object array: unpickling it would run its content."""

    def damage(path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return Path.touch, (path / "sprung",)

        trap = np.empty(1, object)
        trap[0] = Trap()
        np.save(path / name, trap, allow_pickle=True)
        agree(path, name)

    return damage


def named(name: str) -> Damage:
    def damage(path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        del manifest["checksum"]
        manifest["files"][name] = {"sha256": "0" * 64, "bytes": 1}
        (path / "manifest.json").write_text(json.dumps(manifest))
        if not name.startswith(("/", ".")) and "/." not in name:
            agree(path)

    return damage


def pipe(path: Path) -> None:
    (path / "golden.jsonl").unlink()
    os.mkfifo(path / "golden.jsonl")


def bad(name: str, change: Callable[[Any], Any], reason: str = "") -> tuple[Damage, str]:
    """Another content of an array, whose hash the manifest has."""
    return array(name, change), name.removesuffix(".npy") + reason


def cut(values: Any) -> Any:
    return values[:-1].copy()


DENSE, WEIGHTS, BIAS = (f"documents/{name}.npy" for name in ("dense", "weights", "bias"))
INDICES, CODES, SLOTS = "documents/indices.npy", "index/codes.npy", "index/postings.slots.npy"
TABLE, OTHER_TABLE = "model/query.table.npy", "model/document.table.npy"
NUMBERS, KEYWORDS = "columns/2.number.values.npy", "columns/3.keyword.codes.npy"
FINITE, UNREADABLE = ".npy: not finite", ": not a readable .npy"
# The damage, and a part of the reason in the refusal.
DAMAGES: dict[str, tuple[Damage, str]] = {
    "wrong shape": bad(DENSE, lambda a: a[:, :-1].copy(), ".npy: shape"),
    "rows gone": bad(DENSE, cut, ".npy: shape"),
    "wrong type": bad(INDICES, lambda a: a.astype("<i8"), ".npy: int64"),
    "transposed": (array(TABLE, lambda a: np.ascontiguousarray(a.T)), "model"),
    "NaN in the vectors": bad(DENSE, value((0, 0), np.nan), FINITE),
    "infinite weight": bad(WEIGHTS, value(0, np.inf), FINITE),
    "NaN in the model": bad(TABLE, value((0, 0), np.nan), FINITE),
    "NaN in the index": bad("index/scales.npy", value(0, np.nan), FINITE),
    "infinite rest of an outline": bad("index/outline.rest.npy", value(0, np.inf), FINITE),
    "outlines of fewer documents": bad("index/outline.codes.npy", cut, ".npy"),
    "NaN in a bound": bad("index/bounds.npy", value(0, np.nan), FINITE),
    "negative bound": bad("index/bounds.npy", value(0, -1), ".npy"),
    "row of nobody": bad(SLOTS, value(0, 300), ".npy"),
    "negative row": bad(SLOTS, value(0, -1), ".npy"),
    "postings descend": bad("index/postings.indptr.npy", value(1, 10**6), ".npy"),
    "codes of others": bad(CODES, lambda a: a[:, ::-1].copy()[:, :4], ".npy"),
    "code of nobody": bad(KEYWORDS, value(0, 100)),
    "column descends": bad(NUMBERS, value(0, 10**6), ": not ascending"),
    "column too short": bad(KEYWORDS, cut),
    "index out of range": bad(INDICES, value(-1, 10**6), ".npy: an index outside"),
    "other vectors": (array(DENSE, lambda a: a * 2), "golden.jsonl"),
    "other model": (array(TABLE, lambda a: -a), "golden.jsonl"),
    "swapped arrays": (swapped(WEIGHTS, BIAS), BIAS),
    "swapped arrays of one shape": (swapped(TABLE, OTHER_TABLE), f"{OTHER_TABLE}: sha256 differs"),
    "swapped and forged": (swapped(TABLE, OTHER_TABLE, forged=True), "golden.jsonl"),
    "swapped text": (
        swapped("documents/ids.txt", "documents/fields.jsonl"),
        "documents/fields.jsonl",
    ),
    "pickled vectors": (pickled(DENSE), DENSE + UNREADABLE),
    "pickled codes": (pickled(CODES), CODES + UNREADABLE),
    "pickled column": (
        pickled("columns/2.number.codes.npy"),
        "columns/2.number.codes.npy" + UNREADABLE,
    ),
    "link to a file outside": (link(DENSE), f"{DENSE}: a symbolic link"),
    "link to a folder outside": (link("index"), "index: a symbolic link"),
    "linked manifest": (link("manifest.json"), "manifest.json: a symbolic link"),
    "upwards": (named("../outside"), "'../outside' is not a file path"),
    "upwards inside": (named("model/../../outside"), "is not a file path"),
    "absolute": (named("/etc/passwd"), "'/etc/passwd' is not a file path"),
    "hidden": (named("model/.x"), "is not a file path"),
    "not there": (named("model/more.txt"), "model/more.txt: missing"),
    "stray": (
        lambda path: (path / "index" / "more.npy").touch(),
        "index/more.npy: not in the manifest",
    ),
    "pipe": (pipe, "golden.jsonl: not a regular file"),
    "slot in another cell": bad("index/cells.of.npy", value(0, 60), ".npy"),
    "two slots of a document": (array("index/cells.rows.npy", value(0, 7)), "index/cells."),
    "cell behind the end": bad("index/cells.starts.npy", value(1, 10**6)),
    "golden queries of another": (
        lambda path: _replaced(path, "golden.jsonl", b"copy files", b"copy filed"),
        "golden.jsonl",
    ),
    "card of another": (
        lambda path: _replaced(path, "manifest.json", b'"mrr"', b'"map"', forged=False),
        "manifest.json: checksum differs",
    ),
}


def _replaced(path: Path, name: str, old: bytes, new: bytes, *, forged: bool = True) -> None:
    content = (path / name).read_bytes()
    assert old in content
    (path / name).write_bytes(content.replace(old, new))
    if forged:
        agree(path, name)


async def activate(client: httpx.AsyncClient, version: str) -> httpx.Response:
    return await client.put("/v1/models/aliases/default", json={"version": version}, headers=AUTH)


async def refused(client: httpx.AsyncClient, root: Path, reason: str) -> None:
    """Activating the damaged bundle says why not, and nothing has changed."""
    response = await activate(client, whole(root).name)
    problem = response.json()
    assert response.status_code == 409, problem
    assert problem["type"].endswith("bundle-refused")
    assert reason in problem["detail"], problem["detail"]
    assert read_state(root) is None
    answer = (await client.post("/v1/search", json={"query": "copy files"})).json()
    assert (answer["model"].split("-")[0], answer["generation"]) == ("old", 1)
    assert answer["hits"]


async def test_a_damaged_bundle_is_refused_and_the_old_model_keeps_serving(root: Path) -> None:
    """Each kind of damage once, then the intact bundle, which is accepted."""
    path = whole(root)
    copy = root.parent / "copy"
    shutil.copytree(path, copy)
    async with running(root, preload=False, poll_ms=10) as client:
        for what, (damage, reason) in DAMAGES.items():
            damage(path)
            with pytest.raises(BundleError) as found:
                open_bundle(path)
            assert reason in str(found.value), (what, str(found.value))
            await refused(client, root, reason)
            assert not (path / "sprung").exists(), what
            shutil.rmtree(path)
            shutil.copytree(copy, path)
        assert (await activate(client, path.name)).status_code == 200


async def test_a_changed_byte_in_any_file_is_refused(root: Path) -> None:
    """Each file with a flipped bit, one byte shorter, and removed; every sixth case also over HTTP."""
    path = whole(root)
    draw = random.Random(1)
    files = names(path)
    async with running(root, preload=False, poll_ms=10) as client:
        for i, name in enumerate(files):
            file = path / name
            content = file.read_bytes()
            if content:
                flip(file, draw.randrange(len(content)), draw.randrange(8))
                assert f"{name}: sha256 differs" in (refuses(path) or "")
                if i % 6 == 0:
                    await refused(client, root, f"{name}: sha256 differs")
            file.write_bytes(content[:-1] if content else b"x")
            assert f"{name}: " in (refuses(path) or "")
            file.unlink()
            assert f"{name}: missing" in (refuses(path) or "")
            file.write_bytes(content)
        assert len(files) > 30
        assert (await activate(client, path.name)).status_code == 200


def refuses(path: Path) -> str | None:
    try:
        open_bundle(path)
    except BundleError as error:
        return str(error)
    return None


def _reads(path: Path) -> bool:
    try:
        read_manifest(path)
    except BundleError:
        return False
    return True


def flips_of_the_manifest(path: Path, places: range) -> int:
    """Each flip is refused, or changes nothing that the manifest says (a space, the case of an escape)."""
    file = path / "manifest.json"
    content = file.read_bytes()
    manifest = read_manifest(path)
    count = 0
    for place in places:
        for bit in range(8) if places.step == 1 else (place % 8,):
            flip(file, place, bit)
            if _reads(path):
                assert read_manifest(path) == manifest, (place, bit)
            else:
                count += 1
            file.write_bytes(content)
    return count


async def test_a_changed_bit_of_the_manifest_is_refused_or_harmless(root: Path) -> None:
    """A bit of every 41st byte."""
    path = whole(root)
    size = (path / "manifest.json").stat().st_size
    assert flips_of_the_manifest(path, range(0, size, 41)) > size // 41 // 2


@pytest.mark.slow
async def test_every_changed_bit_of_the_manifest_and_thousands_in_files_are_refused_or_harmless(
    root: Path,
) -> None:
    """All bits of the manifest, and 5,000 random ones of the files, each file as often as the others."""
    path = whole(root)
    size = (path / "manifest.json").stat().st_size
    flips_of_the_manifest(path, range(size))
    draw = random.Random(1)
    files = [name for name in names(path) if (path / name).stat().st_size]
    for i in range(5_000):
        name = files[i % len(files)]
        file = path / name
        at, bit = draw.randrange(file.stat().st_size), draw.randrange(8)
        flip(file, at, bit)
        reason = refuses(path)
        assert reason is not None, (name, at, bit)
        assert name in reason
        flip(file, at, bit)
    assert refuses(path) is None
