"""What a shard answers, and which versions it has open."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fullrank.errors import BundleError
from fullrank_fleet.partitions import partition_of, shard_of
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_fleet.serving.answering import OpenShard
from fullrank_fleet.serving.replicas import Answers
from fullrank_fleet.serving.shard import ShardServer
from fullrank_fleet.serving.wire import (
    Answer,
    Ask,
    Behind,
    LacksClicks,
    Question,
    Read,
    Reply,
    pack,
    unpack_reply,
)
from fullrank_fleet.sets.manifest import read_set, shard_folder
from tests.unit.fleet.jobs.planted import document, planted_set


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return planted_set(tmp_path_factory.mktemp("set"), 60, 3)


def answer(server: ShardServer, asked: Ask) -> Reply | str:
    [found] = server.answers([pack(asked)], [60.0])
    return unpack_reply(found) if isinstance(found, bytes) else str(found)


def ask(server: ShardServer, address: str, question: Question) -> Reply | str:
    manifest = read_set(Folder(address))
    return answer(server, Ask(manifest.version, manifest.set_id, question))


def test_a_shard_reads_its_own_documents_only(address: str, tmp_path: Path) -> None:
    server = ShardServer(1, BundleCache(tmp_path))
    server.load(address)
    manifest = read_set(Folder(address))
    for number in range(60):
        expected = document(number)
        id = expected.pop("_id")
        expected = {name: value for name, value in expected.items() if value != ""}
        is_own = shard_of(partition_of(id), manifest.runs) == 1
        found = ask(server, address, Read(id))
        assert found == Answer(manifest.set_id, expected if is_own else None)


def test_a_shard_says_that_it_lacks_a_version(address: str, tmp_path: Path) -> None:
    server = ShardServer(0, BundleCache(tmp_path))
    manifest = read_set(Folder(address))
    version = server.load(address)
    for other in (Ask("other", manifest.set_id, Read("a")), Ask(version, "0" * 64, Read("a"))):
        assert answer(server, other) == f"has {version} open"
    server.release(version)
    server.release(version)
    assert ask(server, address, Read("a")) == "has no version open"


def test_a_version_that_is_asked_for_stays(address: str, tmp_path: Path) -> None:
    server = ShardServer(0, BundleCache(tmp_path))
    version = server.load(address)
    assert server.release_idle([version, "other"], idle_s=60) == ()
    assert server.load(address) == version
    assert isinstance(ask(server, address, Read("a")), Answer)
    assert server.release_idle([version], idle_s=60) == (version,)
    assert isinstance(ask(server, address, Read("a")), Answer)
    assert server.release_idle([version], idle_s=0) == ()
    assert ask(server, address, Read("a")) == "has no version open"


def test_requests_that_come_together_are_answered_each_by_itself(
    address: str, tmp_path: Path
) -> None:
    server = ShardServer(0, BundleCache(tmp_path))
    manifest = read_set(Folder(address))
    version = server.load(address)
    good = pack(Ask(version, manifest.set_id, Read("a")))
    missing = pack(Ask("other", manifest.set_id, Read("a")))
    answers = server.answers([good, missing, b"no pickle", good], [1.0] * 4)
    assert answers[0] == answers[3] == server.answers([good], [1.0])[0]
    assert isinstance(answers[1], ConnectionError)
    assert version in str(answers[1])
    assert isinstance(answers[2], RuntimeError)
    assert "UnpicklingError" in str(answers[2])


def test_requests_whose_time_is_up_are_not_begun(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routers have given up on them, or have the answer of another replica."""
    server = ShardServer(0, BundleCache(tmp_path))
    manifest = read_set(Folder(address))
    version = server.load(address)
    begun, go, reply = list[str](), threading.Event(), OpenShard.reply

    def waiting(self: OpenShard, ask: Ask) -> Answer | Behind | LacksClicks:
        assert isinstance(ask.question, Read)
        begun.append(ask.question.id)
        go.wait(20)
        return reply(self, ask)

    monkeypatch.setattr(OpenShard, "reply", waiting)

    def call(id: str, *left_s: float) -> Answers:
        return server.answers([pack(Ask(version, manifest.set_id, Read(id)))] * len(left_s), left_s)

    with ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(call, "busy", 60.0) for _ in range(2)]
        while len(begun) < 2:
            time.sleep(0.001)
        waiters = [pool.submit(call, "late", 0.0, 0.0), pool.submit(call, "mixed", 0.0, 60.0)]
        time.sleep(0.05)
        go.set()
        answered = [one.result(20) for one in (*busy, *waiters)]
    kinds = [[type(own) for own in answers] for answers in answered]
    assert kinds == [[bytes], [bytes], [TimeoutError] * 2, [TimeoutError, bytes]]
    assert begun == ["busy", "busy", "mixed"]


def test_a_shard_keeps_the_copies_of_the_last_two_released_versions(
    address: str, tmp_path: Path
) -> None:
    server = ShardServer(1, BundleCache(tmp_path / "cache"))
    manifest = read_set(Folder(address))
    sets = [address]
    for number in range(4):  # versions that differ in each shard
        sets.append(str(tmp_path / "sets" / f"again-{number}"))
        shutil.copytree(address, sets[-1])
        shard = Path(sets[-1], shard_folder(1), "manifest.json")
        shard.write_bytes(shard.read_bytes() + b"\n" * (number + 1))
        sha256 = hashlib.sha256(shard.read_bytes()).hexdigest()
        own = replace(manifest.shards[1], manifest_sha256=sha256)
        renamed = replace(
            manifest,
            version=f"again-{number}",
            shards=(manifest.shards[0], own, manifest.shards[2]),
        )
        Path(sets[-1], "set.json").write_text(renamed.dump())
    # Has the copies of the first version.
    shared = str(tmp_path / "sets" / "shared")
    shutil.copytree(address, shared)
    Path(shared, "set.json").write_text(replace(manifest, version="shared").dump())

    copies = []
    for each in [shared, *sets]:
        version = server.load(each)
        if each != shared:
            copies.append(read_set(Folder(each)).shards[1].manifest_sha256)
            server.release(version)
    server.release(version)
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {copies[0], *copies[-2:]}
    server.release("shared")
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {copies[-1], copies[0]}
    assert server.versions == ()
    assert server.load(sets[2]) == "again-1"


def test_a_shard_refuses_a_number_that_the_set_lacks(address: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="has no documents in shard 3"):
        ShardServer(3, BundleCache(tmp_path)).load(address)
