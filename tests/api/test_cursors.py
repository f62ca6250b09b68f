"""Cursors over HTTP: pages of one version, whatever is activated meanwhile; only documents that are written move."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import httpx
import pytest

from fullrank_service.documents.compact import compact
from fullrank_service.documents.sqlitelog import LogPlace
from fullrank_service.search.schemas import SearchRequest
from tests.api.conftest import Root
from tests.api.support import Client, activate, registry, rules_applied, running

pytestmark = pytest.mark.anyio

BODY: dict[str, Any] = {"query": "copy files", "min_score": -100.0, "limit": 2}


async def search(client: Client, **body: Any) -> dict[str, Any]:
    return await client.search(**(BODY | body))


async def refused(client: Client, **body: Any) -> httpx.Response:
    return await client.post("/v1/search", json=BODY | body)


async def test_no_pseudonym_is_a_part_of_a_signing_key(client: Client, root: Root) -> None:
    """Ids are chosen by callers, and tokens of ads show pseudonyms: HMACs of ids under the key of the file."""
    content, _ = (await search(client, cursor="*"))["cursor"].split(".")
    key = (root.path / ".events.key").read_bytes()
    guess = hmac.digest(key, b"cursors of searches", "sha256")
    plain = base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))
    forged = base64.urlsafe_b64encode(hmac.digest(guess, plain, "sha256")[:16]).rstrip(b"=")
    assert (await refused(client, cursor=f"{content}.{forged.decode()}")).status_code == 422


BOOST = [{"field": "section", "decay": {"origin": 1, "scale": 1}, "weight": 0.4}]


@pytest.mark.parametrize("more", [{}, {"boost": BOOST}, {"model": "bm25", "limit": 3}])
async def test_pages_add_up_to_the_whole_list(reader: Client, more: dict[str, Any]) -> None:
    whole = await search(reader, **{**more, "limit": 100})
    assert whole["cursor"] is None
    cursor: str | None = "*"
    hits, pages = list[Any](), 0
    while cursor is not None:
        page = await search(reader, **more, cursor=cursor)
        assert page["total"] == whole["total"]
        hits, cursor, pages = hits + page["hits"], page["cursor"], pages + 1
    assert hits == whole["hits"]
    assert pages == -(-len(hits) // (BODY | more)["limit"])


async def test_pages_go_on_under_writes_and_swaps(root: Root) -> None:
    async with running(root.path) as client:
        whole = [hit["id"] for hit in (await search(client, limit=100))["hits"]]
        page = await search(client, cursor="*")
        seen = [hit["id"] for hit in page["hits"]]
        for i in range(3):
            fields = {"title": "copy files", "text": "copy copy files"}
            written = await client.put(f"/v1/documents/new{i}", json=fields)
        gone = whole[-1]
        written = await client.delete(f"/v1/documents/{gone}")
        assert (await activate(client, root.bm25)).status_code == 200
        cursor = page["cursor"]
        while cursor is not None:
            page = await search(client, cursor=cursor, min_seq=written.json()["seq"])
            assert page["model"] == root.learned
            seen += [hit["id"] for hit in page["hits"]]
            cursor = page["cursor"]
    assert [id for id in seen if not id.startswith("new")] == whole[:-1]


async def test_replaced_documents_may_move_and_all_others_come_once(root: Root) -> None:
    async with running(root.path) as client:
        whole = [hit["id"] for hit in (await search(client, limit=100))["hits"]]
        page = await search(client, cursor="*")
        hits, cursor = page["hits"], page["cursor"]
        await client.put(f"/v1/documents/{whole[0]}", json={"title": "nothing", "text": "else"})
        await client.patch(f"/v1/documents/{whole[-1]}", json={"section": 99})
        written = await client.delete(f"/v1/documents/{whole[-2]}")
        while cursor is not None:
            page = await search(client, cursor=cursor, min_seq=written.json()["seq"])
            assert page["total"] == len(whole) - 1
            hits, cursor = hits + page["hits"], page["cursor"]
    written_ids = {whole[0], whole[-1], whole[-2]}
    left = [hit["id"] for hit in hits if hit["id"] not in written_ids]
    assert left == [id for id in whole if id not in written_ids]
    # It comes again, behind the page that had it.
    assert hits[0]["id"] == whole[0]
    assert [hit["id"] for hit in hits].count(whole[0]) == 2
    assert whole[-2] not in {hit["id"] for hit in hits}
    # Its words and so its score are the same: it comes at its place, with its new content.
    [last] = [hit for hit in hits if hit["id"] == whole[-1]]
    assert last["fields"]["section"] == 99


async def test_a_list_goes_on_in_another_process_and_after_a_compaction(root: Root) -> None:
    """The process of the first page has ended, and its bundle is compacted before the second page."""
    seqs = []
    async with running(root.path) as client:
        for i in range(4):
            written = await client.put(f"/v1/documents/l{i}", json={"text": f"copy yak {i}"})
            seqs.append(written.json()["seq"])
        whole = (await search(client, query="copy yak", limit=100, min_seq=seqs[-1]))["hits"]
        first = await search(client, query="copy yak", cursor="*")
        for i in range(3):
            written = await client.put(f"/v1/documents/l{i}", json={"text": "files"})
    place = LogPlace.of_file(root.path / "documents.sqlite")
    version = compact(root.path / "learned" / root.learned, place).path.name
    async with running(root.path) as client:
        for active in (root.learned, version):
            assert (await activate(client, active)).status_code == 200
        for i in range(4):
            written = await client.put(f"/v1/documents/l{i}", json={"text": "remote"})
        hits, cursor = first["hits"], first["cursor"]
        while cursor is not None:
            page = await search(
                client, query="copy yak", cursor=cursor, min_seq=written.json()["seq"]
            )
            assert page["model"] == root.learned
            hits, cursor = hits + page["hits"], page["cursor"]
    kept = [[hit for hit in one if hit["id"][0] != "l"] for one in (hits, whole)]
    assert kept[0] == kept[1]


async def test_a_cursor_of_an_unloaded_version_has_expired(
    client: Client, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = (await search(client, cursor="*", model=root.bm25))["cursor"]
    serving = registry(client).serving
    left = {root.learned: serving.models[root.learned]}
    object.__setattr__(serving, "models", left)
    response = await refused(client, cursor=cursor, model=root.bm25)
    assert response.status_code == 410
    assert response.json()["type"] == "urn:fullrank:problem:cursor-expired"


async def test_what_does_not_go_with_a_cursor_is_named(reader: Client) -> None:
    cursor = (await search(reader, cursor="*"))["cursor"]
    for more, field in (
        ({"offset": 1}, "offset"),
        ({"sort": [{"field": "section"}]}, "sort"),
        ({"group_by": {"field": "section"}}, "group_by"),
        ({"diversity": 0.5}, "diversity"),
        ({"mode": "fast"}, "mode"),
        ({"limit": 0}, "limit"),
        ({"query": "other"}, "cursor"),
        ({"filter": {"section": 1}}, "cursor"),
        ({"cursor": cursor[:-2]}, "cursor"),
        ({"cursor": "?"}, "cursor"),
    ):
        response = await refused(reader, **{"cursor": cursor, **more})
        assert response.status_code == 422
        assert [error["field"] for error in response.json()["errors"]] == [field]


# Another value of each field than that of BODY.
CHANGES: dict[str, Any] = {
    "query": "copy file", "limit": 3, "fields": ["title"], "filter": {"section": 1}, "facets": ["section"],
    "facet_limit": 3, "facet_mode": "disjunctive", "typing": True, "facet_ranges": {"section": [{"from": 1}]},
    "highlight": {"fields": ["text"]}, "facet_under": {"section": ""},
    "explain": True, "prefix": "none", "min_score": -50.0, "mode": "exact", "rules": False, "partial": True,
    "model": "bm25", "boost": [{"field": "section", "log": True}], "client_id": "c", "session_id": "s",
    "user_id": "u", "application": "a", "record": False, "sort": [{"field": "section"}],
    "group_by": {"field": "section"}, "diversity": 0.5, "offset": 1, "match": "all",
}  # fmt: skip


async def test_a_page_is_the_next_one_of_its_list_or_is_refused(reader: Client) -> None:
    """Every field of a search either leaves the list as it is or cannot change between two pages."""
    assert CHANGES.keys() | {"cursor", "min_seq"} == SearchRequest.model_fields.keys()
    first = await search(reader, cursor="*")
    expected = [
        hit["id"] for hit in (await search(reader, cursor=first["cursor"], limit=3))["hits"]
    ]
    kept = set()
    for name, value in CHANGES.items():
        asked = {"facets": ["section"], name: value}
        response = await refused(reader, cursor=first["cursor"], **asked)
        if response.status_code == 422:
            continue
        found = [hit["id"] for hit in response.json()["hits"]]
        assert found == expected[: len(found)], name
        kept.add(name)
    assert CHANGES.keys() - kept == {
        "query", "filter", "prefix", "min_score", "rules", "partial", "model", "boost",
        "sort", "group_by", "diversity", "offset", "match",
    }  # fmt: skip


async def test_a_rule_hides_and_filters_documents_of_cursors_too(root: Root) -> None:
    async with running(root.path, documents_poll_ms=5) as client:
        whole = [hit["id"] for hit in (await search(client, limit=100))["hits"]]
        first = await search(client, cursor="*")
        rules: dict[str, Any] = {
            "hide": {"hide": [whole[3]], "pin": [{"id": whole[-1], "position": 1}]},
            "only": {"filter": {"section": {"exists": True}}},
            "words": {"synonyms": [["copy", "list"]]},
        }
        for id, rule in rules.items():
            assert (await client.put(f"/v1/rules/{id}", json=rule)).status_code == 200
        await rules_applied(client, "learned", rules)
        plain = await search(client, limit=100, filter={"section": {"exists": True}}, rules=False)
        left = [hit["id"] for hit in plain["hits"] if hit["id"] != whole[3]]
        assert 0 < len(left) < len(whole) - 1  # the filter leaves documents out
        seen = list[str]()
        cursor: str | None = "*"
        while cursor is not None:
            page = await search(client, cursor=cursor)
            assert (page["total"], page["rules"]) == (len(left), ["hide", "only"])
            seen, cursor = seen + [hit["id"] for hit in page["hits"]], page["cursor"]
        assert seen == left
        # Rules that begin between two pages leave documents of later pages out, and no other one.
        seen, cursor = [hit["id"] for hit in first["hits"]], first["cursor"]
        while cursor is not None:
            page = await search(client, cursor=cursor)
            seen, cursor = seen + [hit["id"] for hit in page["hits"]], page["cursor"]
        assert seen == [id for place, id in enumerate(whole) if place < 2 or id in left]
        free = await search(client, cursor="*", rules=False, limit=100)
        assert [hit["id"] for hit in free["hits"]] == whole


async def test_cursors_end_where_offsets_do(root: Root) -> None:
    async with running(root.path, max_offset=3) as client:
        first = await search(client, cursor="*")
        second = await search(client, cursor=first["cursor"])
    assert second["cursor"] is None
    assert len(second["hits"]) == 2
