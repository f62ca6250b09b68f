"""fullrank-client in Chromium, on a page of another origin than the service."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Error, Page

from fullrank.events.log import EventLog
from tests.api.support import KEY
from tests.javascript.conftest import ROOT, Service, wait_until

pytestmark = pytest.mark.browser

CLIENT = "/clients/javascript/client/dist/index.js"
MAX_BYTES = 6_000


@pytest.fixture
def run(visit: Callable[..., Page], service: Service) -> Callable[..., Any]:
    """Run the body of an async function with `client` and the module's other names."""
    page = visit("/tests/javascript/blank.html")

    def run(body: str, **options: Any) -> Any:
        asked = {"url": service.url, "model": "shop", **options}
        given = json.dumps({name: value for name, value in asked.items() if value is not None})
        return page.evaluate(
            f"""async () => {{
                const {{ FullrankClient, FullrankError, isAborted, browserId }} = await import("{CLIENT}");
                const client = new FullrankClient({given});
                {body}
            }}"""
        )

    return run


def test_it_stays_small() -> None:
    script = ROOT.joinpath(CLIENT[1:])
    if not script.exists():
        pytest.skip("make test-javascript builds clients/javascript and runs these tests")
    assert len(gzip.compress(script.read_bytes())) <= MAX_BYTES


@pytest.mark.parametrize(
    ("package", "script"),
    [
        ("client", "index.js"),
        ("instantsearch", "index.js"),
        ("element", "fullrank-search.js"),
    ],
)
def test_the_sizes_that_pages_tell_are_those_of_the_build(package: str, script: str) -> None:
    folder = ROOT / "clients/javascript" / package
    if not (folder / "dist" / script).exists():
        pytest.skip("make test-javascript builds clients/javascript and runs these tests")
    name = json.loads((folder / "package.json").read_text())["name"]
    [row] = re.findall(
        rf"^\| \[`{name}`\].*$", (ROOT / "docs/guides/connect/javascript.md").read_text(), re.M
    )
    size = len(gzip.compress((folder / "dist" / script).read_bytes(), 6)) / 1000
    told = re.findall(r"([\d.]+) kB", row + (folder / "README.md").read_text())
    assert told
    assert [float(one) for one in told] == pytest.approx([size] * len(told), abs=0.06)


def test_searches_and_completions_are_those_of_the_service(
    run: Callable[..., Any], service: Service
) -> None:
    body = {"query": "wool hat", "limit": 3, "filter": {"price": {"lt": 30}}, "facets": ["brand"]}
    # Completions are counted in the background.
    wait_until(lambda: bool(run("return await client.complete('ra')")))
    found = run(
        f"""
        const found = await client.search({json.dumps(body)});
        const [first, second] = await client.searchBatch([{{ query: "tent" }}, {{ query: "stove", limit: 2 }}]);
        return [found, first, second, await client.complete("ra")];
        """
    )
    same = httpx.post(f"{service.url}/v1/search", json={**body, "model": "shop"}).json()
    assert [found[0][name] for name in ("hits", "facets", "total")] == [
        same[name] for name in ("hits", "facets", "total")
    ]
    assert [len(reply["hits"]) for reply in found[1:3]] == [8, 2]
    assert {"text": "rain", "kind": "word"} in found[3]
    asked = f"return await client.search({json.dumps(body)})"
    of_collection = run(asked, model=None, collection="shop")
    assert of_collection["hits"] == same["hits"]
    with pytest.raises(Error, match="404"):
        run(asked, model=None, collection="no shop")


def test_clicks_and_impressions_arrive_once(run: Callable[..., Any], service: Service) -> None:
    query_id, ids, reply = run(
        """
        const { query_id, hits } = await client.search({ query: "down jacket", limit: 3 });
        const ids = hits.map(({ id }) => id);
        await client.impressions(query_id, ids);
        return [query_id, ids, await client.click(query_id, ids[1])];
        """,
        client_id="anna",
        application="test",
    )
    assert (reply["kept"], reply["dropped_fields"]) == (1, 0)
    events = [
        event
        for event in EventLog(service.events).events()
        if event.texts.get("query_id") == query_id
    ]
    assert [(event.action, event.object_id) for event in events] == [
        *(("impression", id) for id in ids),
        ("click", ids[1]),
    ]
    log = EventLog(service.events)
    wait_until(lambda: any(served.query_id == query_id for served in log.lists()))
    (served,) = [one for one in log.lists() if one.query_id == query_id]
    assert served.person == events[-1].person is not None
    assert {event.texts["application"] for event in events} == {"test"}


def test_an_error_has_the_problem_of_the_service(run: Callable[..., Any]) -> None:
    found = run(
        """
        try { await client.search({ query: "hat", filter: { price: "cheap" } }); }
        catch (error) { return [error instanceof FullrankError, error.message, error.status, error.problem]; }
        """
    )
    assert found[:3] == [True, "422: filter.price: this field has numbers, not text", 422]
    assert found[3]["type"] == "urn:fullrank:problem:invalid"
    assert found[3]["errors"] == [
        {"field": "filter.price", "reason": "this field has numbers, not text"}
    ]


@pytest.mark.parametrize(
    ("key", "outcome"), [(KEY, 1), ("fr_x", "401: Unknown or expired API key.")]
)
def test_a_key_is_sent(run: Callable[..., Any], key: str, outcome: object) -> None:
    body = """
        try { return (await client.search({ query: "hat", limit: 1 })).hits.length; }
        catch (error) { return error.message; }
        """
    assert run(body, key=key) == outcome


@pytest.mark.parametrize(
    ("fetched", "message", "retry_after"),
    [
        ("() => Promise.reject(new TypeError('x'))", "FULLRANK_CORS_ORIGINS", None),
        ("() => new Promise((_, fail) => init.signal.onabort = fail)", "within 50 ms", None),
        ("() => new Response('<html>', {status: 200})", "did not answer with JSON", None),
        ("() => new Response('bad gateway', {status: 502})", "502: bad gateway", None),
        (
            "() => new Response('{\"detail\": \"full\"}', {status: 503, headers: {'Retry-After': '2'}})",
            "503: full",
            2,
        ),
    ],
)
def test_other_failures_say_what_to_do(
    run: Callable[..., Any], fetched: str, message: str, retry_after: int | None
) -> None:
    found = run(
        f"""
        const fetched = async (_, init) => ({fetched})();
        const client2 = new FullrankClient({{ ...client.options, timeoutMs: 50, fetch: fetched }});
        try {{ await client2.search({{ query: "hat" }}); }}
        catch (error) {{ return [error instanceof FullrankError, error.message, error.retryAfter ?? null]; }}
        """
    )
    assert found[0] is True
    assert message in found[1]
    assert found[2] == retry_after


def test_a_newer_call_of_a_group_aborts_the_one_before(run: Callable[..., Any]) -> None:
    outcomes = run(
        """
        const controller = new AbortController();
        const calls = [
            client.search({ query: "tent" }, { group: "box" }),
            client.search({ query: "hat" }, { group: "other" }),
            client.search({ query: "boots" }, { group: "box" }),
            client.search({ query: "stove" }, { signal: controller.signal }),
        ];
        controller.abort();
        const ends = await Promise.allSettled(calls);
        return ends.map(({ reason, value }) => reason ? isAborted(reason) : value.hits.length);
        """
    )
    assert outcomes == [True, 8, 10, True]


def test_a_browser_keeps_its_id(run: Callable[..., Any]) -> None:
    first, second = run("return [browserId(), browserId()];")
    assert first == second
    assert len(first) == 32
