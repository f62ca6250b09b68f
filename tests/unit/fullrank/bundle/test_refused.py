"""Every damage to a bundle is refused at load, with file and reason."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import open_bundle, verify_bundle
from fullrank.errors import BundleError, BundleNotFound
from tests.forging import Damage, agree, array, edit, edited, entry, flip, link, put, rewrite, value
from tests.words_bundle import WORDS


def _swap_text(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def _gone(name: str) -> Damage:
    def damage(path: Path) -> None:
        (path / name).unlink()
        edit(path, lambda manifest: manifest["files"].pop(name))

    return damage


def _replace(name: str, old: bytes, new: bytes) -> Damage:
    return lambda path: put(path, name, (path / name).read_bytes().replace(old, new))


EMPTY = {"sha256": "0" * 64, "bytes": 0}
DAMAGES: dict[str, tuple[Damage, str]] = {
    # the folder
    "stray file": (lambda p: (p / "x").touch(), "x: not in the manifest"),
    "stray file in a folder": (lambda p: (p / "model/x.npy").touch(), "model/x.npy: not in the manifest"),
    "missing file": (lambda p: (p / "model/U.npy").unlink(), "model/U.npy: missing"),
    "no manifest": (lambda p: (p / "manifest.json").unlink(), "no manifest.json, so no bundle"),
    "link": (link("golden.jsonl", up=1), "golden.jsonl: a symbolic link"),
    "linked folder": (link("model", up=1), "model: a symbolic link"),
    "pipe": (lambda p: os.mkfifo(p / "pipe"), "pipe: not a regular file"),
    "cut off": (lambda p: os.truncate(p / "documents/dense.npy", 300), "dense.npy: 300 bytes"),
    "grown": (lambda p: os.truncate(p / "model/U.npy", 9999), "model/U.npy: 9999 bytes"),
    # the manifest
    "other format": (
        edited(lambda m: m.update(format_version=7, more={})),
        "bundle format 7 is newer than this release reads (up to 4); upgrade fullrank",
    ),
    "format no integer": (
        edited(lambda m: m.update(format_version=2.0)),
        "format_version is 2.0, not a number from 1 on",
    ),
    "section in an old format": (
        edited(lambda m: m.update(format_version=1, index={})),
        "fields differ: ['columns', 'index']",
    ),
    "section no object": (edited(lambda m: m.update(columns=[])), "columns is not of type dict"),
    "file of no section": (
        lambda p: (put(p, "columns/codes.bin", b""), edit(p, lambda m: m.pop("columns")))[1],
        "the field 'columns' is missing",
    ),
    "stray file in a section": (lambda p: put(p, "index/codes.bin", b""), "index/codes.bin: not a file of this format"),
    "no format": (edited(lambda m: m.pop("format_version")), "format_version is None"),
    "unknown field": (edited(lambda m: m.update(more=1)), "fields differ: ['more']"),
    "field gone": (edited(lambda m: m.pop("card")), "fields differ: ['card']"),
    "wrong type": (edited(lambda m: m.update(card=[])), "card is not of type dict"),
    "bad name": (edited(lambda m: m.update(name="../x")), "'../x' is not a bundle name"),
    "bad time": (edited(lambda m: m.update(created="today")), "created: "),
    "escape": (edited(lambda m: m["files"].update({"../x": EMPTY})), "'../x' is not a file path"),
    "absolute": (edited(lambda m: m["files"].update({"/etc/x": EMPTY})), "'/etc/x' is not a file path"),
    "itself": (edited(lambda m: m["files"].update({"manifest.json": EMPTY})), "'manifest.json' is not a file path"),
    "letter case": (edited(lambda m: m["files"].update({"GOLDEN.jsonl": EMPTY})), "letter case"),
    "bad hash": (entry("golden.jsonl", sha256="x"), "golden.jsonl: sha256 is not"),
    "bad size": (entry("golden.jsonl", bytes=-1), "golden.jsonl: bytes is not a size"),
    "true is no size": (entry("golden.jsonl", bytes=True), "golden.jsonl: bytes is not a size"),
    "object dtype": (entry("model/U.npy", dtype="|O"), "dtype '|O' is not allowed"),
    "bad shape": (entry("model/U.npy", shape=[-1]), "model/U.npy: shape is not"),
    "unknown entry": (entry("golden.jsonl", more=1), "golden.jsonl: expected"),
    "id of other files": (
        lambda p: edit(p, lambda m: m.update(bundle_id="0" * 64), new_id=False),
        "bundle_id does not follow",
    ),
    "twice": (
        lambda p: (p / "manifest.json").write_text('{"format_version": 1, "format_version": 1}'),
        "twice in one object",
    ),
    "card changed": (lambda p: _swap_text(p / "manifest.json", '"map"', '"mad"'), "checksum differs"),
    "checksum's name": (
        lambda p: _swap_text(p / "manifest.json", '"checksum"', '"checksun"'),
        "fields differ: ['checksun']",
    ),
    "NaN": (lambda p: (p / "manifest.json").write_text('{"x": NaN}'), "holds NaN, which is not a JSON number"),
    "integer that few can read": (
        lambda p: (p / "manifest.json").write_text(f'{{"x": {2**64}}}'),
        "holds an integer of more than 64 bits",
    ),
    "no JSON": (lambda p: (p / "manifest.json").write_text("{"), "manifest.json: is not JSON"),
    "no object": (lambda p: (p / "manifest.json").write_text("[]"), "not a JSON object"),
    "no text": (lambda p: (p / "manifest.json").write_bytes(b"\xff"), "manifest.json: not utf-8"),
    # contents against the manifest
    "bit flipped": (lambda p: flip(p / "model/U.npy", -1), "model/U.npy: sha256 differs"),
    "bit flipped in cells": (
        lambda p: flip(p / "index/cells.centres.npy", -1),
        "index/cells.centres.npy: sha256 differs",
    ),
    "codes of fewer": (array("index/codes.npy", lambda a: a[1:]), "index/codes.npy: "),
    "nan in scales": (array("index/scales.npy", value(0, np.nan)), "index/scales.npy: not finite"),
    "posting of no document": (
        array("index/postings.slots.npy", value(0, 40)),
        "index/postings.slots.npy: a slot outside 0..39",
    ),
    "postings that descend": (
        array("index/postings.indptr.npy", value(1, 10**6)),
        "index/postings.indptr.npy: does not ascend",
    ),
    "a bound is not a finite number above zero": (
        array("index/bounds.npy", value(0, -1.0)),
        "index/bounds.npy: a bound is not a finite number above zero",
    ),
    "a bound is missing": (array("index/bounds.npy", lambda a: a[1:]), "index/bounds.npy: shape (5,)"),
    "dtype": (entry("model/U.npy", dtype="<i4"), "model/U.npy: dtype <f4, the manifest says <i4"),
    "shape": (entry("model/U.npy", shape=[3, 5]), "shape (5, 3), the manifest says (3, 5)"),
    # contents that agree with the manifest
    "pickle": (
        lambda p: (
            np.save(p / "model/U.npy", np.array([{}], object), allow_pickle=True),
            agree(p, "model/U.npy"),
        )[1],
        "model/U.npy: not a readable .npy file",
    ),
    "no npy": (lambda p: put(p, "model/U.npy", b"x" * 200), "model/U.npy: not a"),
    "zip": (lambda p: put(p, "model/U.npy", b"PK\x03\x04" + b"x" * 200), "model/U.npy: not a"),
    "column order": (array("documents/dense.npy", np.asfortranarray), "documents/dense.npy: not in C order"),
    "appended": (
        lambda p: put(p, "model/U.npy", (p / "model/U.npy").read_bytes() + b"x"),
        "model/U.npy: has bytes after its array",
    ),
    "nan in model": (array("model/U.npy", value((0, 0), np.nan)), "model/U.npy: not finite"),
    "inf in dense": (array("documents/dense.npy", value((0, 0), np.inf)), "dense.npy: not finite"),
    "nan in bias": (array("documents/bias.npy", value(0, np.nan)), "bias.npy: not finite"),
    "nan in weights": (array("documents/weights.npy", value(0, np.nan)), "weights.npy: not finite"),
    "double dense": (
        array("documents/dense.npy", lambda a: a.astype(np.float64)),
        "documents/dense.npy: float64, not float32",
    ),
    "a dense row less": (
        array("documents/dense.npy", lambda a: a[1:]),
        "documents/dense.npy: shape (39, 3), expected (40, 3)",
    ),
    "a bias less": (array("documents/bias.npy", lambda a: a[1:]), "documents/bias.npy: shape"),
    "a weight less": (array("documents/weights.npy", lambda a: a[1:]), "documents/weights.npy: shape"),
    "pointers descend": (array("documents/indptr.npy", value(20, 0)), "documents/indptr.npy: does not ascend"),
    "pointers begin late": (array("documents/indptr.npy", value(0, 1)), "documents/indptr.npy: does not ascend"),
    "pointers end early": (array("documents/indptr.npy", value(-1, 3)), "documents/indptr.npy: does not ascend"),
    "index too large": (
        array("documents/indices.npy", value(-1, len(WORDS))),
        "documents/indices.npy: an index outside 0..4",
    ),
    "index negative": (array("documents/indices.npy", value(0, -1)), "an index outside 0..4"),
    "indices descend": (
        array("documents/indices.npy", lambda a: a[::-1].copy()),
        "documents/indices.npy: indices of a row do not ascend",
    ),
    "ids not ascending": (
        _replace("documents/ids.txt", b"d002", b"d001"),
        "documents/ids.txt: row 2, 'd001', does not come after 'd001'",
    ),
    "ids no utf-8": (_replace("documents/ids.txt", b"d0", b"\xff0"), "documents/ids.txt: "),
    "string offsets": (array("documents/ids.offsets.npy", value(3, 1)), "documents/ids.txt: its offsets descend"),
    "string offsets of another type": (
        array("documents/ids.offsets.npy", lambda a: a.astype(np.int32)),
        "documents/ids.offsets.npy: not one row of int64",
    ),
    "a stored line less": (
        lambda p: (
            put(p, "documents/fields.jsonl", b"{}\n"),
            rewrite(p, "documents/fields.offsets.npy", np.array([0, 3])),
        )[0],
        "documents/fields.jsonl: 1 lines for 40 ids",
    ),
    "file of no format": (lambda p: put(p, "more.txt", b""), "more.txt: not a file of this format"),
    "model part gone": (_gone("model/U.npy"), "model: KeyError: 'U'"),
    "part of the documents gone": (_gone("documents/bias.npy"), "documents/bias.npy: missing"),
    "golden queries gone": (_gone("golden.jsonl"), "golden.jsonl: missing"),
    "words fewer than rows": (
        lambda p: (
            put(p, "model/words.txt", b"ab"),
            rewrite(p, "model/words.offsets.npy", np.array([0, 1, 2])),
        )[0],
        "documents/indices.npy: an index outside 0..1",
    ),
    # answers
    "another model": (
        array("model/U.npy", lambda a: a * np.float32(1.001)),
        "golden.jsonl: query 'apple 日本': rank 1 scores",
    ),
    "golden line no JSON": (lambda p: put(p, "golden.jsonl", b"{\n"), "golden.jsonl: line 1"),
    "column of another": (
        array("columns/0.keyword.codes.npy", lambda a: a[1:]),
        "columns/0.keyword.codes: 39 codes for 40 documents",
    ),
    "column of no value": (
        array("columns/1.number.codes.npy", value(0, 40)),
        "columns/1.number.codes: a code outside -1..39",
    ),
    "columns undescribed": (
        edited(lambda m: m.update(columns={})),
        "columns/: the manifest does not describe the columns",
    ),
    "golden line cut": (
        lambda p: put(p, "golden.jsonl", b'{"ids":["a"],"query":"x","scores":[]}\n'),
        "golden.jsonl: line 1: ids and scores differ",
    ),
}  # fmt: skip


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
