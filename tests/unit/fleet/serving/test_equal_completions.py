"""Routers over 1, 3 and 16 shards complete what people type as the unsharded service does."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fullrank.bundle import open_bundle
from fullrank.errors import BundleError
from fullrank.storage.documents import Document
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets import words as titles
from fullrank_fleet.sets.manifest import read_set
from fullrank_fleet.sets.words import TITLES, SetTitles, read_titles
from fullrank_service.completion.usage import Usage
from tests.api.support import Client
from tests.bundles import make_bundle
from tests.databases import NewDatabase
from tests.unit.fleet.serving.equality import (
    NEW_WORDS,
    WORDS,
    Places,
    Whole,
    all_equal,
    write,
    written,
)
from tests.unit.fleet.serving.equality import merge_small_segments_only as merge_small_segments_only

pytestmark = pytest.mark.anyio
COMPLETE = "/v1/complete"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"), 160)


def read_again(client: Client) -> None:
    """Read the log and the titles now."""
    usage: Usage = client.app.state.completion
    usage._refreshed = float("-inf")
    usage._due = time.time()  # else what was read shortly before would do
    usage._round()


async def completions_equal(clients: list[Client], typed: Sequence[str]) -> set[str]:
    """Compare the completions of some beginnings; return all that were found, as "kind text"."""
    for client in clients:
        read_again(client)
    found = set()
    for prefix in typed:
        for limit in (3, 20):
            asked = {"prefix": prefix, "limit": limit}
            status, reply = await all_equal(clients, "GET", COMPLETE, params=asked)
            assert status == 200
            found |= {f"{one['kind']} {one['text']}" for one in reply["completions"]}
    return found


def beginnings(words: Sequence[str]) -> list[str]:
    """What people type on their way to some words and pairs of words, with typing errors."""
    rng = random.Random(3)
    texts = [*words, *(" ".join(rng.sample(words, 2)) for _ in range(15))]
    cut = [text[: rng.randint(1, len(text))] for text in texts]
    return [*cut, "remtoe", "copu", "Copy ", "zzzz", "日"]


async def click(client: Client, query: str, id: str) -> None:
    """Let three people search for a text and click a document."""
    for person in ("ann", "bob", "cem"):
        who = {"user_id": person, "session_id": f"s-{person}"}
        asked = {"query": query, "limit": 100, **who}
        reply = (await client.post("/v1/search", json=asked)).json()
        event = {
            "action_name": "click",
            "timestamp": time.time() * 1000,
            "query_id": reply["query_id"],
            "event_attributes": {"object": {"object_id": id}},
            **who,
        }
        response = await client.post("/v1/events", json={"events": [event]})
        assert response.status_code == 200, response.text


async def test_queries_titles_and_words_are_completed_equally(
    clients: list[Client], whole: Whole
) -> None:
    found = await completions_equal(clients, beginnings(WORDS))
    shown = {one.partition(" ")[2] for one in found if one.startswith("title ")}
    assert len(shown) > 15
    assert shown <= whole.titles
    assert any(one.startswith("word ") for one in found)
    for client in clients:
        hits = (await client.post("/v1/search", json={"query": "copy files"})).json()["hits"]
        # A title that was clicked comes first, a query of several people before it.
        clicked = next(hit["id"] for hit in hits[::-1] if hit["fields"]["title"].count(" ") > 0)
        await click(client, "copy many files", clicked)
        # Lists are written to the log soon after their answer.
        async with asyncio.timeout(10):
            while "copy many files" not in (await client.get(f"{COMPLETE}?prefix=copy+m")).text:
                await asyncio.sleep(0.05)
                read_again(client)
    found = await completions_equal(clients, beginnings(WORDS))
    assert "query copy many files" in found


async def test_completions_follow_writes_and_compaction(
    whole: Whole, tmp_path: Path, new_database: NewDatabase
) -> None:
    rng = random.Random(1)
    ids = [*rng.sample(whole.ids, 60), *(f"new/{number}" for number in range(5))]
    typed = beginnings([*WORDS, *NEW_WORDS])
    places = Places(whole, tmp_path, new_database)
    async with places.clients() as clients:
        before = await completions_equal(clients, typed)
        for _ in range(25):
            method, url, arguments = write(rng, ids)
            await written(clients, method, url, **arguments)
        for id in whole.ids[:40]:
            _, seq = await written(clients, "DELETE", f"/v1/documents/{id}")
        # Titles are read from what searches find, which is not every write at once.
        await all_equal(clients, "POST", "/v1/search", json={"query": "copy", "min_seq": seq})
        live = await completions_equal(clients, typed)
        assert any(one.startswith("title ") for one in live - before)
        assert any(one.startswith("title ") for one in before - live)
        places.compact()
    async with places.clients() as clients:
        assert await completions_equal(clients, typed) == live


def test_a_set_has_as_many_titles_of_each_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles, "MAX_TITLES", 7)
    shards = [
        SetTitles([f"{shard}/{number}" for number in range(count)], ["t"] * count)
        for shard, count in (("b", 5), ("a", 9), ("c", 0), ("d", 1))
    ]
    few = SetTitles.merged([shards[0], shards[3]])
    assert few.ids == ["b/0", "b/1", "b/2", "b/3", "b/4", "d/0"]
    assert SetTitles.merged(shards).ids == ["a/0", "a/1", "b/0", "b/1", "d/0"]
    assert SetTitles.parse(few.dump()) == few


def test_titles_that_nobody_completes_are_left_out(tmp_path: Path) -> None:
    fields: list[dict[str, Any]] = [
        {"title": "kept"},
        {"title": "x" * 101},
        {"title": " "},
        {"title": None},
        {},
        {"title": "\ud800 lone"},
        {"text": "short text"},
    ]
    documents = [Document(f"d{i}", {"text": "a" * 101, **own}) for i, own in enumerate(fields)]
    bundle = open_bundle(tmp_path / "one" / make_bundle(tmp_path, "one", documents))
    found = SetTitles.of(bundle, 4)
    assert found.ids == ["d0", "d5", "d6"]
    assert found.titles == ["kept", "\ud800 lone", "short text"]
    assert SetTitles.parse(found.dump()) == found


def test_damaged_titles_are_refused(whole: Whole) -> None:
    folder = Folder(whole.cut(2))
    manifest = read_set(folder)
    assert len(read_titles(folder, manifest).ids) > 100
    content = folder.read(TITLES)
    assert content is not None
    folder.write(TITLES, content + b" ")
    with pytest.raises(BundleError, match=r"titles\.json: sha256 differs"):
        read_titles(folder, manifest)
    Path(str(folder), TITLES).unlink()
    with pytest.raises(BundleError, match=r"titles\.json: is missing"):
        read_titles(folder, manifest)
