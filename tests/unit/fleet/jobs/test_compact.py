"""A compacted set: equal to the compaction of one bundle, at one position, also of a job that died under writes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import BundleError
from fullrank_fleet.jobs import compact as compact_shard
from fullrank_fleet.jobs import compact as operations
from fullrank_fleet.jobs import job
from fullrank_fleet.jobs.compact import CompactedSet, compact_set, trim_log
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.partitions import partition_of
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets.manifest import SetManifest, parse_set, read_set, shard_folder
from fullrank_fleet.sets.words import WORDS as WORDS_FILE
from fullrank_fleet.sets.words import SetWords, read_words
from fullrank_service.documents.compact import NothingToCompact, compact
from fullrank_service.documents.log import Caps, Submission, Write
from fullrank_service.documents.sqlitelog import LogPlace
from fullrank_service.models.state import ActiveState, dump_state
from fullrank_trainer.indexing import index
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, document, open_shard, planted_bundle
from tests.unit.fleet.runners import Dying

COUNT = 60
NEW_WORDS = ["zebra", "yak", "quokka"]


class Place:
    """A bundle, the same documents as a set at an address, and one log for both."""

    def __init__(self, folder: Path, shards: int, count: int = COUNT) -> None:
        trained = planted_bundle(folder / "bundles", is_reordered=True)
        corpus = corpus_of(folder, count)
        self.whole = index(trained, corpus, folder / "whole", reporter=QUIET).path
        self.root = Folder(str(folder / "sets"))
        self.address = index_set(
            str(trained), str(corpus), str(self.root), shards=shards, runner=InProcess(),
            reporter=QUIET,
        ).address  # fmt: skip
        self.log = LogPlace.of_file(folder / "documents.sqlite")

    def write(self, documents: dict[str, dict[str, Any] | None]) -> None:
        writes = [
            Write(id, None if fields is None else orjson.dumps(fields))
            for id, fields in documents.items()
        ]
        log = self.log.open()
        log.commit([Submission("planted", writes, lambda first: b"")], Caps())
        log.close()

    def compact(self, address: str | None = None, runner: Any = None) -> CompactedSet:
        return compact_set(
            address or self.address, self.log, runner=runner or InProcess(), reporter=QUIET
        )

    @property
    def head(self) -> int:
        log = self.log.open()
        try:
            return log.head()
        finally:
            log.close()


@pytest.fixture(params=[1, 3, 8])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, request.param)


@pytest.fixture
def three(tmp_path: Path) -> Place:
    return Place(tmp_path, 3)


def some_writes(seed: int, count: int = 40) -> dict[str, dict[str, Any] | None]:
    rng = random.Random(seed)
    found: dict[str, dict[str, Any] | None] = {}
    for number in range(count):
        id = rng.choice([f"d{rng.randrange(COUNT):05}", f"new/{rng.randrange(20)}"])
        fields = {**document(rng.randrange(1000)), "size": rng.choice([3, "small", [1, "x"]])}
        del fields["_id"]
        fields["text"] += " " + " ".join(rng.choices(NEW_WORDS, k=number % 3))
        found[id] = None if rng.random() < 0.3 else fields
    return found


def opened(address: str) -> tuple[SetManifest, dict[int, Bundle]]:
    manifest = read_set(Folder(address))
    numbers = [number for number, shard in enumerate(manifest.shards) if shard.documents]
    return manifest, {n: open_shard(address, n) for n in numbers}


def contents(bundles: Sequence[Bundle]) -> dict[str, Any]:
    """Every document: its fields, its encoding and what the second stage reads, to the last bit."""
    found = {}
    for bundle in bundles:
        assert bundle.facts is not None
        for row, id in enumerate(bundle.documents.ids):
            arrays = bundle.encoded.slice(row, row + 1).arrays()
            encoded = {name: array.tobytes() for name, array in arrays.items()}
            assert id not in found
            facts = bundle.facts.take(np.array([row])).arrays()
            read = {name: array.tobytes() for name, array in facts.items()}
            found[id] = bundle.documents.fields(row), encoded, read
    return found


def check_equal(whole: Path, address: str) -> SetManifest:
    expected = open_bundle(whole)
    manifest, shards = opened(address)
    assert contents([*shards.values()]) == contents([expected])
    for number, shard in shards.items():
        assert all(partition_of(id) in manifest.owned[number] for id in shard.documents.ids)
        assert shard.bundle_id == manifest.shards[number].bundle_id
    assert manifest.log_position == expected.manifest.log_position
    words = read_words(Folder(address), manifest)
    assert words.new == list(expected.new_words)
    assert set(words.features) == expected.unseen_features
    kinds = {name: sorted(column.parts) for name, column in expected.columns.by_name.items()}
    assert {n: k for n, k in manifest.columns.items() if isinstance(k, list)} == kinds
    return manifest


def test_a_compacted_set_has_what_a_compacted_bundle_has(place: Place) -> None:
    place.write(some_writes(1))
    made = place.compact()
    whole = compact(place.whole, place.log)
    manifest = check_equal(whole.path, made.address)
    assert (made.documents, made.before, made.seq) == (whole.documents, whole.before, whole.seq)
    assert manifest.documents == whole.documents
    assert set(read_words(Folder(made.address), manifest).new) == set(NEW_WORDS)
    # And again.
    place.write(some_writes(2))
    second = place.compact(made.address)
    check_equal(compact(whole.path, place.log).path, second.address)
    assert second.parent == made.version


def test_a_set_that_has_every_operation_is_not_compacted(three: Place) -> None:
    with pytest.raises(NothingToCompact, match="no live document was ever written"):
        three.compact()
    three.write({"d00003": None})
    made = three.compact()
    with pytest.raises(NothingToCompact, match="contains every operation of the log"):
        three.compact(made.address)
    assert sorted(path.name for path in Path(made.address).parent.iterdir()) == sorted(
        [Path(three.address).name, made.version]
    )


def test_a_shard_without_writes_is_the_same_bundle_in_the_next_set(three: Place) -> None:
    three.write({"new/1": {"title": "zebra"}, "new/2": {"title": "yak"}})
    first = read_set(Folder(three.compact().address))
    changed = first.owner("new/1")
    three.write({"new/1": {"title": "quokka"}})
    address = three.compact(str(three.root / "planted" / first.version)).address
    second, shards = opened(address)
    hashes = [[shard.manifest_sha256 for shard in manifest.shards] for manifest in (first, second)]
    same = [old == new for old, new in zip(*hashes, strict=True)]
    assert same == [number != changed for number in range(3)]
    assert (first.log_position, second.log_position) != (None, first.log_position)
    assert read_words(Folder(address), second).new == ["quokka", "yak", "zebra"]
    assert sum(map(len, (shard.documents for shard in shards.values()))) == COUNT + 2


def test_sets_of_object_storage_are_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_shard, "default_cache", lambda: tmp_path / "cache")
    place = Place(tmp_path, 3)
    place.write(some_writes(1))
    root = f"memory://{tmp_path.name}-sets"
    address = index_set(
        str(next((tmp_path / "bundles" / "planted").iterdir())), str(tmp_path), root,
        shards=3, runner=InProcess(), reporter=QUIET,
    ).address  # fmt: skip
    expected = place.compact(place.address)
    made = place.compact(address)
    remote, local = read_set(Folder(made.address)), read_set(Folder(expected.address))
    assert remote.set_id == local.set_id
    assert read_words(Folder(made.address), remote) == read_words(Folder(expected.address), local)
    place.write({"another": {"title": "yak"}})
    again = [
        read_set(Folder(place.compact(one).address)) for one in (made.address, expected.address)
    ]
    assert again[0].set_id == again[1].set_id != remote.set_id
    # The shards were downloaded for the job alone.
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_shard_whose_documents_are_all_deleted_has_none(three: Place) -> None:
    manifest, shards = opened(three.address)
    three.write(dict.fromkeys(shards[1].documents.ids))
    made = three.compact()
    found = check_equal(compact(three.whole, three.log).path, made.address)
    assert [shard.documents > 0 for shard in found.shards] == [True, False, True]
    # What is written to its partitions belongs to the shard before it, in the next set too.
    new = next(id for id in map(str, range(99)) if manifest.owner(id) == 1)
    three.write({new: {"title": "zebra"}})
    again, shards = opened(three.compact(made.address).address)
    assert again.owner(new) == 0
    assert new in shards[0].documents.ids
    three.write(dict.fromkeys([id for shard in shards.values() for id in shard.documents.ids]))
    address = str(three.root / "planted" / again.version)
    for _ in range(2):
        with pytest.raises(BundleError, match="every document is deleted"):
            three.compact(address)
    three.write({new: {"title": "yak"}})
    assert three.compact(address).documents == 1


def test_a_job_that_died_goes_on_at_its_position_whatever_is_written_meanwhile(
    tmp_path: Path, three: Place
) -> None:
    """Writes replace operations of the log that the set must contain."""
    three.write(some_writes(1))
    seq = three.head
    shutil.copytree(three.address, tmp_path / "copy" / "planted" / Path(three.address).name)
    shutil.copy(tmp_path / "documents.sqlite", tmp_path / "copy" / "documents.sqlite")
    undisturbed = compact_set(
        str(tmp_path / "copy" / "planted" / Path(three.address).name),
        LogPlace.of_file(tmp_path / "copy" / "documents.sqlite"),
        runner=InProcess(),
        reporter=QUIET,
    )
    whole = compact(three.whole, three.log).path
    for allowed in range(4):
        with pytest.raises(KeyboardInterrupt):
            three.compact(runner=Dying(allowed, act=lambda: three.write(some_writes(7))))
    folder = Path(str(three.root), "planted")
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*/*/manifest.json")}
    assert len(written) == 6
    assert len(list(folder.glob("*/set.json"))) == 1
    made = three.compact()
    assert made.seq == seq < three.head
    again = {path: path.stat().st_mtime_ns for path in folder.glob("*/*/manifest.json")}
    assert again == written
    manifest = check_equal(whole, made.address)
    assert manifest.set_id == read_set(Folder(undisturbed.address)).set_id
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [Path(three.address).name, made.version]
    )
    # What was written meanwhile is in the next one.
    check_equal(compact(whole, three.log).path, three.compact(made.address).address)


def test_a_job_that_died_while_it_copied_the_log_begins_again(
    three: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    three.write(some_writes(1))
    monkeypatch.setattr(operations, "_READ", 7)
    monkeypatch.setattr(job, "_BUFFER_BYTES", 900)
    own_write = Folder.write

    def full(self: Folder, name: str, content: bytes) -> None:
        if name.endswith("-001.jsonl"):
            raise KeyboardInterrupt
        own_write(self, name, content)

    monkeypatch.setattr(Folder, "write", full)
    with pytest.raises(KeyboardInterrupt):
        three.compact()
    monkeypatch.setattr(Folder, "write", own_write)
    three.write(some_writes(3))
    made = three.compact()
    assert made.seq == three.head
    check_equal(compact(three.whole, three.log).path, made.address)


def test_the_log_keeps_what_any_version_lacks(three: Place) -> None:
    three.write({"new/1": {"title": "zebra"}})
    first = three.compact()
    three.write({"new/2": {"title": "yak"}, "new/3": {"title": "yak"}})
    second = three.compact(first.address)

    def trim(settled_s: float = -1) -> int:
        return trim_log(three.root, "planted", three.log, settled_s)

    assert trim() == 0, "the first version contains none"
    aside = Path(three.address).rename(str(three.root) + "-aside")
    assert trim(3600) == 0, "a shard may not have read them"
    (Path(first.address) / "set.json").write_text("{}")
    with pytest.raises(BundleError, match="planted"):
        trim()
    shutil.rmtree(first.address)
    state = Path(str(three.root), "active.json")
    state.write_text(dump_state(ActiveState(2, first.version, "0" * 64)))
    assert trim() == 0, "replicas may have it in memory"
    state.write_text(dump_state(ActiveState(3, second.version, "0" * 64, previous=first.version)))
    assert trim() == 3
    # The oldest version would lose them, and is refused.
    aside.rename(three.address)
    three.write({"new/4": {"title": "quokka"}})
    with pytest.raises(BundleError, match="the log no longer has those up to 3"):
        three.compact()
    assert three.compact(second.address).documents == COUNT + 4


def test_a_version_that_is_not_finished_keeps_nothing_in_the_log(three: Place) -> None:
    three.write(some_writes(1))
    first = three.compact()
    three.write({"new/2": {"title": "yak"}})
    with pytest.raises(KeyboardInterrupt):
        three.compact(first.address, Dying(2))
    shutil.rmtree(three.address)
    assert trim_log(three.root, "planted", three.log, -1) > 0
    assert three.compact(first.address).seq == three.head


def test_set_json_records_position_and_words_and_refuses_damage(three: Place) -> None:
    three.write({"new/1": {"title": "zebra"}})
    folder = Folder(three.compact().address)
    manifest = read_set(folder)
    assert parse_set(manifest.dump()) == manifest
    assert manifest.log_position is not None
    for changed, reason in (
        ({"format_version": 9, "more": 1}, "set format 9 is newer than this release reads"),
        ({"log_position": {"log": "x"}}, "log_position: expected log and seq"),
        ({"log_position": {"log": "x", "seq": -1}}, "log_position: log is not text, or seq"),
        ({"log_position": 7}, "log_position is not of type dict"),
        ({"words_sha256": None}, "words_sha256 is not of type str"),
        ({"outline": {"fields": {}}}, "outline: ValueError"),
        ({"outline": {"fields": {"a": {"kinds": []}}, "examples": []}}, "outline: TypeError"),
    ):
        value = {**orjson.loads(manifest.dump()), **changed}
        with pytest.raises(BundleError, match=reason):
            parse_set(orjson.dumps(_signed(value)))
    content = folder.read(WORDS_FILE)
    assert content is not None
    folder.write(WORDS_FILE, content.replace(b"zebra", b"zebrb"))
    with pytest.raises(BundleError, match=r"words\.json: sha256 differs"):
        read_words(folder, manifest)
    Path(str(folder), WORDS_FILE).unlink()
    with pytest.raises(BundleError, match=r"words\.json: is missing"):
        read_words(folder, manifest)
    assert read_words(folder, replace(manifest, words_sha256=None)) == SetWords()


def _signed(value: dict[str, Any]) -> dict[str, Any]:
    from fullrank.bundle.manifest import checksum_of

    rest = {name: one for name, one in value.items() if name != "checksum"}
    return {**rest, "checksum": checksum_of(rest)}


def test_a_damaged_shard_is_refused_and_nothing_serves(three: Place) -> None:
    three.write({"new/1": {"title": "zebra"}})
    manifest, _ = opened(three.address)
    path = Path(three.address, shard_folder(manifest.owner("new/1")), "manifest.json")
    content = path.read_text()
    path.write_text(content + " ")
    with pytest.raises(BundleError, match="is not the manifest that was asked for"):
        three.compact()
    path.write_text(content)
    assert three.compact().documents == COUNT + 1
