"""A sharded index: the shards together are the unsharded bundle, and a job goes on where it was."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.errors import BundleError, CollectionError, FullrankError
from fullrank_fleet.jobs.index import SetResult, build_shard, index_set
from fullrank_fleet.jobs.pieces import Corpus
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.partitions import partition_of
from fullrank_fleet.remote import Folder, RemoteError
from fullrank_fleet.remote.folder import unfinished
from fullrank_fleet.sets.manifest import model_id, read_set, shard_folder
from fullrank_trainer.indexing import index
from tests.forging import edit
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, document, open_shard, planted_bundle
from tests.unit.fleet.runners import Dying


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_bundle(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus_of(tmp_path_factory.mktemp("corpus"), 120)


def run(bundle: Path, corpus: Path | str, out: Path, **settings: Any) -> SetResult:
    settings = {"shards": 3, "runner": InProcess(), **settings}
    return index_set(str(bundle), str(corpus), str(out), reporter=QUIET, **settings)


def test_the_shards_have_every_document_once_and_in_its_place(
    bundle: Path, corpus: Path, tmp_path: Path
) -> None:
    found = run(bundle, corpus, tmp_path, shards=5)
    manifest = read_set(Folder(found.address))
    ids: list[str] = []
    for number, shard in enumerate(manifest.shards):
        opened = open_shard(found.address, number)
        assert len(opened.documents) == shard.documents
        assert opened.bundle_id == shard.bundle_id
        assert all(shard.first <= partition_of(id) < shard.end for id in opened.documents.ids)
        ids += opened.documents.ids
    assert sorted(ids) == [document(i)["_id"] for i in range(120)]
    assert found.documents == manifest.documents == 120


def test_the_bundles_depend_on_neither_time_nor_pieces_nor_compression(
    bundle: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_set(Folder(run(bundle, corpus, tmp_path / "a").address))
    monkeypatch.setattr(Corpus.pieces, "__defaults__", (700,))
    assert len(Corpus.at(str(corpus)).pieces()) > 5
    second = read_set(Folder(run(bundle, corpus, tmp_path / "b").address))
    content = (corpus / "corpus.jsonl").read_bytes()
    (tmp_path / "corpus-1.jsonl.gz").write_bytes(
        gzip.compress(content[: content.rindex(b"\n") + 1])
    )
    (tmp_path / "corpus-2.jsonl").write_bytes(content[content.rindex(b"\n") + 1 :])
    third = read_set(Folder(run(bundle, tmp_path, tmp_path / "c").address))
    assert first.set_id == second.set_id == third.set_id


def test_every_shard_has_the_second_stage_and_its_own_facts(corpus: Path, tmp_path: Path) -> None:
    trained = planted_bundle(tmp_path / "bundles", is_reordered=True)
    parent = open_bundle(trained)
    whole = open_bundle(index(trained, corpus, tmp_path / "whole", reporter=QUIET).path)
    found = run(trained, corpus, tmp_path / "sharded", shards=4)
    manifest = read_set(Folder(found.address))
    assert manifest.model_id == model_id(parent.manifest) == model_id(whole.manifest)
    assert whole.facts is not None
    seen = 0
    for number in range(4):
        shard = open_shard(found.address, number)
        assert shard.second_stage is not None
        assert shard.facts is not None
        assert model_id(shard.manifest) == manifest.model_id
        for name, entry in parent.manifest.files.items():
            if name.startswith("rerank/") and not name.startswith("rerank/documents."):
                assert shard.manifest.files[name] == whole.manifest.files[name] == entry
                seen += 1
        rows = np.array([whole.documents.row(id) for id in shard.documents.ids])
        expected = whole.facts.take(rows).arrays()
        for name, array in shard.facts.arrays().items():
            assert array.tobytes() == expected[name].tobytes()
    assert seen == 4 * 8


def test_a_set_has_its_model_once_and_may_have_it_in_each_shard(
    corpus: Path, tmp_path: Path
) -> None:
    """As sets had before."""
    trained = planted_bundle(tmp_path / "bundles", is_reordered=True)
    folder = Path(run(trained, corpus, tmp_path / "sharded", shards=2).address)
    shared = ["model", "rerank"]
    assert not [*folder.glob("shard-*/model/*"), *folder.glob("shard-*/rerank/trees*")]
    expected = [open_shard(str(folder), number).search("apple", 9) for number in range(2)]
    shutil.rmtree(tmp_path / "copies")
    for name in shared:
        for number in range(2):
            shutil.copytree(folder / name, folder / shard_folder(number) / name, dirs_exist_ok=True)
        shutil.rmtree(folder / name)
    found = [open_shard(str(folder), number).search("apple", 9) for number in range(2)]
    assert [list(one) for one in found] == [list(one) for one in expected]


def test_the_id_of_a_model_covers_its_second_stage(bundle: Path, tmp_path: Path) -> None:
    staged = open_bundle(planted_bundle(tmp_path, is_reordered=True)).manifest
    plain = open_bundle(bundle).manifest
    assert staged.rerank is not None
    others = [
        plain,
        replace(staged, rerank={**staged.rerank, "newest": 1}),
        replace(
            staged, files={**staged.files, "rerank/trees.leaf.npy": staged.files["golden.jsonl"]}
        ),
    ]
    assert len({model_id(manifest) for manifest in [staged, *others]}) == 4
    facts = {**staged.files, "rerank/documents.days.npy": staged.files["golden.jsonl"]}
    assert model_id(replace(staged, files=facts)) == model_id(staged)


def test_a_set_of_a_bundle_that_lacks_tables_of_words_names_the_model_of_its_shards(
    bundle: Path, corpus: Path, tmp_path: Path
) -> None:
    """As bundles of this format were before they had the tables; a router refused the set."""
    before = tmp_path / "before" / bundle.name
    shutil.copytree(bundle, before)
    derived = [
        file
        for file in before.glob("model/*")
        if file.name.endswith((".slots.npy", "beginnings.npy"))
    ]
    assert derived
    for file in derived:
        file.unlink()
    names = [f"model/{file.name}" for file in derived]
    edit(before, lambda manifest: [manifest["files"].pop(name) for name in names])
    found = run(before, corpus, tmp_path / "sharded", shards=2)
    manifest = read_set(Folder(found.address))
    for number in range(2):
        shard = open_shard(found.address, number)
        assert (
            model_id(shard.manifest) == manifest.model_id == model_id(open_bundle(bundle).manifest)
        )


def test_a_job_that_died_goes_on_and_builds_nothing_twice(
    bundle: Path, corpus: Path, tmp_path: Path
) -> None:
    expected = read_set(Folder(run(bundle, corpus, tmp_path / "undisturbed").address)).set_id
    out = tmp_path / "out"
    for allowed in range(3):
        with pytest.raises(KeyboardInterrupt):
            run(bundle, corpus, out, runner=Dying(allowed + 1, of=build_shard))
    written = {path: path.stat().st_mtime_ns for path in out.rglob("manifest.json")}
    assert len(written) == 3
    assert not list(out.rglob("set.json"))
    left = unfinished(next(iter(written)).with_name("weights.npy"))
    left.write_bytes(b"a part of a file")  # by a task that was killed
    found = run(bundle, corpus, out)
    assert not left.exists()
    assert read_set(Folder(found.address)).set_id == expected
    assert {path: path.stat().st_mtime_ns for path in out.rglob("manifest.json")} == written
    assert [path.name for path in (out / "planted").iterdir()] == [found.version]


def test_a_lost_object_of_a_job_is_an_error(bundle: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(bundle, corpus, tmp_path, runner=Dying(1, of=build_shard))
    [job] = tmp_path.glob("planted/.job-*")
    [folder] = tmp_path.glob("planted/planted-*")
    for committed in folder.glob("*/manifest.json"):
        shutil.rmtree(committed.parent)
    lost = sorted(job.glob("split/**/*.jsonl"))[0]
    lost.unlink()
    with pytest.raises(RemoteError, match=rf"{lost.name}: missing; remove .*\.job-.* and run"):
        run(bundle, corpus, tmp_path)
    assert not list(tmp_path.rglob("set.json"))


def test_a_committed_shard_that_is_built_again_has_the_same_bytes(
    bundle: Path, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(bundle, corpus, tmp_path, runner=Dying(2, of=build_shard))
    manifests = sorted(tmp_path.glob("planted/planted-*/*/manifest.json"))
    before = {path: path.read_bytes() for path in manifests}
    assert before
    for about in tmp_path.glob("planted/.job-*/about/*.json"):
        about.unlink()
    run(bundle, corpus, tmp_path)
    assert {path: path.read_bytes() for path in manifests} == before


def test_a_damaged_file_is_one_error(bundle: Path, corpus: Path, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress((corpus / "corpus.jsonl").read_bytes()))
    packed[10:20] = bytes(255 - byte for byte in packed[10:20])
    (tmp_path / "corpus.jsonl.gz").write_bytes(packed)
    with pytest.raises(CollectionError, match=r"corpus\.jsonl\.gz: cannot be read"):
        run(bundle, tmp_path, tmp_path / "out")


def test_empty_shards_have_no_folder(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(json.dumps(document(1)))
    found = run(bundle, tmp_path, tmp_path / "out", shards=4)
    manifest = read_set(Folder(found.address))
    assert sorted(shard.documents for shard in manifest.shards) == [0, 0, 0, 1]
    names = {path.name for path in Path(found.address).iterdir()}
    [number] = [number for number, shard in enumerate(manifest.shards) if shard.documents]
    assert names == {"set.json", "titles.json", "model", shard_folder(number)}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (['{"_id": "a", "text": "x"}', "{"], "corpus.jsonl, byte 26: no JSON"),
        (['{"text": "x"}'], "corpus.jsonl, byte 0: field '_id': missing"),
        (['{"_id": "a", "text": "x"}'] * 2, r"shard \d: field '_id': 'a' is already the id"),
        (['{"_id": "a", "text": 5}'], r"shard \d: field 'text': expected a string"),
        (["", ""], "no documents"),
    ],
)
def test_a_malformed_corpus_is_refused_and_never_served(
    bundle: Path, tmp_path: Path, lines: list[str], reason: str
) -> None:
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    with pytest.raises(CollectionError, match=reason):
        run(bundle, tmp_path, tmp_path / "out")
    assert not list(tmp_path.rglob("set.json"))


def test_bad_addresses_and_names_are_refused(bundle: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no manifest\.json, so no bundle"):
        run(tmp_path, corpus, tmp_path)
    with pytest.raises(BundleError, match=r"cannot name a bundle"):
        run(bundle, corpus, tmp_path, name="../x")
    with pytest.raises(CollectionError, match="no corpus"):
        run(bundle, tmp_path, tmp_path)
    with pytest.raises(FullrankError, match="nosuch"):
        run(bundle, "nosuch://x/corpus", tmp_path)


def test_a_set_records_times_and_ads_also_of_a_job_that_died(bundle: Path, tmp_path: Path) -> None:
    lines = [{**document(number), "note": "soon"} for number in range(40)]
    lines[3] |= {"note": "2026-05-01", "ad": {"campaign": "c"}}
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(KeyboardInterrupt):
        run(bundle, tmp_path, tmp_path / "out", runner=Dying(3, of=build_shard))
    manifest = read_set(Folder(run(bundle, tmp_path, tmp_path / "out").address))
    assert (sorted(manifest.time_fields), manifest.has_ads) == (["note"], True)
    assert manifest.columns["note"] == ["keyword"]


def test_queries_are_passed_to_every_shard(bundle: Path, corpus: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "1", "text": "apple"}')
    found = run(bundle, corpus, tmp_path / "out", queries=str(queries))
    golden = [path.read_text() for path in Path(found.address).rglob("golden.jsonl")]
    assert len(golden) == 3
    assert all('"query": "apple"' in text or '"query":"apple"' in text for text in golden)
