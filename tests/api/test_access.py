"""Who may call what, before anything of the request is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from fullrank_service.app import create_app
from fullrank_service.http.keys import SCOPES, create_key, revoke_key
from fullrank_service.models.routes import ModelsReply
from tests.api.conftest import Root
from tests.api.support import AUTH, KEY, Client, client_of, running, settings_for
from tests.api.test_errors import check
from tests.unit.cli.running import Outcome, Run

pytestmark = pytest.mark.anyio
QUERY = {"query": "copy"}
OPEN_PATHS = {"/livez", "/readyz", "/metrics"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_only_open_routes_answer_without_a_key(root: Root) -> None:
    """Every operation of the document says 401 where nobody may do anything, and documents it."""
    async with running(root.path, anonymous="none") as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        for path, operations in paths.items():
            for method, operation in operations.items():
                address = path.replace("{", "").replace("}", "")
                answer = await client.request(method, address)
                assert (answer.status_code == 401) == (path not in OPEN_PATHS), (method, path)
                assert ("security" in operation) == (path not in OPEN_PATHS)
                assert ("401" in operation["responses"]) == ("security" in operation)
    assert needed("POST", "/v1/search", paths) == "search"
    assert needed("PUT", "/v1/models/aliases/default", paths) == "admin"


def needed(method: str, path: str, paths: Any) -> str:
    [requirement] = paths[path][method.lower()]["security"]
    [[scope]] = requirement.values()
    assert scope in SCOPES
    return str(scope)


async def test_only_admin_sees_processes_and_paths_of_the_server(root: Root) -> None:
    """A search key, which may be in a page, learns names, versions and which one is active."""
    (root.path / "bm25" / root.bm25 / "golden.jsonl").unlink()
    async with running(root.path, default_model="learned") as client:
        refused = await client.post(f"/v1/models/{root.bm25}:load", headers=AUTH)
        assert refused.status_code == 409
        answers = [await client.get("/v1/models", headers=headers) for headers in (AUTH, {})]
    own, public = (ModelsReply.model_validate(answer.json()) for answer in answers)
    assert [str(root.path) in answer.text for answer in answers] == [True, False]
    assert own.workers is not None
    assert own.workers[0].pid == os.getpid()
    assert public.workers is None
    assert (public.aliases, public.converged) == (own.aliases, own.converged)
    for theirs, model in zip(public.models, own.models, strict=True):
        assert model.card is not None
        assert theirs == model.model_copy(update={"card": None, "failure": theirs.failure})
        assert (theirs.failure is None) == (model.failure is None)


@pytest.mark.parametrize(
    "headers", [{}, bearer("wrong"), bearer(KEY[:-1]), {"Authorization": "Basic eDp5"}]
)
async def test_admin_always_needs_a_key(
    reader: Client, two_models: Root, headers: dict[str, str]
) -> None:
    for method, path, body in (
        ("POST", f"/v1/models/{two_models.bm25}:load", None),
        ("PUT", "/v1/models/aliases/default", {"version": two_models.bm25}),
    ):
        response = await reader.request(method, path, json=body, headers=headers)
        check(response, 401, "unauthorized")
        assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_a_key_permits_only_its_scopes(root: Root, tmp_path: Path) -> None:
    keys = tmp_path / "some-keys.json"
    tokens = {scope: create_key(keys, [scope], scope)[1] for scope in SCOPES}
    load = f"/v1/models/{root.bm25}:load"
    async with running(root.path, keys=keys, anonymous="none") as client:
        for scope, token in tokens.items():
            asked = await client.post("/v1/search", json=QUERY, headers=bearer(token))
            loaded = await client.post(load, headers=bearer(token))
            assert asked.status_code == (200 if scope in ("search", "admin") else 403)
            assert loaded.status_code == (200 if scope == "admin" else 403)
            if scope == "search":
                assert "'admin'" in check(loaded, 403, "forbidden")["detail"]
        check(await client.post("/v1/search", json=QUERY), 401, "unauthorized")
        for path in ("/livez", "/readyz", "/metrics", "/"):
            assert (await client.get(path)).status_code == 200


async def test_an_unknown_key_is_refused_even_where_no_key_is_needed(reader: Client) -> None:
    assert (await reader.post("/v1/search", json=QUERY)).status_code == 200
    wrong = await reader.post("/v1/search", json=QUERY, headers=bearer("fr_test_old"))
    check(wrong, 401, "unauthorized")
    # Somebody else's scheme, such as that of a proxy in front, is no key.
    basic = {"Authorization": "Basic eDp5"}
    assert (await reader.post("/v1/search", json=QUERY, headers=basic)).status_code == 200


async def test_keys_are_created_and_revoked_without_a_restart(root: Root, tmp_path: Path) -> None:
    """Searches are open on loopback until the first key is made, writes never; deleting the file opens nothing."""
    keys = tmp_path / "some-keys.json"
    app = create_app(settings_for(root.path, keys=keys, anonymous=None))
    async with client_of(app) as client:
        ring = app.state.shared.access._keys
        ring._check_s = ring._next = 0

        async def statuses(**headers: str) -> tuple[int, int]:
            asked = await client.post("/v1/search", json=QUERY, headers=headers)
            loaded = await client.post(f"/v1/models/{root.bm25}:load", headers=headers)
            return asked.status_code, loaded.status_code

        assert await statuses() == (200, 401)
        check(await client.put("/v1/documents/a", json={"title": "a"}), 401, "unauthorized")
        check(await client.delete("/v1/documents/a"), 401, "unauthorized")
        _, first = create_key(keys, ["search"], "first")
        assert await statuses() == (401, 401)
        assert await statuses(**bearer(first)) == (200, 403)
        _, second = create_key(keys, ["search", "admin"], "second")
        revoke_key(keys, "first")
        assert await statuses(**bearer(first)) == (401, 401)
        assert await statuses(**bearer(second)) == (200, 200)
        revoke_key(keys, "second")
        assert await statuses() == (401, 401)
        keys.unlink()
        assert await statuses() == (401, 401)


async def test_the_body_of_an_unauthorized_request_is_not_read(root: Root) -> None:
    read = 0

    async def body() -> Any:
        nonlocal read
        read += 1
        yield b"{"

    async with running(root.path, anonymous="none") as client:
        check(await client.post("/v1/search", content=body()), 401, "unauthorized")
    app = create_app(settings_for(root.path, anonymous="none"))
    async with app.router.lifespan_context(app):
        sent: list[Any] = []

        async def receive() -> Any:
            raise AssertionError("the body was read")

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/search",
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"9")],
            "query_string": b"",
        }
        await app(scope, receive, send)
    assert sent[0]["status"] == 401


async def test_secrets_appear_in_no_log_line_and_no_response(
    root: Root, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("DEBUG")

    broken = Mock(side_effect=ZeroDivisionError)
    async with running(root.path) as client:
        answers = [
            await client.post("/v1/search", json=QUERY, headers=AUTH),
            await client.post("/v1/search", json=QUERY, headers=bearer(KEY + "x")),
            await client.put("/v1/models/aliases/default", json={"version": "a"}, headers=AUTH),
        ]
        monkeypatch.setattr("fullrank_service.search.ranking.rank_view", broken)
        answers.append(await client.post("/v1/search", json=QUERY, headers=AUTH))
    assert [answer.status_code for answer in answers] == [200, 401, 404, 500]
    output = caplog.text + "".join(answer.text for answer in answers)
    assert "k" * 20 not in output


async def test_the_openapi_document_can_be_disabled(root: Root) -> None:
    async with running(root.path) as client:
        assert (await client.get("/openapi.json")).status_code == 200
    async with running(root.path, docs=False) as client:
        check(await client.get("/openapi.json"), 404, "not-found")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"FULLRANK_HOST": "0.0.0.0"}, "refusing to listen beyond this machine"),
        ({"FULLRANK_ANONYMOUS": "admin"}, "admin always needs an API key"),
        ({"FULLRANK_KEYS": "/dev/null"}, "every user can write it"),
    ],
)
def test_the_server_refuses_to_start_unprotected(
    refusal: Callable[[], Outcome], tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    os.environ.update({"FULLRANK_BUNDLES": str(tmp_path), **settings})
    done = refusal()
    assert done.code == 1
    assert reason in done.err
    assert done.err.count("\n") == 1


def test_the_command_creates_lists_and_revokes_keys(run: Run, tmp_path: Path) -> None:
    os.environ["FULLRANK_BUNDLES"] = str(tmp_path)
    made = run("keys", "create", "--scope", "search", "--scope", "events", "--id", "shop")
    token = made.out.strip()
    assert made.code == 0, made.err
    assert token not in made.err
    listed = run("keys", "list", "--json").out
    assert token not in listed
    [entry] = json.loads(listed)
    assert (entry["id"], entry["scopes"], entry["expired"]) == ("shop", ["events", "search"], False)
    assert "shop" in run("keys", "list").out
    refused = run("keys", "create", "--scope", "all")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert run("keys", "revoke", "shop").code == 0
    assert json.loads(run("keys", "list", "--json").out) == []
    assert run("keys", "revoke", "shop").code == 1


@pytest.mark.parametrize(
    ("changes", "is_checked"),
    [
        ({"anonymous": None, "keys": Path("none.json")}, True),
        ({}, True),  # they may write documents
        ({"allowed_hosts": "shop.example"}, True),
        ({"anonymous": None}, False),  # there are keys
        ({"anonymous": "search,events"}, False),
        ({"host": "0.0.0.0"}, False),
        ({"allowed_hosts": "*"}, False),
    ],
)
async def test_a_name_that_points_at_this_machine_does_not_let_its_pages_in(
    root: Root, changes: dict[str, Any], is_checked: bool
) -> None:
    async with running(root.path, **{"allowed_hosts": None, **changes}) as client:
        named = {"Host": "rebound.example:8000"}
        # Where nothing is checked, making the OpenAPI document would take longer than all else.
        document = ["/openapi.json"] if is_checked else []
        for path in ("/", "/metrics", *document, "/v1/models", "/nowhere"):
            answer = await client.get(path, headers=named)
            assert (answer.status_code == 421) == is_checked, path
        assert (await client.get("/livez", headers=named)).status_code == 200
        for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "10.0.0.5:8000"):
            assert (await client.get("/metrics", headers={"Host": host})).status_code == 200
        if is_checked:
            problem = check(
                await client.post("/v1/search", json=QUERY, headers=named), 421, "misdirected"
            )
            assert "FULLRANK_ALLOWED_HOSTS" in problem["detail"]
            shop = await client.get("/metrics", headers={"Host": "Shop.Example"})
            assert (shop.status_code == 200) == ("allowed_hosts" in changes)


async def test_pages_of_other_origins_change_nothing(root: Root) -> None:
    """Also by requests that need no preflight, such as the plain text of navigator.sendBeacon."""
    event = {
        "eventType": "view",
        "eventName": "seen",
        "index": "shop",
        "userToken": "anna",
        "objectIDs": ["ls"],
    }
    shop, plain = "https://shop.example", {"Content-Type": "text/plain"}
    async with running(root.path, cors_origins=shop) as client:

        async def report(**headers: str) -> httpx.Response:
            content = json.dumps({"events": [event]})
            asked = {**plain, "Host": "search.example", **headers}
            return await client.post("/v1/insights/1/events", content=content, headers=asked)

        for origin in ("https://evil.example", "null", "https://search.example.evil.example"):
            problem = check(await report(Origin=origin), 403, "other-origin")
            assert "FULLRANK_CORS_ORIGINS" in problem["detail"]
        for headers in ({}, {"Origin": shop}, {"Origin": "https://search.example"}):
            assert (await report(**headers)).status_code == 200
        # A proxy may have replaced the name of the host.
        own = {"Origin": "https://www.example", "Sec-Fetch-Site": "same-origin"}
        assert (await report(**own)).status_code == 200
        elsewhere = {"Origin": "https://evil.example"}
        check(await client.put("/v1/documents/x", json={}, headers=elsewhere), 403, "other-origin")
        assert (await client.get("/v1/models", headers=elsewhere)).status_code == 200


async def test_what_is_stored_can_be_read_by_the_own_user_only(root: Root) -> None:
    app = create_app(settings_for(root.path))
    before = os.umask(0)
    try:
        async with client_of(app) as client:
            await client.put("/v1/documents/a", json={"title": "copy"})
            await client.put("/v1/rules/r", json={"query": {"contains": "x"}, "hide": ["a"]})
            await client.put("/v1/pages", json={"url": "https://a.example", "text": "copy"})
            await client.post("/v1/search", json={**QUERY, "user_id": "ann"})
            await client.delete("/v1/events/users/ann", headers=AUTH)
        create_key(root.path / "keys.json", ["search"])
    finally:
        os.umask(before)
    stored = [*root.path.glob("*.sqlite*"), *root.path.glob(".events*"), *root.path.glob("*keys*")]
    names = {path.name for path in stored}
    assert {"documents.sqlite", "pages.sqlite", ".events"} <= names
    assert {".events.key", "keys.json"} <= names
    assert [path.name for path in stored if path.stat().st_mode & 0o077] == []
