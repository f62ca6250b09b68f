"""Bundles of a tiny planted model: exact round trip, refusal of every damage, all-or-nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fullrank import bundle, folder, loading, publish
from fullrank.bundle import find_bundle, list_bundles, open_bundle, verify_bundle, write_bundle
from fullrank.columns import columns_of
from fullrank.documents import Document
from fullrank.encoding import Encoded
from fullrank.errors import BundleError, BundleNotFound
from fullrank.manifest import FileEntry, Manifest, bundle_id
from fullrank.model import Parts
from fullrank.retrieval import Retriever
from tests.words_bundle import CREATED, QUERIES, WORDS, WordsModel, arrays, planted


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles whose kind is "words" load as WordsModel, and forty documents have an index."""
    monkeypatch.setattr(publish, "INDEXED_FROM", 40)

    def load(parts: Parts) -> WordsModel:
        assert parts.config["kind"] == "words"
        return WordsModel(parts.strings["words"], parts.arrays["U"])

    monkeypatch.setattr(loading, "load_model", load)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "bundles"


@pytest.fixture
def written(root: Path) -> Path:
    return write_bundle(root, "planted", **planted(), created=CREATED)


# -- what is written ---------------------------------------------------------------------------


def test_the_folder_holds_what_the_format_says(written: Path) -> None:
    assert written.parent.name == "planted"
    files = {str(p.relative_to(written)) for p in written.rglob("*") if p.is_file()}
    assert files == {
        "manifest.json",
        "golden.jsonl",
        "index/cells.faiss",
        "index/bounds.npy",
        "index/codes.npy",
        "index/scales.npy",
        "index/limits.npy",
        "index/postings.indptr.npy",
        "index/postings.rows.npy",
        "index/postings.impacts.npy",
        "index/champions.indptr.npy",
        "index/champions.rows.npy",
        "index/champions.impacts.npy",
        "index/signatures.npy",
        "index/signatures.words.npy",
        "index/signatures.means.npy",
        "index/cells.of.npy",
        "model/U.npy",
        "model/words.txt",
        "model/words.offsets.npy",
        "documents/dense.npy",
        "documents/indptr.npy",
        "documents/indices.npy",
        "documents/weights.npy",
        "documents/bias.npy",
        "documents/ids.txt",
        "documents/ids.offsets.npy",
        "documents/fields.jsonl",
        "documents/fields.offsets.npy",
        "columns/0.keyword.codes.npy",
        "columns/0.keyword.values.txt",
        "columns/0.keyword.values.offsets.npy",
        "columns/1.number.codes.npy",
        "columns/1.number.values.npy",
    }


def test_the_manifest_says_what_each_file_is(written: Path) -> None:
    manifest = json.loads((written / "manifest.json").read_text())
    assert manifest["format_version"] == 2
    assert manifest["name"] == "planted"
    assert manifest["version"] == written.name
    assert manifest["version"] == f"planted-20260102t030405z-{manifest['bundle_id'][:8]}"
    assert manifest["created"] == "2026-01-02T03:04:05.000678+00:00"
    assert manifest["model"] == {"kind": "words", "title": "größe"}
    assert manifest["card"] == planted()["card"]
    for name, entry in manifest["files"].items():
        content = (written / name).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert entry["bytes"] == len(content)
        if name.endswith(".npy"):
            array = np.load(written / name)
            assert (entry["dtype"], tuple(entry["shape"])) == (array.dtype.str, array.shape)


def test_the_manifest_is_canonical(written: Path) -> None:
    text = (written / "manifest.json").read_text()
    value = json.loads(text)
    assert text == json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1) + "\n"


def test_the_same_training_has_the_same_id_whatever_name_time_and_card(root: Path) -> None:
    first = open_bundle(write_bundle(root, "one", **planted()))
    second = open_bundle(write_bundle(root, "two", **planted() | {"card": {}}, created=CREATED))
    assert first.bundle_id == second.bundle_id
    assert first.version != second.version


def test_the_id_follows_files_and_model() -> None:
    files = {"a.npy": FileEntry("0" * 64, 1)}
    base = bundle_id(files, {"kind": "x"})
    assert base != bundle_id(files, {"kind": "y"})
    assert base != bundle_id({"b.npy": files["a.npy"]}, {"kind": "x"})
    assert base != bundle_id({"a.npy": FileEntry("1" * 64, 1)}, {"kind": "x"})


def test_published_twice_in_one_second_both_are_kept(root: Path, written: Path) -> None:
    again = write_bundle(root, "planted", **planted(), created=CREATED)
    assert again != written
    assert open_bundle(again).bundle_id == open_bundle(written).bundle_id
    assert find_bundle(root, "planted") == again


def test_progress_names_each_part(root: Path) -> None:
    said: list[tuple[str, int, int]] = []
    write_bundle(root, "planted", **planted(), progress=lambda *told: said.append(told))
    parts = ["model", "documents", "columns", "codes", "postings", "cells", "golden queries"]
    assert list(dict.fromkeys(part for part, _, _ in said)) == parts
    last = {part: (done, total) for part, done, total in said}
    assert all(done == total for done, total in last.values())
    for long in ("codes", "postings", "cells"):
        assert last[long][0] > 0


def test_few_documents_need_no_index_and_no_dense_part_no_cells(root: Path) -> None:
    sparse = open_bundle(write_bundle(root, "sparse", **planted(n_dense=0)))
    assert sparse.retriever.index is not None
    assert sparse.retriever.index.cells is None
    assert sparse.encoded.dense.shape == (40, 0)
    few = open_bundle(write_bundle(root, "few", **planted(documents=39)))
    assert few.retriever.index is None


def test_the_fast_mode_is_tuned_on_sample_queries(root: Path) -> None:
    path = write_bundle(root, "tuned", **planted(), sample_queries=[*QUERIES, *WORDS])
    bundle = open_bundle(path)
    assert bundle.retriever.modes == ("exact", "fast")
    fast = bundle.sections["index"].facts["fast"]
    assert fast["recall_at_10"] >= 0.99
    assert fast["queries"] == (len(QUERIES) + len(WORDS)) // 2
    untuned = open_bundle(write_bundle(root, "untuned", **planted()))
    assert untuned.retriever.modes == ("exact",)


# -- round trip --------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(("n_dense", "documents"), [(3, 40), (0, 40), (3, 1), (3, 0)])
def test_loaded_answers_as_memory_does_to_the_bit(
    n_dense: int, documents: int, verify: bool, root: Path
) -> None:
    given = planted(n_dense, documents)
    opened = open_bundle(write_bundle(root, "planted", **given), verify=verify)

    assert opened.model.config == given["model"].config
    assert opened.card == given["card"]
    assert list(opened.documents.ids) == [d.id for d in given["documents"]]
    stored = [opened.documents.document(row) for row in range(documents)]
    assert stored == given["documents"]
    for name, array in arrays(opened.encoded).items():
        expected = arrays(given["encoded"])[name]
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
    in_memory = Retriever(given["encoded"]).search(given["model"].encode_queries(QUERIES), 100)
    from_disk = opened.retriever.search(opened.model.encode_queries(QUERIES), 100)
    for ours, theirs in zip(in_memory, from_disk, strict=True):
        np.testing.assert_array_equal(ours.rows, theirs.rows)
        np.testing.assert_array_equal(ours.scores, theirs.scores)


def test_arrays_are_mapped_read_only(written: Path) -> None:
    for array in arrays(open_bundle(written).encoded).values():
        assert not array.flags.writeable
        assert not array.flags.owndata


def test_a_bundle_opens_wherever_its_folder_stands(written: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(written, tmp_path / "model")
    assert open_bundle(moved).version == written.name


# -- what is refused at load ---------------------------------------------------------------------

Damage = Callable[[Path], None]


def _rewrite(path: Path, name: str, array: npt.NDArray[Any]) -> None:
    """Replace an array and make the manifest agree: only a look at the values can object."""
    np.save(path / name, array)
    _agree(path, name, dtype=array.dtype.str, shape=list(array.shape))


def _agree(path: Path, name: str, **more: Any) -> None:
    content = (path / name).read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()

    def change(manifest: dict[str, Any]) -> None:
        manifest["files"].setdefault(name, {}).update(sha256=sha256, bytes=len(content), **more)

    _edit(path, change)


def _edit(path: Path, change: Callable[[dict[str, Any]], Any], *, new_id: bool = True) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    # Of one who forges, not of one who errs: what the checksum would find is not what is tested.
    manifest.pop("checksum", None)
    change(manifest)
    if new_id:
        files = {k: FileEntry(v["sha256"], v["bytes"]) for k, v in manifest["files"].items()}
        manifest["bundle_id"] = bundle_id(files, manifest["model"])
    (path / "manifest.json").write_text(json.dumps(manifest))


def _swap_text(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def _flip(path: Path, name: str) -> None:
    content = bytearray((path / name).read_bytes())
    content[-1] ^= 1
    (path / name).write_bytes(content)


def _link(path: Path) -> None:
    (path / "golden.jsonl").rename(path.parent.parent / "golden.jsonl")
    (path / "golden.jsonl").symlink_to(path.parent.parent / "golden.jsonl")


def _link_folder(path: Path) -> None:
    (path / "model").rename(path.parent.parent / "model")
    (path / "model").symlink_to(path.parent.parent / "model")


def _text(path: Path, name: str, content: bytes) -> None:
    (path / name).write_bytes(content)
    _agree(path, name)


def _array(name: str, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any] | None]) -> Damage:
    def damage(path: Path) -> None:
        array = np.load(path / name)
        changed = change(array)
        _rewrite(path, name, array if changed is None else changed)

    return damage


def _set(index: Any, value: Any) -> Callable[[npt.NDArray[Any]], None]:
    return lambda array: array.__setitem__(index, value)


def _manifest(change: Callable[[dict[str, Any]], Any]) -> Damage:
    return lambda path: _edit(path, change)


def _entry(name: str, **values: Any) -> Damage:
    return _manifest(lambda manifest: manifest["files"][name].update(values))


DAMAGES: dict[str, tuple[Damage, str]] = {
    # the folder
    "stray file": (lambda p: (p / "x").touch(), "x: not in the manifest"),
    "stray file in a folder": (
        lambda p: (p / "model/x.npy").touch(),
        "model/x.npy: not in the manifest",
    ),
    "missing file": (lambda p: (p / "model/U.npy").unlink(), "model/U.npy: missing"),
    "no manifest": (lambda p: (p / "manifest.json").unlink(), "no manifest.json, so no bundle"),
    "link": (_link, "golden.jsonl: a symbolic link"),
    "linked folder": (_link_folder, "model: a symbolic link"),
    "pipe": (lambda p: os.mkfifo(p / "pipe"), "pipe: not a plain file"),
    "cut off": (lambda p: os.truncate(p / "documents/dense.npy", 300), "dense.npy: 300 bytes"),
    "grown": (lambda p: os.truncate(p / "model/U.npy", 9999), "model/U.npy: 9999 bytes"),
    # the manifest
    "other format": (
        _manifest(lambda m: m.update(format_version=3)),
        "format_version is 3, this release reads 1 and 2",
    ),
    "format no integer": (
        _manifest(lambda m: m.update(format_version=2.0)),
        "format_version is 2.0, this release reads 1 and 2",
    ),
    "section in an old format": (
        _manifest(lambda m: m.update(format_version=1, index={})),
        "fields differ: ['columns', 'index']",
    ),
    "section no object": (
        _manifest(lambda m: m.update(columns=[])),
        "columns is not of type dict",
    ),
    "file of no section": (
        lambda p: (
            _text(p, "columns/codes.bin", b""),
            _edit(p, lambda m: m.pop("columns")),
        )[1],
        "there is no field 'columns'",
    ),
    "stray file in a section": (
        lambda p: _text(p, "index/codes.bin", b""),
        "index/codes.bin: no part of this format",
    ),
    "no format": (_manifest(lambda m: m.pop("format_version")), "format_version is None"),
    "unknown field": (_manifest(lambda m: m.update(more=1)), "fields differ: ['more']"),
    "field gone": (_manifest(lambda m: m.pop("card")), "fields differ: ['card']"),
    "wrong type": (_manifest(lambda m: m.update(card=[])), "card is not of type dict"),
    "bad name": (_manifest(lambda m: m.update(name="../x")), "'../x' is not a bundle name"),
    "bad time": (_manifest(lambda m: m.update(created="today")), "created: "),
    "escape": (
        _manifest(lambda m: m["files"].update({"../x": {"sha256": "0" * 64, "bytes": 0}})),
        "'../x' is not a file path",
    ),
    "absolute": (
        _manifest(lambda m: m["files"].update({"/etc/x": {"sha256": "0" * 64, "bytes": 0}})),
        "'/etc/x' is not a file path",
    ),
    "itself": (
        _manifest(lambda m: m["files"].update({"manifest.json": {"sha256": "0" * 64, "bytes": 0}})),
        "'manifest.json' is not a file path",
    ),
    "letter case": (
        _manifest(lambda m: m["files"].update({"GOLDEN.jsonl": {"sha256": "0" * 64, "bytes": 0}})),
        "letter case",
    ),
    "bad hash": (_entry("golden.jsonl", sha256="x"), "golden.jsonl: sha256 is not"),
    "bad size": (_entry("golden.jsonl", bytes=-1), "golden.jsonl: bytes is not a size"),
    "true is no size": (_entry("golden.jsonl", bytes=True), "golden.jsonl: bytes is not a size"),
    "object dtype": (_entry("model/U.npy", dtype="|O"), "dtype '|O' is not allowed"),
    "bad shape": (_entry("model/U.npy", shape=[-1]), "model/U.npy: shape is not"),
    "unknown entry": (_entry("golden.jsonl", more=1), "golden.jsonl: expected"),
    "id of other files": (
        lambda p: _edit(p, lambda m: m.update(bundle_id="0" * 64), new_id=False),
        "bundle_id does not follow",
    ),
    "twice": (
        lambda p: (p / "manifest.json").write_text('{"format_version": 1, "format_version": 1}'),
        "a key appears twice",
    ),
    "card changed": (
        lambda p: _swap_text(p / "manifest.json", '"map"', '"mad"'),
        "checksum differs",
    ),
    "checksum's name": (
        lambda p: _swap_text(p / "manifest.json", '"checksum"', '"checksun"'),
        "fields differ: ['checksun']",
    ),
    "NaN": (lambda p: (p / "manifest.json").write_text('{"x": NaN}'), "NaN is not a JSON number"),
    "no JSON": (lambda p: (p / "manifest.json").write_text("{"), "manifest.json: not JSON"),
    "no object": (lambda p: (p / "manifest.json").write_text("[]"), "not a JSON object"),
    "no text": (lambda p: (p / "manifest.json").write_bytes(b"\xff"), "manifest.json: not utf-8"),
    # contents against the manifest
    "bit flipped": (lambda p: _flip(p, "model/U.npy"), "model/U.npy: sha256 differs"),
    "bit flipped in cells": (
        lambda p: _flip(p, "index/cells.faiss"),
        "index/cells.faiss: sha256 differs",
    ),
    "codes of fewer": (_array("index/codes.npy", lambda a: a[1:]), "index/codes.npy: "),
    "nan in scales": (_array("index/scales.npy", _set(0, np.nan)), "index/scales.npy: not finite"),
    "posting of no document": (
        _array("index/postings.rows.npy", _set(0, 40)),
        "index/postings.rows.npy: a row outside 0..39",
    ),
    "postings that descend": (
        _array("index/postings.indptr.npy", _set(1, 10**6)),
        "index/postings.indptr.npy: does not ascend",
    ),
    "a bound that is none": (
        _array("index/bounds.npy", _set(0, -1.0)),
        "index/bounds.npy: a bound that is none",
    ),
    "a bound is missing": (_array("index/bounds.npy", lambda a: a[1:]), "index: ValueError"),
    "dtype": (_entry("model/U.npy", dtype="<i4"), "model/U.npy: dtype <f4, the manifest says <i4"),
    "shape": (_entry("model/U.npy", shape=[3, 5]), "shape (5, 3), the manifest says (3, 5)"),
    # contents that agree with the manifest
    "pickle": (
        lambda p: (
            np.save(p / "model/U.npy", np.array([{}], object), allow_pickle=True),
            _agree(p, "model/U.npy"),
        )[1],
        "model/U.npy: not a readable .npy file",
    ),
    "no npy": (lambda p: _text(p, "model/U.npy", b"x" * 200), "model/U.npy: not a"),
    "zip": (lambda p: _text(p, "model/U.npy", b"PK\x03\x04" + b"x" * 200), "model/U.npy: not a"),
    "column order": (
        _array("documents/dense.npy", np.asfortranarray),
        "documents/dense.npy: not in row order",
    ),
    "appended": (
        lambda p: _text(p, "model/U.npy", (p / "model/U.npy").read_bytes() + b"x"),
        "model/U.npy: holds more than its array",
    ),
    "nan in model": (_array("model/U.npy", _set((0, 0), np.nan)), "model/U.npy: not finite"),
    "inf in dense": (_array("documents/dense.npy", _set((0, 0), np.inf)), "dense.npy: not finite"),
    "nan in bias": (_array("documents/bias.npy", _set(0, np.nan)), "bias.npy: not finite"),
    "nan in weights": (_array("documents/weights.npy", _set(0, np.nan)), "weights.npy: not finite"),
    "double dense": (
        _array("documents/dense.npy", lambda a: a.astype(np.float64)),
        "documents/dense.npy: float64, not float32",
    ),
    "a dense row less": (
        _array("documents/dense.npy", lambda a: a[1:]),
        "documents/dense.npy: shape (39, 3), expected (40, 3)",
    ),
    "a bias less": (_array("documents/bias.npy", lambda a: a[1:]), "documents/bias.npy: shape"),
    "a weight less": (
        _array("documents/weights.npy", lambda a: a[1:]),
        "documents/weights.npy: shape",
    ),
    "pointers descend": (
        _array("documents/indptr.npy", _set(20, 0)),
        "documents/indptr.npy: does not ascend",
    ),
    "pointers begin late": (
        _array("documents/indptr.npy", _set(0, 1)),
        "documents/indptr.npy: does not ascend",
    ),
    "pointers end early": (
        _array("documents/indptr.npy", _set(-1, 3)),
        "documents/indptr.npy: does not ascend",
    ),
    "index too large": (
        _array("documents/indices.npy", _set(-1, len(WORDS))),
        "documents/indices.npy: an index outside 0..4",
    ),
    "index negative": (_array("documents/indices.npy", _set(0, -1)), "an index outside 0..4"),
    "indices descend": (
        _array("documents/indices.npy", lambda a: a[::-1].copy()),
        "documents/indices.npy: indices of a row do not ascend",
    ),
    "ids not ascending": (
        lambda p: _text(
            p, "documents/ids.txt", (p / "documents/ids.txt").read_bytes().replace(b"d002", b"d001")
        ),
        "documents/ids.txt: row 2, 'd001', does not come after 'd001'",
    ),
    "ids no utf-8": (
        lambda p: _text(
            p, "documents/ids.txt", (p / "documents/ids.txt").read_bytes().replace(b"d0", b"\xff0")
        ),
        "documents/ids.txt: ",
    ),
    "string offsets": (
        _array("documents/ids.offsets.npy", _set(3, 1)),
        "documents/ids.txt: its offsets descend",
    ),
    "string offsets of another type": (
        _array("documents/ids.offsets.npy", lambda a: a.astype(np.int32)),
        "documents/ids.offsets.npy: not a row of int64",
    ),
    "a stored line less": (
        lambda p: (
            _text(p, "documents/fields.jsonl", b"{}\n"),
            _rewrite(p, "documents/fields.offsets.npy", np.array([0, 3])),
        )[0],
        "documents/fields.jsonl: 1 lines for 40 ids",
    ),
    "file of no format": (
        lambda p: _text(p, "more.txt", b""),
        "more.txt: no part of this format",
    ),
    "model part gone": (
        lambda p: (
            (p / "model/U.npy").unlink(),
            _edit(p, lambda m: m["files"].pop("model/U.npy")),
        )[0],
        "model: KeyError: 'U'",
    ),
    "part of the documents gone": (
        lambda p: (
            (p / "documents/bias.npy").unlink(),
            _edit(p, lambda m: m["files"].pop("documents/bias.npy")),
        )[0],
        "documents/bias.npy: missing",
    ),
    "golden queries gone": (
        lambda p: (
            (p / "golden.jsonl").unlink(),
            _edit(p, lambda m: m["files"].pop("golden.jsonl")),
        )[0],
        "golden.jsonl: missing",
    ),
    "words fewer than rows": (
        lambda p: (
            _text(p, "model/words.txt", b"ab"),
            _rewrite(p, "model/words.offsets.npy", np.array([0, 1, 2])),
        )[0],
        "documents/indices.npy: an index outside 0..1",
    ),
    # answers
    "another model": (
        _array("model/U.npy", lambda a: a * np.float32(1.001)),
        "golden.jsonl: query 'apple 日本': rank 1 scores",
    ),
    "golden line no JSON": (
        lambda p: _text(p, "golden.jsonl", b"{\n"),
        "golden.jsonl: line 1",
    ),
    "column of another": (
        _array("columns/0.keyword.codes.npy", lambda a: a[1:]),
        "columns/0.keyword.codes: 39 codes for 40 documents",
    ),
    "column of no value": (
        _array("columns/1.number.codes.npy", _set(0, 40)),
        "columns/1.number.codes: a code outside -1..39",
    ),
    "columns undescribed": (
        _manifest(lambda m: m.update(columns={})),
        "columns/: the manifest does not describe it",
    ),
    "golden line cut": (
        lambda p: _text(p, "golden.jsonl", b'{"ids":["a"],"query":"x","scores":[]}\n'),
        "golden.jsonl: line 1: ids and scores differ",
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_bundle_is_refused_with_file_and_reason(case: str, written: Path) -> None:
    damage, reason = DAMAGES[case]
    damage(written)
    with pytest.raises(BundleError) as raised:
        verify_bundle(written)
    assert str(written) in str(raised.value)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    "case", ["stray file", "missing file", "link", "escape", "other format", "dtype", "cut off"]
)
def test_structure_is_checked_even_without_verification(case: str, written: Path) -> None:
    damage, reason = DAMAGES[case]
    damage(written)
    with pytest.raises(BundleError) as raised:
        open_bundle(written, verify=False)
    assert reason in str(raised.value)


@pytest.mark.parametrize("name", ["absent", "golden.jsonl"])
def test_a_path_without_a_bundle_is_not_found(name: str, written: Path) -> None:
    with pytest.raises(BundleNotFound, match="no bundle"):
        open_bundle(written / name)


# -- writing: all or nothing ---------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", "A", "../x", "a/b", ".tmp-a", "-a", "a" * 101, "a" * 75])
def test_names_that_are_no_folder_names_are_refused(bad: str, root: Path) -> None:
    with pytest.raises(BundleError, match="name a bundle"):
        write_bundle(root, bad, **planted())
    assert not root.exists()


def _change(**fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(given: dict[str, Any]) -> None:
        encoded = given["encoded"]
        values = arrays(encoded) | {"width": encoded.width} | fields
        given["encoded"] = Encoded(**values)

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
def test_parts_with_names_that_are_no_file_names_are_refused(
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


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), BundleError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
)
@pytest.mark.parametrize("writes", [0, 1, 7, 20])
def test_a_write_that_fails_leaves_the_folder_as_it_was(
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


def test_a_full_disk_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(BundleError, match=r"cannot write .*: No space left on device"):
        write_bundle(root, "planted", **planted())
    assert not list(root.rglob("*"))


def test_a_rename_that_fails_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# -- finding -------------------------------------------------------------------------------------


def _named(infos: list[bundle.BundleInfo]) -> list[str]:
    return [info.version for info in infos]


def test_bundles_are_listed_newest_first(root: Path) -> None:
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (2, 3, 1)]
    b, c, a = (
        write_bundle(root, name, **planted(), created=time)
        for name, time in zip(["two", "one", "one"], times, strict=True)
    )
    infos = list_bundles(root)
    assert [info.path for info in infos] == [c, b, a]
    assert [info.name for info in infos] == ["one", "two", "one"]
    assert infos[0].card == planted()["card"]
    assert infos[0].bytes == sum(
        p.stat().st_size for p in c.rglob("*") if p.is_file() and p.name != "manifest.json"
    )
    assert find_bundle(root, "one") == c
    assert find_bundle(root, "two") == b
    assert find_bundle(root, a.name) == a


def test_what_is_no_bundle_is_left_out(
    root: Path, written: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(written, written.parent / ".tmp-0123")
    shutil.copytree(written, written.parent / "copy")
    shutil.copytree(written.parent, root / "other")
    (root / "notes.txt").touch()
    (root / "empty").mkdir()
    (written.parent / "file").touch()
    broken = written.parent / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{}")
    assert _named(list_bundles(root)) == [written.name]
    assert find_bundle(root, "planted") == written
    assert f"left out {broken}" in caplog.text
    assert f"left out {root / 'other' / written.name}" in caplog.text


def test_no_root_is_told_from_an_empty_one(root: Path) -> None:
    with pytest.raises(BundleNotFound, match="no such folder"):
        list_bundles(root)
    root.mkdir()
    assert list_bundles(root) == []


@pytest.mark.parametrize("wanted", ["other", "../planted", "", "planted/x", ".tmp-x"])
def test_what_is_not_there_is_named(wanted: str, root: Path, written: Path) -> None:
    with pytest.raises(BundleNotFound) as raised:
        find_bundle(root, wanted)
    assert repr(wanted) in str(raised.value)


def test_the_manifest_reads_back_what_it_dumps(written: Path) -> None:
    manifest = bundle.read_manifest(written)
    assert isinstance(manifest, Manifest)
    assert manifest.dump() == (written / "manifest.json").read_text()


# -- columns -----------------------------------------------------------------------------------


def test_columns_are_mapped_and_say_what_the_fields_say(written: Path) -> None:
    bundle = open_bundle(written)
    built = columns_of(map(bundle.documents.fields, range(len(bundle.documents))))
    assert bundle.columns.by_name.keys() == built.by_name.keys() == {"title", "n"}
    for name, column in built.by_name.items():
        for kind, part in column.parts.items():
            stored = bundle.columns[name].parts[kind]
            assert not stored.codes.flags.writeable
            assert list(stored.values) == list(part.values)
            np.testing.assert_array_equal(stored.codes, part.codes)


def test_a_bundle_without_columns_builds_them(written: Path) -> None:
    def without(manifest: dict[str, Any]) -> None:
        del manifest["columns"]
        manifest["files"] = {
            name: entry
            for name, entry in manifest["files"].items()
            if not name.startswith("columns/")
        }

    stored = open_bundle(written).columns
    shutil.rmtree(written / "columns")
    _edit(written, without)
    bundle = open_bundle(written)
    assert "columns" not in bundle.sections
    assert bundle.columns is bundle.columns
    assert bundle.columns.by_name.keys() == stored.by_name.keys()
