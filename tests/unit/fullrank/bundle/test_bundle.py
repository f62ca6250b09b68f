"""Bundles of a tiny planted model: what is written, exact round trip, finding, columns, golden queries."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import (
    Bundle,
    BundleInfo,
    catalog,
    find_bundle,
    golden,
    list_bundles,
    open_bundle,
    read_manifest,
)
from fullrank.bundle.manifest import LogPosition, Manifest, bundle_id, parse_manifest
from fullrank.errors import BundleError, BundleNotFound
from fullrank.filters.columns import columns_of
from fullrank.models.linear import LinearModel
from fullrank.models.mixed import MixedModel
from fullrank.retrieval import Retriever
from fullrank.storage.strings import Lexicon
from tests.bundles import CORPUS, linear_model, make_bundle, write_bundle
from tests.forging import array, edit
from tests.words_bundle import CREATED, QUERIES, WORDS, arrays, planted

# -- what is written ---------------------------------------------------------------------------


def test_a_bundle_has_exactly_the_files_of_the_format(written: Path) -> None:
    assert written.parent.name == "planted"
    files = {str(p.relative_to(written)) for p in written.rglob("*") if p.is_file()}
    index = """
    bounds codes scales limits postings.indptr postings.slots postings.impacts champions.indptr champions.slots
    champions.impacts signatures signatures.words signatures.means bias outline.directions outline.codes outline.scales
    outline.rest cells.rows cells.slots cells.of cells.starts cells.centres cells.scales cells.bias cells.longest
    cells.distances
    """
    others = """
    manifest.json golden.jsonl model/U.npy model/words.txt model/words.offsets.npy documents/dense.npy
    documents/indptr.npy documents/indices.npy documents/weights.npy documents/bias.npy documents/ids.txt
    documents/ids.offsets.npy documents/fields.jsonl documents/fields.offsets.npy columns/0.keyword.codes.npy
    columns/0.keyword.values.txt columns/0.keyword.values.offsets.npy columns/1.number.codes.npy
    columns/1.number.values.npy
    """
    assert files == {*others.split(), *(f"index/{name}.npy" for name in index.split())}


def test_the_manifest_describes_each_file(written: Path) -> None:
    manifest = json.loads((written / "manifest.json").read_text())
    assert manifest["format_version"] == 4
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


def test_name_time_and_card_do_not_change_the_bundle_id(root: Path) -> None:
    first = open_bundle(write_bundle(root, "one", **planted()))
    second = open_bundle(write_bundle(root, "two", **planted() | {"card": {}}, created=CREATED))
    assert first.bundle_id == second.bundle_id
    assert first.version != second.version


def test_two_bundles_published_in_one_second_are_both_kept(root: Path, written: Path) -> None:
    again = write_bundle(root, "planted", **planted(), created=CREATED)
    assert again != written
    assert open_bundle(again).bundle_id == open_bundle(written).bundle_id
    assert find_bundle(root, "planted") == again


def test_progress_names_each_part(root: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    write_bundle(root, "planted", **planted(), progress=lambda *step: steps.append(step))
    parts = ["model", "documents", "columns", "cells", "codes"]
    parts += ["outlines", "postings", "golden queries", "check"]
    assert list(dict.fromkeys(part for part, _, _ in steps)) == parts
    last = {part: (done, total) for part, done, total in steps}
    assert all(done == total for done, total in last.values())
    for long in ("codes", "postings", "cells"):
        assert last[long][0] > 0


def test_few_documents_get_no_index_and_no_dense_part_gets_one_cell(root: Path) -> None:
    sparse = open_bundle(write_bundle(root, "sparse", **planted(n_dense=0)))
    assert sparse.retriever.index is not None
    assert sparse.retriever.index.cells.n_cells == 1
    assert sparse.encoded.whole().dense.shape == (40, 0)
    few = open_bundle(write_bundle(root, "few", **planted(documents=39)))
    assert few.retriever.index is None


def test_vectors_whose_distances_overflow_get_one_cell_and_are_still_found(root: Path) -> None:
    """The library of the cells ends the process over it."""
    given = planted()
    given["encoded"].dense[::3] *= np.float32(1e25)
    bundle = open_bundle(write_bundle(root, "far", **given))
    assert bundle.retriever.index is not None
    assert bundle.retriever.index.cells.n_cells == 1
    queries = given["model"].encode_queries(QUERIES)
    found = bundle.retriever.search(queries, 10)
    for one, other in zip(found, Retriever(given["encoded"]).search(queries, 10), strict=True):
        assert one.rows.tolist() == other.rows.tolist()


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
def test_a_loaded_bundle_answers_bit_for_bit_as_the_model_in_memory(
    n_dense: int, documents: int, verify: bool, root: Path
) -> None:
    given = planted(n_dense, documents)
    opened = open_bundle(write_bundle(root, "planted", **given), verify=verify)

    assert opened.model.config == given["model"].config
    assert opened.card == given["card"]
    assert list(opened.documents.ids) == [d.id for d in given["documents"]]
    stored = [opened.documents.document(row) for row in range(documents)]
    assert stored == given["documents"]
    for name, stored_array in arrays(opened.encoded.whole()).items():
        expected = arrays(given["encoded"])[name]
        assert stored_array.dtype == expected.dtype
        np.testing.assert_array_equal(stored_array, expected)
    in_memory = Retriever(given["encoded"]).search(given["model"].encode_queries(QUERIES), 100)
    from_disk = opened.retriever.search(opened.model.encode_queries(QUERIES), 100)
    for ours, theirs in zip(in_memory, from_disk, strict=True):
        np.testing.assert_array_equal(ours.rows, theirs.rows)
        np.testing.assert_array_equal(ours.scores, theirs.scores)


def test_arrays_are_mapped_read_only(written: Path) -> None:
    for mapped in arrays(open_bundle(written).encoded.whole()).values():
        assert not mapped.flags.writeable
        assert not mapped.flags.owndata


def test_threads_read_headers_in_turn(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # CPython raises SystemError where a thread parses a literal while another one is half-way through its own.
    real = np.lib.format.open_memmap
    alone = threading.Lock()

    def watched(*arguments: Any, **options: Any) -> Any:
        assert alone.acquire(blocking=False), "two threads read headers at once"
        try:
            time.sleep(0.001)
            return real(*arguments, **options)
        finally:
            alone.release()

    monkeypatch.setattr(np.lib.format, "open_memmap", watched)
    with ThreadPoolExecutor(2) as threads:
        opened = list(threads.map(open_bundle, [written, written]))
    assert [bundle.version for bundle in opened] == [written.name, written.name]


# -- finding -------------------------------------------------------------------------------------


def _named(infos: list[BundleInfo]) -> list[str]:
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


def test_a_manifest_is_read_again_only_when_it_has_changed(
    root: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [before] = list_bundles(root)
    replaced = replace(read_manifest(written), card={"note": "replaced"}).dump()

    def unreadable(*_: object, **__: object) -> str:
        raise OSError(5, "read again")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", unreadable)
        assert list_bundles(root) == [before]
    (written / "manifest.json").write_text(replaced)
    [after] = list_bundles(root)
    assert after.card == {"note": "replaced"}


def test_folders_that_are_not_bundles_are_skipped(
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
    assert f"skipped {broken}" in caplog.text
    assert f"skipped {root / 'other' / written.name}" in caplog.text


def test_a_name_that_is_deleted_while_bundles_are_listed_is_skipped(
    root: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that fails takes its name's folder away again, between two looks of a reader."""
    monkeypatch.setattr(catalog, "_names", lambda _: iter(["gone", "planted"]))
    assert _named(list_bundles(root)) == [written.name]


def test_a_missing_root_differs_from_an_empty_one(root: Path) -> None:
    with pytest.raises(BundleNotFound, match="no such folder"):
        list_bundles(root)
    root.mkdir()
    assert list_bundles(root) == []


@pytest.mark.parametrize("wanted", ["other", "../planted", "", "planted/x", ".tmp-x"])
def test_an_unknown_name_or_version_is_named_in_the_error(
    wanted: str, root: Path, written: Path
) -> None:
    with pytest.raises(BundleNotFound) as raised:
        find_bundle(root, wanted)
    assert f"{root / wanted}: no manifest.json, so no bundle" in str(raised.value)


# -- columns -----------------------------------------------------------------------------------


def test_columns_are_mapped_and_equal_the_stored_fields(written: Path) -> None:
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
    edit(written, without)
    bundle = open_bundle(written)
    assert "columns" not in bundle.sections
    assert bundle.columns is bundle.columns
    assert bundle.columns.by_name.keys() == stored.by_name.keys()


def text_of(position: Any) -> str:
    model = {"kind": "linear"}
    manifest = Manifest(
        "docs", "docs-1", bundle_id({}, model), "2026-01-01T00:00:00+00:00", model, {}, {}
    )
    value = json.loads(manifest.dump())
    del value["checksum"]
    return json.dumps(value if position is None else {**value, "log_position": position})


def test_a_log_position_is_read_as_it_was_written() -> None:
    assert parse_manifest(text_of(None)).log_position is None
    read = parse_manifest(text_of({"log": "ab", "seq": 7}))
    assert read.log_position == LogPosition("ab", 7)
    assert parse_manifest(read.dump()) == read


@pytest.mark.parametrize(
    "position",
    [
        7,
        {},
        {"log": "ab"},
        {"log": "ab", "seq": -1},
        {"log": "ab", "seq": True},
        {"log": "ab", "seq": "7"},
        {"log": 7, "seq": 7},
        {"log": "ab", "seq": 7, "more": 1},
    ],
)
def test_a_malformed_log_position_is_refused(position: Any) -> None:
    with pytest.raises(BundleError, match="log_position"):
        parse_manifest(text_of(position))


def _answer(ids: str, *scores: float) -> list[golden.Answer]:
    return [golden.Answer("q", tuple(ids), scores)]


WANT = _answer("abc", 3.0, 2.0, 2.0)


@pytest.mark.parametrize(
    "have",
    [
        _answer("abc", 3.0, 2.0, 2.0),
        _answer("abc", 3.000001, 2.0, 1.999999),
        _answer("acb", 3.0, 2.000001, 2.0),  # two that were equal swap
        _answer("abd", 3.0, 2.0, 2.0),  # the last gives way to its equal
    ],
)
def test_golden_answers_may_differ_in_the_last_digits(have: list[golden.Answer]) -> None:
    golden.compare(WANT, have, 1e-5)


@pytest.mark.parametrize(
    ("have", "reason"),
    [
        (_answer("abc", 3.001, 2.0, 2.0), "rank 1 scores 3.001, expected 3.0"),
        (_answer("abc", float("nan"), 2.0, 2.0), "rank 1 scores nan"),
        (_answer("bac", 3.0, 2.0, 2.0), "rank 1 is 'b', expected 'a'"),
        (_answer("dbc", 3.0, 2.0, 2.0), "rank 1 is 'd', expected 'a'"),
        (_answer("ab", 3.0, 2.0), "2 results, expected 3"),
    ],
)
def test_golden_answers_that_differ_more_are_refused(
    have: list[golden.Answer], reason: str
) -> None:
    with pytest.raises(BundleError, match=reason):
        golden.compare(WANT, have, 1e-5)


def test_at_tolerance_zero_equal_scores_may_not_swap() -> None:
    golden.compare(WANT, WANT, 0)
    with pytest.raises(BundleError, match="rank 2 is 'c'"):
        golden.compare(WANT, _answer("acb", 3.0, 2.0, 2.0), 0)


def test_golden_lines_round_trip() -> None:
    answers = [golden.Answer("a\u2028\n\x85b", ("é",), (0.1 + 0.2,)), golden.Answer("", (), ())]
    assert golden.parse(golden.dump(answers)) == answers


LEXICONS_QUERIES = ["files", "markup search", "日本語 files", "unknown", ""]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A bundle of two models with the same words."""
    root = tmp_path / "bundles"
    other = linear_model(CORPUS, n_dense=4, seed=2)
    version = make_bundle(
        root, "x", n_dense=4, wrap=lambda model: MixedModel([model, other], [1.0, 0.5])
    )
    return root / "x" / version


def models(bundle: Bundle) -> list[LinearModel]:
    assert isinstance(bundle.model, MixedModel)
    found = [model for model in bundle.model.models if isinstance(model, LinearModel)]
    assert len(found) == 2
    return found


def test_equal_words_of_several_models_are_one_mapped_table(path: Path) -> None:
    first, second = models(open_bundle(path))
    tables = [first.query.words, first.document.words, first.sparse.words, second.sparse.words]
    assert len({id(vocabulary.known) for vocabulary in tables}) == 1
    assert len({id(vocabulary.known.slots) for vocabulary in tables}) == 1
    for mapped in (tables[0].known.slots, first.sparse.phrases.beginnings):
        assert isinstance(mapped.base, np.memmap)
        assert not mapped.flags.writeable


def test_stored_tables_are_those_of_the_words(path: Path) -> None:
    words = models(open_bundle(path))[0].sparse.words.known
    np.testing.assert_array_equal(words.slots, Lexicon.of(list(words)).slots)
    assert words.rows(list(words)).tolist() == [*range(len(words))]


def test_a_bundle_without_tables_answers_the_same(path: Path, tmp_path: Path) -> None:
    """As bundles of earlier releases, and of this format before it had them."""
    before = tmp_path / "before" / "x" / path.name
    shutil.copytree(path, before)
    derived = [
        f for f in before.glob("model/*") if f.name.endswith((".slots.npy", "beginnings.npy"))
    ]
    assert len(derived) == 2 * (5 + 1)  # five string tables and the phrases of each model
    for file in derived:
        file.unlink()
    names = [f"model/{file.name}" for file in derived]
    edit(before, lambda manifest: [manifest["files"].pop(name) for name in names])
    ours, theirs = open_bundle(path), open_bundle(before)
    for found, wanted in zip(
        ours.encode(LEXICONS_QUERIES).arrays().values(),
        theirs.encode(LEXICONS_QUERIES).arrays().values(),
        strict=True,
    ):
        assert found.tobytes() == wanted.tobytes()
    parts = theirs.model.parts()
    for name, stored in ours.model.parts().arrays.items():
        np.testing.assert_array_equal(parts.arrays[name], stored)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("0.sparse.words.slots", lambda slots: slots[::-1].copy(), "not the hash table of"),
        ("1.sparse.words.slots", lambda slots: slots[:-1], "no hash table"),
        ("0.sparse.words.slots", lambda slots: slots.astype(np.int64), "no hash table"),
        ("0.phrases.beginnings", lambda slots: np.zeros(3, np.uint64), "no hash table"),
    ],
)
def test_a_forged_table_is_refused(path: Path, name: str, change: object, message: str) -> None:
    assert callable(change)
    array(f"model/{name}.npy", change)(path)
    with pytest.raises(BundleError, match=message):
        open_bundle(path)
