"""Filters and facets over HTTP: only matching documents return, and a bad filter is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from fullrank.bundle import open_bundle
from fullrank.replies import MatchReply, SearchReply
from fullrank.storage.documents import Document
from fullrank_service.http.schemas import ProblemDocument
from tests.api.support import Client, ids, make_bundle, ok, running

pytestmark = pytest.mark.anyio

SECTIONS = ["net", "mail", "games", None]
TAGS = [["old"], ["old", "small"], [], "new"]
KINDS = ["Tools > Net > Copy", "Tools > Net", ["Tools > Disk", "Games"], "Games > Old", None]
CORPUS = [
    Document(
        f"d{i:02}",
        {
            "title": f"copy tool {i}",
            "text": f"files word{i % 5} " + "and so on " * 30,
            "section": SECTIONS[i % 4],
            "year": 1990 + i % 7,
            "size": i / 2,
            "free": i % 3 == 0,
            "tags": TAGS[i % 4],
            "kind": KINDS[i % 5],
            "shop": {"lat": 50.0 + i, "lon": 10.0},
        },
    )
    for i in range(40)
]
FIELDS = {document.id: document.fields for document in CORPUS}


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """One service for all tests of this module, which only search."""
    root = tmp_path_factory.mktemp("bundles")
    make_bundle(root, "tools", CORPUS, n_dense=4)
    async with running(root) as client:
        yield client


async def search(client: Client, **body: Any) -> dict[str, Any]:
    return await client.search(**{"query": "copy word1", "limit": 100, **body})


@pytest.mark.parametrize(
    ("asked", "keeps"),
    [
        ({}, lambda f: True),
        ({"section": "net"}, lambda f: f["section"] == "net"),
        ({"section": {"in": ["net", "mail"]}}, lambda f: f["section"] in ("net", "mail")),
        ({"section": {"exists": False}}, lambda f: f["section"] is None),
        ({"not": {"section": "net"}}, lambda f: f["section"] != "net"),
        ({"year": {"gte": 1992, "lt": 1995}}, lambda f: 1992 <= f["year"] < 1995),
        ({"size": 0.5}, lambda f: f["size"] == 0.5),
        ({"free": True, "tags": "old"}, lambda f: f["free"] and "old" in f["tags"]),
        (
            {"or": [{"tags": "new"}, {"and": [{"year": 1990}, {"free": False}]}]},
            lambda f: f["tags"] == "new" or (f["year"] == 1990 and not f["free"]),
        ),
        ({"kind": {"under": "Tools > Net"}}, lambda f: str(f["kind"]).startswith("Tools > Net")),
        # A degree of latitude is 111.2 km.
        (
            {"shop": {"within": {"lat": 50, "lon": 10, "km": 350}}},
            lambda f: f["shop"]["lat"] <= 53,
        ),
        ({"section": "nowhere"}, lambda f: False),
        ({"year": {"gt": 3000}}, lambda f: False),
    ],
)
async def test_a_filtered_answer_is_the_full_ranking_without_documents_that_do_not_match(
    client: Client, asked: dict[str, Any], keeps: Any
) -> None:
    whole = await search(client)
    expected = [hit for hit in whole["hits"] if keeps(FIELDS[hit["id"]])]
    # Twice: computed, then remembered.
    for _ in range(2):
        reply = await search(client, filter=asked)
        assert reply["hits"] == expected
        assert reply["total"] == len(expected)
        assert reply["certified"]
    page = await search(client, filter=asked, limit=3, offset=2)
    assert page["hits"] == expected[2:5]
    assert page["total"] == len(expected)


async def test_filters_that_differ_only_in_the_type_of_a_value_are_cached_apart(
    tmp_path: Path,
) -> None:
    values: list[Any] = [1, True, "1", "true"]
    corpus = [Document(f"d{i}", {"title": "copy", "f": value}) for i, value in enumerate(values)]
    make_bundle(tmp_path, "kinds", corpus)
    async with running(tmp_path) as client:
        for i, value in enumerate(values):
            assert ids(await search(client, filter={"f": value})) == [f"d{i}"]
        assert ids(await search(client, filter={"f": 1.0})) == ["d0"]


async def test_answers_are_the_same_without_the_filter_cache(tmp_path: Path) -> None:
    make_bundle(tmp_path, "tools", CORPUS)
    found = []
    for filter_cache_mb in (64, 0):
        async with running(tmp_path, filter_cache_mb=filter_cache_mb) as client:
            for _ in range(2):
                reply = await search(client, filter={"section": "net"}, facets=["year"])
                found.append((reply["hits"], reply["total"], reply["facets"]))
    assert found == [found[0]] * 4


async def test_facets_count_all_that_matches(client: Client) -> None:
    reply = await search(
        client, filter={"free": True}, facets=["section", "tags", "year"], facet_limit=3, limit=1
    )
    free = [fields for fields in FIELDS.values() if fields["free"]]
    years = Counter(fields["year"] for fields in free)
    assert reply["facets"]["section"] == {
        "values": [
            {"value": value, "count": count}
            for value, count in sorted(
                Counter(f["section"] for f in free if f["section"]).items(),
                key=lambda item: (-item[1], item[0]),
            )
        ],
        "distinct": 3,
        "missing": sum(fields["section"] is None for fields in free),
        "min": None,
        "max": None,
    }
    tags = {value["value"]: value["count"] for value in reply["facets"]["tags"]["values"]}
    assert tags == {
        "old": sum("old" in fields["tags"] for fields in free),
        "small": sum("small" in fields["tags"] for fields in free),
        "new": sum(fields["tags"] == "new" for fields in free),
    }
    year = reply["facets"]["year"]
    assert [(v["value"], v["count"]) for v in year["values"]] == sorted(
        years.items(), key=lambda item: (-item[1], item[0])
    )[:3]
    assert (year["distinct"], year["min"], year["max"]) == (7, 1990, 1996)
    assert reply["total"] == len(free)
    assert len(reply["hits"]) == 1


async def test_facets_without_a_filter_and_of_nothing(client: Client) -> None:
    reply = await search(client, facets=["free"])
    counts = Counter(fields["free"] for fields in FIELDS.values())
    assert reply["facets"]["free"]["values"] == [
        {"value": False, "count": counts[False]},
        {"value": True, "count": counts[True]},
    ]
    empty = await search(client, filter={"section": "none"}, facets=["section", "year"])
    assert empty["hits"] == []
    assert empty["total"] == 0
    nothing = {"values": [], "distinct": 0, "missing": 0, "min": None, "max": None}
    assert empty["facets"] == {"section": nothing, "year": nothing}
    assert (await search(client))["facets"] == {}


@pytest.mark.parametrize(
    ("condition", "others"),
    [
        ({"section": "net"}, {}),
        ({"section": "net", "year": {"gte": 1993}}, {"year": {"gte": 1993}}),
        (
            {"and": [{"or": [{"section": "net"}, {"section": "mail"}]}, {"free": True}]},
            {"free": True},
        ),
        ({"and": [{"not": {"section": "net"}}, {"and": [{"section": {"exists": True}}]}]}, {}),
        ({"or": [{"section": "net"}, {"free": True}]}, None),
    ],
)
async def test_disjunctive_facets_count_as_if_their_own_conditions_were_off(
    client: Client, condition: dict[str, Any], others: dict[str, Any] | None
) -> None:
    ranges = {"year": [{"to": 1994}, {"from": 1994}]}
    counted = {"facets": ["section", "free"], "facet_ranges": ranges}
    plain = await search(client, filter=condition, **counted)
    found = await search(client, filter=condition, facet_mode="disjunctive", **counted)
    for name in ("total", "hits"):
        assert found[name] == plain[name]
    wanted = condition if others is None else others
    expected = await search(client, filter=wanted, facets=["section"], limit=0)
    assert found["facets"]["section"] == expected["facets"]["section"]
    if "year" in condition:
        own = {"section": "net"}
        expected = await search(client, filter=own, facet_ranges=ranges, limit=0)
        assert found["facet_ranges"] == expected["facet_ranges"] != plain["facet_ranges"]


async def test_a_search_is_counted_once_however_many_fields_are_counted_apart(
    client: Client,
) -> None:
    async def counted() -> list[float]:
        lines = (await client.get("/metrics")).text.splitlines()
        names = ("fullrank_searches_total", "fullrank_zero_results_total")
        return [sum(float(line.split()[-1]) for line in lines if line.startswith(n)) for n in names]

    asked: dict[str, Any] = {"facets": ["free", "section"], "facet_mode": "disjunctive"}
    none = {"section": "nowhere", "year": {"gt": 3000}, "free": True}
    for condition, empty in (({"section": "net", "free": True}, 0), (none, 1)):
        searches, zeros = await counted()
        found = await search(client, filter=condition, **asked)
        assert list(found["facets"]) == asked["facets"]
        assert await counted() == [searches + 1, zeros + empty]


@pytest.mark.parametrize("query", ["", "  "])
async def test_an_empty_query_lists_all_documents(client: Client, query: str) -> None:
    found = await search(client, query=query, explain=True)
    assert (found["total"], found["certified"]) == (len(CORPUS), True)
    order = [(-hit["score"], hit["id"]) for hit in found["hits"]]
    assert order == sorted(order)
    assert all(hit["score"] == hit["explanation"]["bias"] for hit in found["hits"])
    old = await search(
        client, query=query, sort=[{"field": "year"}], filter={"free": True}, mode="fast"
    )
    free = [id for id, fields in FIELDS.items() if fields["free"]]
    assert ids(old) == sorted(free, key=lambda id: (FIELDS[id]["year"], id))
    first = await search(client, query=query, limit=30, cursor="*")
    second = await search(client, query=query, limit=30, cursor=first["cursor"])
    assert ids(first) + ids(second) == ids(found)
    above = await search(client, query=query, min_score=0.5)
    assert all(hit["score"] >= 0.5 for hit in above["hits"])


async def test_paths_are_counted_below_a_path(client: Client) -> None:
    reply = await search(client, min_score=-99, facets=["kind", "year"], facet_under={"kind": ""})
    assert reply["facets"]["kind"]["values"] == [
        {"value": "Tools", "count": 24},
        {"value": "Games", "count": 16},
    ]
    assert reply["facets"]["kind"]["missing"] == 8
    assert reply["facets"]["year"]["distinct"] == 7
    reply = await search(client, min_score=-99, facets=["kind"], facet_under={"kind": "Tools"})
    values = reply["facets"]["kind"]["values"]
    assert values == [{"value": "Tools > Net", "count": 16}, {"value": "Tools > Disk", "count": 8}]


async def test_the_nearest_places_come_first(client: Client) -> None:
    near = {"lat": 70.2, "lon": 10}
    reply = await search(client, min_score=-99, sort=[{"field": "shop", "near": near}])
    assert ids(reply)[:3] == ["d20", "d21", "d19"]
    decay = {"origin": near, "scale": 300}
    boost = [{"field": "shop", "decay": decay, "weight": 1000}]
    reply = await search(client, min_score=-99, boost=boost)
    assert ids(reply)[:3] == ["d20", "d21", "d19"]
    assert reply["certified"]


async def test_a_limit_of_zero_counts_alone(client: Client) -> None:
    body = {"query": "coppy", "facets": ["section"], "filter": {"free": True}}
    full = await search(client, **body)
    found = await search(client, **body, limit=0)
    assert found["hits"] == [] != full["hits"]
    for name in ("total", "facets", "did_you_mean"):
        assert found[name] == full[name]


async def test_similar_documents_under_a_filter(client: Client) -> None:
    asked: dict[str, Any] = {"limit": 100, "filter": json.dumps({"section": "net"})}
    reply = ok(await client.get("/v1/documents/d04/similar", params=asked))
    TypeAdapter(SearchReply).validate_python(reply)
    expected = {id for id, fields in FIELDS.items() if fields["section"] == "net"} - {"d04"}
    assert set(ids(reply)) == expected
    assert reply["total"] == len(expected)


async def test_match_places_only_targeted_documents(client: Client) -> None:
    body = {
        "page": {"text": "copy files"},
        "placements": [{"id": "top", "count": 3}, {"id": "side", "count": 64}],
        "targeting": {"section": "net", "year": {"gte": 1992}},
        "blocked_ids": ["d04"],
    }
    reply = ok(await client.post("/v1/match", json=body))
    TypeAdapter(MatchReply).validate_python(reply)
    placed = [hit["id"] for place in reply["placements"] for hit in place["hits"]]
    assert sorted(placed) == [
        id
        for id, fields in FIELDS.items()
        if fields["section"] == "net" and fields["year"] >= 1992 and id != "d04"
    ]


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({"filter": []}, "body.filter", "dictionary"),
        ({"filter": "section"}, "body.filter", "dictionary"),
        (
            {"filter": {"sections": "net"}},
            "filter.sections",
            "known fields: free, kind, section, shop, size",
        ),
        ({"filter": {"or": [{}, {"text": "x"}]}}, "filter.or.1.text", "longer than 256 bytes"),
        ({"filter": {"year": "1990"}}, "filter.year", "has numbers, not text"),
        ({"filter": {"year": {"gte": None}}}, "filter.year.gte", "null"),
        ({"filter": {"not": {"not": 3}}}, "filter.not.not", "an object"),
        ({"facets": ["nowhere"]}, "facets.0", "unknown field"),
        (
            {"filter": {"and": 3}, "facets": ["year"], "facet_mode": "disjunctive"},
            "filter.and",
            "a list",
        ),
        (
            {
                "filter": {"section": "net"},
                "facet_ranges": {"section": [{"from": 1}]},
                "facet_mode": "disjunctive",
            },
            "facet_ranges.section",
            "ranges need numbers or times",
        ),
        ({"facets": ["year", "text"]}, "facets.1", "cannot be filtered on"),
        ({"facets": "year"}, "body.facets", "list"),
        ({"facets": ["year"] * 17}, "body.facets", "at most 16"),
        ({"facets": ["year"], "facet_limit": 0}, "body.facet_limit", "greater"),
        ({"facets": ["year"], "facet_limit": 1001}, "body.facet_limit", "less"),
        ({"facet_under": {"kind": ""}}, "body.facet_under.kind", "not among facets"),
        ({"filter": {"year": {"under": "a"}}}, "filter.year", "has numbers, not text"),
        ({"filter": {"kind": {"under": 5}}}, "filter.kind.under", "must be text"),
        ({"filter": {"shop": {"within": {"lat": 1}}}}, "filter.shop.within", "lat, lon and km"),
        (
            {"filter": {"shop": {"within": {"lat": 91, "lon": 0, "km": 1}}}},
            "filter.shop.within",
            "between -90 and 90",
        ),
        (
            {"filter": {"shop": {"within": {"lat": "1", "lon": 0, "km": 1}}}},
            "filter.shop.within.lat",
            "a number",
        ),
        ({"sort": [{"field": "year", "near": {"lat": 1, "lon": 2}}]}, "sort.0.field", "no places"),
        (
            {"boost": [{"field": "shop", "decay": {"origin": {"lat": 91, "lon": 2}, "scale": 1}}]},
            "body.boost.0.decay.origin",
            "a point with lat and lon",
        ),
    ],
)
async def test_an_invalid_filter_is_a_problem_that_names_its_path(
    client: Client, body: dict[str, Any], field: str, reason: str
) -> None:
    response = await client.post("/v1/search", json={"query": "copy", **body})
    check(response, field, reason)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"year": NaN}', "body"),
        (b'{"year": {"lt": 1e400}}', "body.filter"),
        (b'{"section": "\\ud800"}', "body.filter"),
        (b'{"\\udfff": 1}', "body.filter"),
        (b'{"not":' * 400 + b"{}" + b"}" * 400, "filter" + ".not" * 16),
    ],
)
async def test_a_filter_that_is_not_strict_json_gets_422(
    client: Client, raw: bytes, field: str
) -> None:
    content = b'{"query": "copy", "filter": ' + raw + b"}"
    response = await client.post(
        "/v1/search", content=content, headers={"Content-Type": "application/json"}
    )
    check(response, field, "")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("{", "filter"),
        ("[" * 8000, "filter"),
        ("3", "filter"),
        ('{"nowhere": 1}', "filter.nowhere"),
        ("x" * 8193, "query.filter"),
    ],
)
async def test_a_bad_filter_of_similar_documents(client: Client, given: str, field: str) -> None:
    check(await client.get("/v1/documents/d01/similar", params={"filter": given}), field, "")


async def test_an_invalid_targeting_filter_is_reported_as_targeting(client: Client) -> None:
    body = {"page": {"text": "x"}, "placements": [{"id": "a"}], "targeting": {"nowhere": 1}}
    check(await client.post("/v1/match", json=body), "targeting.nowhere", "unknown field")


def check(response: httpx.Response, field: str, reason: str) -> None:
    """The response is a 422 that names the field."""
    assert response.status_code == 422, response.text
    problem = response.json()
    ProblemDocument.model_validate(problem, strict=True)
    assert problem["type"] == "urn:fullrank:problem:invalid"
    [error] = problem["errors"]
    assert error["field"] == field
    assert reason in error["reason"]


async def test_the_fast_mode_returns_only_what_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few documents have no index otherwise.
    for name in ("INDEXED_FROM", "FAST_FROM"):
        monkeypatch.setattr(f"fullrank.bundle.write.{name}", 1)
    many = [
        Document(f"d{i:04}", {"title": f"word{i % 50} word{i % 7}", "text": f"t{i}", "n": i})
        for i in range(2000)
    ]
    queries = [f"word{i % 50} word{i % 7}" for i in range(40)]
    version = make_bundle(tmp_path, "many", many, n_dense=8, sample_queries=queries)
    assert "fast" in open_bundle(tmp_path / "many" / version, verify=False).retriever.modes
    async with running(tmp_path, max_limit=2000) as client:
        for share, certified in ((1.0, False), (0.6, False), (0.1, False), (0.002, True)):
            asked = {"query": "word3 word5", "filter": {"n": {"lt": int(2000 * share)}}}
            exact = await search(client, **asked, limit=2000)
            fast = await search(client, **asked, limit=10, mode="fast")
            assert fast["certified"] == certified
            assert fast["total"] == exact["total"] == int(2000 * share)
            assert all(hit["fields"]["n"] < 2000 * share for hit in fast["hits"])
            assert len(fast["hits"]) == min(10, fast["total"])
            if certified:
                assert fast["hits"] == exact["hits"][:10]
            # It may miss some, but what it finds has its exact score.
            scores = {hit["id"]: hit["score"] for hit in exact["hits"]}
            assert all(hit["score"] == scores[hit["id"]] for hit in fast["hits"])


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("query", ["copy word1", "word3", "d07", "xyzzy"])
async def test_a_bundle_answers_as_its_service(client: Client, mode: str, query: str) -> None:
    """Hits, totals, facets, highlights and explanations have one shape in process and over HTTP."""
    [bundle] = [open_bundle(path) for path in client.root.glob("tools/*/")]
    filter = {"year": {"gte": 1991}}
    reply = await search(
        client, query=query, limit=5, mode=mode, filter=filter, facets=["section", "year"],
        highlight={"fields": ["text"]}, explain=True, prefix="none",
    )  # fmt: skip
    found = bundle.search(
        query, 5, mode=mode, filter=filter, facets=["section", "year"], highlight=["text"], explain=True
    )  # fmt: skip
    shape = json.loads(json.dumps(found.as_dict()))
    assert shape == {name: reply[name] for name in shape}
    assert {hit.keys() == reply["hits"][0].keys() for hit in shape["hits"]} <= {True}
