"""Keys that are bound to collections and a filter, and the tokens of tenants that are derived from them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from fullrank.storage.documents import Document
from fullrank_service.base.logs import without_secrets
from fullrank_service.http.keys import KeysError, create_key, derive_key
from tests.api.conftest import Root
from tests.api.support import AUTH, KEY, Client, at, ids, make_bundle, ok, running
from tests.api.test_access import bearer
from tests.api.test_collections import click
from tests.api.test_errors import check
from tests.unit.cli.running import Run

pytestmark = pytest.mark.anyio
ONE = {"section": 1}
IN_ONE = {"linux/cp", "linux/mv", "linux/ssh"}


async def asked(client: Client, token: str, query: str = "files", **body: Any) -> dict[str, Any]:
    reply = await client.post("/v1/search", json={"query": query, **body}, headers=bearer(token))
    found: dict[str, Any] = ok(reply)
    return found


def signed(key: str, given: Mapping[str, Any]) -> str:
    """Derive a token as docs/guides/operate/keys-and-going-public.md describes it for other languages."""
    payload = base64.urlsafe_b64encode(json.dumps(given).encode()).decode().rstrip("=")
    secret = hashlib.sha256(key.encode()).hexdigest()
    digest = hmac.new(secret.encode(), payload.encode(), "sha256").digest()
    return f"frt_{payload}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


async def test_a_token_needs_nothing_but_the_key(root: Root) -> None:
    given: dict[str, Any] = {"key": "test", "filter": ONE, "expires": time.time() + 60}
    token = signed(KEY, given)
    assert token == derive_key(KEY, filter=ONE, expires=given["expires"])
    async with running(root.path, anonymous="none") as client:
        assert set(ids(await asked(client, token))) == IN_ONE


async def test_a_token_within_a_bound_key_sees_less(root: Root, tmp_path: Path) -> None:
    keys = tmp_path / "some-keys.json"
    bounds: dict[str, Any] = {"collections": ["learned"], "filter": {"section": {"exists": True}}}
    _, parent = create_key(keys, ["search"], "web", **bounds)
    derived = derive_key(
        parent, collections=["learned", "bm25"], filter={"title": {"in": ["mv", "scp"]}}
    )
    async with running(root.path, keys=keys, anonymous="none") as client:
        assert set(ids(await asked(client, parent))) == IN_ONE
        assert ids(await asked(client, derived)) == ["linux/mv"]
        for model in ("bm25", root.bm25, "none"):
            refused = {"query": "files", "model": model}
            for token in (parent, derived):
                answer = await client.post("/v1/search", json=refused, headers=bearer(token))
                check(answer, 403, "forbidden")
        listed = ok(await client.get("/v1/models", headers=bearer(derived)))
        assert [model["name"] for model in listed["models"]] == ["learned"]
        assert listed["models"][0]["documents"] is None


async def test_what_is_not_signed_or_over_is_unknown(root: Root, tmp_path: Path) -> None:
    keys = tmp_path / "some-keys.json"
    tokens = {name: create_key(keys, [name], name)[1] for name in ("search", "ingest")}
    good = derive_key(tokens["search"], filter=ONE)
    payload, signature = good.removeprefix("frt_").split(".")
    other = derive_key(tokens["search"]).removeprefix("frt_").split(".")[0]
    wrong = [
        derive_key(tokens["search"], expires=time.time() - 1),
        derive_key(tokens["ingest"]),  # a key that may not search
        derive_key(f"fr_none_{'x' * 43}"),
        derive_key(f"fr_search_{'x' * 43}", filter=ONE),
        f"frt_{other}.{signature}",
        f"frt_{payload}.",
        f"frt_{payload}",
        f"frt_.{signature}",
        "frt_",
        "frt_é.é",
        f"frt_{'A' * 9000}.{signature}",
    ]
    # A program that lacks the tenant or the time must not show everything for ever.
    empty: list[dict[str, Any]] = [
        {"filter": {}},
        {"filter": None},
        {"collections": None},
        {"expires": None},
    ]
    bounds: list[dict[str, Any]] = [*empty, {"collections": []}, {"expires": float("nan")}]
    wrong += [signed(tokens["search"], {"key": "search", **bound}) for bound in bounds]
    async with running(root.path, keys=keys, anonymous="none") as client:
        assert set(ids(await asked(client, good))) == IN_ONE
        for token in wrong:
            headers = {b"Authorization": f"Bearer {token}".encode("latin-1")}
            answer = await client.post("/v1/search", json={"query": "a"}, headers=headers)
            check(answer, 401, "unauthorized")


async def test_a_bound_key_stays_on_the_paths_that_keep_to_it(root: Root, tmp_path: Path) -> None:
    """Every path says in the OpenAPI document what it keeps to; all others refuse such keys."""
    keys = tmp_path / "some-keys.json"
    _, every = create_key(keys, ["search", "ingest"], "every", collections=["learned"])
    _, some = create_key(keys, ["search"], "some", filter=ONE)
    seen = set()
    async with running(root.path, keys=keys) as client:
        for path, operations in ok(await client.get("/openapi.json"))["paths"].items():
            for method, operation in operations.items():
                if "security" not in operation:
                    continue
                kept = operation.get("x-bound-keys")
                address = re.sub("[{}]", "", path.replace("{name}", "learned"))
                for token, keeps in ((every, kept is not None), (some, kept == "filter")):
                    headers = {**bearer(token), "X-Algolia-API-Key": token}
                    answer = await client.request(method, address, headers=headers)
                    if not keeps:
                        check(answer, 403, "forbidden")
                    else:
                        assert answer.status_code != 403, (method, path)
                seen.add((kept, operation["security"][0]["key"][0]))
    scopes = {("filter", "search"), ("collections", "search"), ("collections", "ingest")}
    assert seen == {*scopes, (None, "ingest"), (None, "events"), (None, "admin")}


async def test_writes_of_a_bound_key_stay_in_its_collection(root: Root, tmp_path: Path) -> None:
    keys = tmp_path / "some-keys.json"
    _, token = create_key(keys, ["ingest"], "writer", collections=["bm25"])
    async with running(root.path, keys=keys) as client:
        for prefix, status in (("/v1", 403), ("/v1/collections/bm25", 200)):
            for path, body in (("documents/x", {"title": "x"}), ("rules/x", {"hide": ["x"]})):
                answer = await client.put(f"{prefix}/{path}", json=body, headers=bearer(token))
                assert answer.status_code == status, answer.text


async def test_an_experiment_shows_no_other_collection(root: Root, tmp_path: Path) -> None:
    """The default experiment may compare bundles of two names; a tenant and a collection see one of them."""
    keys = tmp_path / "some-keys.json"
    _, token = create_key(keys, ["search"], "tenant", collections=["learned"])
    _, admin = create_key(keys, ["admin"], "admin")
    async with running(root.path, keys=keys, anonymous="search") as client:
        body = {"candidate": root.bm25, "share": 1.0}
        ok(await client.put("/v1/experiments/default", json=body, headers=bearer(admin)))
        query = {"query": "copy", "user_id": "ann"}
        assert ok(await client.post("/v1/search", json=query))["candidate"] == root.bm25
        assert (await asked(client, token, **query))["candidate"] is None
        inside = await client.post("/v1/collections/learned/search", json=query)
        assert ok(inside)["candidate"] is None


async def test_a_bound_key_writes_no_text_of_a_page(root: Root, tmp_path: Path) -> None:
    """All collections share the pages."""
    keys = tmp_path / "some-keys.json"
    _, bound = create_key(keys, ["search", "ingest"], "bound", collections=["learned"])
    _, free = create_key(keys, ["search", "ingest"], "free")
    page = {"url": "https://news.example/a", "title": "Backups", "text": "copy files"}
    body = {"page": page, "placements": [{"id": "top", "count": 1}]}
    known = {**body, "page": {"url": page["url"]}}
    async with running(root.path, keys=keys, anonymous="none") as client:
        ok(await client.post("/v1/match", json=body, headers=bearer(bound)))
        await asyncio.sleep(0.3)
        answer = await client.post("/v1/match", json=known, headers=bearer(free))
        check(answer, 422, "page-unknown")


@pytest.mark.parametrize(
    ("scopes", "bounds"),
    [
        (["search", "ingest"], {"filter": ONE}),
        (["search", "events"], {"collections": ["learned"]}),
        (["admin"], {"collections": ["learned"]}),
    ],
)
def test_bounds_that_no_path_would_keep_are_refused(
    tmp_path: Path, scopes: Sequence[str], bounds: dict[str, Any]
) -> None:
    with pytest.raises(KeysError, match="may have no scope"):
        create_key(tmp_path / "keys.json", scopes, **bounds)
    with pytest.raises(KeysError, match="not the token of a key"):
        derive_key("frt_a.b")


def test_no_line_of_the_log_has_a_token() -> None:
    token = derive_key(KEY, filter=ONE)
    assert without_secrets(f"/v1/insights?key={token}&x") == "/v1/insights?key=frt_***&x"


def test_an_empty_filter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="empty filter"):
        create_key(tmp_path / "keys.json", ["search"], filter={})
    with pytest.raises(KeysError, match="empty filter"):
        derive_key(KEY, filter={})


async def test_the_command_derives_what_the_service_takes(
    root: Root, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = str(tmp_path / "some-keys.json")
    bound = run("keys", "create", "--scope", "search", "--file", keys, "--collection", "learned")
    monkeypatch.setenv("FULLRANK_KEY", bound.out.strip())
    derived = run("keys", "derive", "--filter", json.dumps(ONE), "--days", "1").out.strip()
    assert run("keys", "derive", "--filter", "[1]").code == 2
    [listed] = json.loads(run("keys", "list", "--file", keys, "--json").out)
    assert listed["collections"] == ["learned"]
    async with running(root.path, keys=Path(keys), anonymous="none") as client:
        assert set(ids(await asked(client, derived))) == IN_ONE


# What a tenant sees, over random requests.

TENANTS = ("ann", "bob", "cyd")
SHARED = ("copy", "files", "remote", "host", "list", "red", "blue")
MARK = re.compile(r"(ann|bob|cyd)q[a-z]{6}")
OTHER = "/v1/collections/other"


def corpus(random: Random) -> list[Document]:
    """Documents in which every id, word of its own, value and number names the tenant."""
    found = []
    for number, tenant in enumerate(TENANTS):
        for row in range(12):

            def own(tenant: str = tenant) -> str:
                return f"{tenant}q{''.join(random.choices('bdfgklmnprst', k=6))}"

            words = random.choices(SHARED, k=4)
            fields = {
                "title": f"{words[0]} {own()}",
                "text": f"{' '.join(words)} {own()} {own()}",
                "tenant": tenant,
                "brand": [own(), random.choice(SHARED)],
                "price": 1_000 * (number + 1) + row,
                "color": random.choice(("red", "blue")),
                "sku": own(),
                "secret": own() if number else None,
            }
            found.append(Document(own(), fields))
    return found


class Requests:
    """Random requests of a tenant, as (method, path, body or query)."""

    def __init__(self, random: Random, documents: Sequence[Document]) -> None:
        self._random, self._documents = random, documents
        texts = [
            f"{d.id} {d.fields['title']} {d.fields['text']} {d.fields['sku']}" for d in documents
        ]
        self._words = sorted({word for text in texts for word in text.split()})

    def words(self) -> str:
        """Words of all tenants, some with a typing error or cut short."""
        random = self._random
        found = []
        for word in random.choices([*self._words, *SHARED * 8], k=random.randint(0, 3)):
            place = random.randrange(3, 1 + len(word))
            cut, typo = word[:place], word[: place - 1] + "x" + word[place:]
            found.append(random.choice((word, word, cut, typo)))
        return " ".join(found)

    def condition(self) -> dict[str, Any]:
        random, document = self._random, self._random.choice(self._documents)
        name = random.choice(("tenant", "brand", "price", "color", "sku", "secret"))
        value = document.fields[name]
        value = random.choice(value) if isinstance(value, list) else value
        simple: dict[str, Any] = random.choice(
            ({name: value}, {name: {"exists": random.random() < 0.5}}, {"price": {"gte": 1_500}})
        )
        if value is None:
            simple = {"tenant": {"in": [*TENANTS]}}
        match random.randrange(5):
            case 0:
                return {"not": simple}
            case 1:
                return {"or": [simple, self.condition()]}
            case 2:
                return {"and": [simple, self.condition()]}
        return simple

    def search(self) -> dict[str, Any]:
        random = self._random
        options: dict[str, Any] = {
            "filter": self.condition(),
            "facets": random.sample(("tenant", "brand", "price", "color", "sku", "secret"), 3),
            "facet_mode": random.choice(("filtered", "disjunctive")),
            "facet_limit": random.choice((1, 100)),
            "facet_ranges": {"price": [{"from": 0, "to": 2_000}, {"from": 2_000, "to": 9_000}]},
            "limit": random.choice((0, 1, 50)),
            "offset": random.choice((0, 3)),
            "explain": True,
            "highlight": {"fields": ["text", "title"]},
            "match": random.choice(("all", "any", "auto")),
            "prefix": random.choice(("last", "none")),
            "mode": random.choice(("exact", "fast")),
            "min_score": random.choice((None, -100.0)),
            "fields": random.choice((None, ["price"])),
            random.choice(("sort", "boost", "group_by", "diversity", "cursor")): None,
        }
        made = {name: value for name, value in options.items() if random.random() < 0.3}
        orders: dict[str, Any] = {
            "sort": [{"field": random.choice(("price", "color")), "order": "asc"}],
            "boost": [{"field": "price", "log": True}],
            "group_by": {"field": random.choice(("tenant", "brand"))},
            "diversity": 0.5,
            "cursor": "*",
        }
        made |= {name: orders[name] for name in made.keys() & orders.keys()}
        return {"query": self.words(), **made}

    def draw(self) -> tuple[str, str, dict[str, Any]]:
        random, id = self._random, self._random.choice(self._documents).id
        prefix = random.choice(("/v1", "/v1", OTHER))
        match random.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                return "POST", f"{prefix}/search", self.search()
            case 5:
                searches = [self.search() for _ in range(2)]
                return "POST", f"{prefix}/search:batch", {"searches": searches}
            case 6:
                condition = json.dumps(self.condition())
                return "GET", f"{prefix}/search", {"q": self.words(), "filter": condition}
            case 7:
                return "GET", f"{prefix}/documents/{id}", {}
            case 8:
                return "GET", f"{prefix}/documents/{id}/similar", {"limit": 50}
            case 9:
                return "GET", f"{prefix}/documents/{id}/together", {}
            case 10:
                text = self.words()[: random.randint(1, 9)] or "c"
                return "GET", f"{prefix}/complete", {"prefix": text, "limit": 50}
        path = random.choice(("analytics", "models", "rules", "experiments/default", "match"))
        return ("POST" if path == "match" else "GET"), f"{prefix}/{path}", {}


def foreign(tenant: str, reply: httpx.Response, sent: str) -> Iterator[str]:
    """What an answer shows of other tenants, and the request did not have."""
    for mark in MARK.finditer(reply.text):
        if mark[1] != tenant and mark[0] not in sent:
            yield mark[0]
    if not reply.is_success:
        return
    first = 1_000 * (TENANTS.index(tenant) + 1)
    for name, value in values_of(reply.json()):
        if name in ("price", "min", "max") and isinstance(value, int | float):
            if not first <= value < first + 1_000:
                yield f"{name}: {value}"
        elif name in ("total", "distinct", "count", "missing") and isinstance(value, int):
            if value > 12 * (2 if name == "distinct" else 1):
                yield f"{name}: {value}"
        elif name == "tenant" and value != tenant:
            yield f"{name}: {value}"


def values_of(found: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(found, dict):
        for key, value in found.items():
            yield from values_of(value, key)
    elif isinstance(found, list):
        for value in found:
            yield from values_of(value, name)
    else:
        yield name, found


async def used(client: Client, documents: Sequence[Document]) -> None:
    """Search and click as people of all tenants, so that there is what could leak."""
    for prefix in ("/v1", OTHER):
        for document in documents[::3]:
            for person in "abc":
                body = {"query": document.fields["text"], "user_id": person}
                found = ok(await client.post(f"{prefix}/search", json=body, headers=AUTH))
                events = [click(found["query_id"], person, id) for id in ids(found)[:3]]
                ok(await client.post(f"{prefix}/events", json=events, headers=AUTH))


@asynccontextmanager
async def tenants(folder: Path) -> AsyncIterator[tuple[Client, dict[str, Client], list[Document]]]:
    """A service of all tenants in two collections, with clicks; a service of each tenant alone; all documents."""
    documents = corpus(Random(1))
    half = documents[::2]
    for name, hour in (("other", 1), ("shop", 2)):
        make_bundle(folder / "all", name, half, n_dense=4, created=at(hour), sample_queries=SHARED)
    async with running(folder / "all") as client:
        await used(client, half)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(running(folder / "all", anonymous="none"))
        for document in documents[1::2]:  # live ones
            for prefix in ("/v1", OTHER):
                path = f"{prefix}/documents/{document.id}"
                written = ok(await client.put(path, json=document.fields, headers=AUTH))
        for prefix in ("/v1", OTHER):
            path = f"{prefix}/documents/{documents[1].id}"
            ok(await client.get(path, params={"min_seq": written["seq"]}, headers=AUTH))
        alone = {}
        for tenant in TENANTS:
            own = [one for one in documents if one.fields["tenant"] == tenant]
            make_bundle(folder / tenant, "shop", own, n_dense=4)
            alone[tenant] = await stack.enter_async_context(running(folder / tenant))
        yield client, alone, documents


async def differences(
    client: Client, alone: Client, tenant: str, path: str, body: Mapping[str, Any], reply: Any
) -> list[str]:
    """What a search by a tenant answers otherwise than its own service, or than a filter of the request."""
    kept = ["total", "total_at_least", "facets", "facet_ranges", "hits"]
    if not body["query"].strip():
        if "diversity" in body:  # other vectors
            return []
        found = await alone.post("/v1/search", json=body)
    else:
        own = {"tenant": tenant}
        condition = {"and": [own, body["filter"]]} if "filter" in body else own
        found = await client.post(path, json={**body, "filter": condition}, headers=AUTH)
        if body.get("facet_mode") == "disjunctive":
            kept = ["total", "hits"]
    if not found.is_success or not found.json()["hits"]:
        # The own service has no field that only others have; without hits, any word may do among the own documents.
        return []
    expected = found.json()
    for hit in (*expected["hits"], *reply["hits"]):
        hit["explanation"] = None  # names no completed words
    others = [word for word in body["query"].split() if word.startswith(TENANTS)]
    if body.get("match") == "auto" and any(not word.startswith(tenant) for word in others):
        # Words of others count for the operator: where no document has them all, documents with fewer words do.
        is_whole = body.get("limit", 50) == 50 and not {"offset", "group_by"} & body.keys()
        more = [hit for hit in reply["hits"] if hit not in expected["hits"]] if is_whole else []
        return [f"{path} {body}: {len(more)} hits"] if more else []
    return [f"{path} {body}: {name}" for name in kept if reply[name] != expected[name]]


async def leaks(folder: Path, seed: int, number: int) -> list[str]:
    """Send so many random requests of tenants; return what was seen of others, and what is unlike the own service."""
    found: list[str] = []
    compared = 0
    async with tenants(folder) as (client, alone, documents):
        requests = Requests(Random(seed), documents)
        tokens = {tenant: derive_key(KEY, filter={"tenant": tenant}) for tenant in TENANTS}
        for count in range(number):
            tenant = TENANTS[count % 3]
            method, path, given = requests.draw()
            content: dict[str, Any] = {"params" if method == "GET" else "json": given}
            reply = await client.request(method, path, headers=bearer(tokens[tenant]), **content)
            assert reply.status_code in (200, 403, 404, 422), reply.text
            sent = path + json.dumps(given)
            found += [f"{tenant}: {sent}: {one}" for one in foreign(tenant, reply, sent)]
            if reply.is_success and path.endswith("/search") and method == "POST":
                compared += 1
                found += await differences(client, alone[tenant], tenant, path, given, reply.json())
    assert compared > number / 4
    return found


@pytest.mark.sweep
async def test_no_request_of_a_tenant_shows_another(tmp_path: Path) -> None:
    assert await leaks(tmp_path, 1, 600) == []


@pytest.mark.slow
async def test_none_of_a_hundred_thousand_requests_does(tmp_path: Path) -> None:
    assert await leaks(tmp_path, 2, 100_000) == []
