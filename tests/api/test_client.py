"""The Python client against the service itself, and against what is no service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NotRequired, get_origin, get_type_hints

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import BaseModel

from fullrank.cli import main
from fullrank.client import Client, ServiceError, replies
from fullrank.client.replies import MatchOptions, SearchOptions
from service.app import create_app
from service.http import match_schemas, schemas
from service.http.match_schemas import MatchRequest
from service.http.schemas import SearchRequest
from tests.api.support import KEY, make_bundle, settings_for


class Bridge(httpx.BaseTransport):
    """Sends the requests of a synchronous client to an app in this process."""

    def __init__(self, portal: BlockingPortal, transport: httpx.ASGITransport) -> None:
        self._portal, self._transport = portal, transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._portal.call(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        sent = httpx.Request(
            request.method, request.url, headers=request.headers, content=request.content
        )
        reply = await self._transport.handle_async_request(sent)
        return httpx.Response(reply.status_code, headers=reply.headers, content=await reply.aread())


@contextmanager
def connected(root: Path) -> Iterator[Client]:
    """Give a client of a service over a folder of bundles."""
    app = create_app(settings_for(root))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
    ):
        transport = Bridge(portal, httpx.ASGITransport(app))
        with Client("http://service", key=KEY, transport=transport) as client:
            yield client


def test_each_call_gets_what_the_service_answers(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m", n_dense=4)
    with connected(tmp_path) as client:
        found = client.search("copy files", limit=2, facets=["section"], explain=True)
        assert found["hits"][0]["id"] in ("linux/cp", "linux/scp")
        assert len(found["hits"]) == 2
        assert found["facets"]["section"]["distinct"] == 1
        [first, second] = client.search_batch(
            [{"query": "copy files", "limit": 2}, {"query": "ssh"}]
        )
        assert [hit["id"] for hit in first["hits"]] == [hit["id"] for hit in found["hits"]]
        assert second["generation"] == found["generation"]
        near = client.similar("linux/cp", limit=3, fields=["title"], filter={"section": 1})
        assert {hit["id"] for hit in near["hits"]} == {"linux/mv", "linux/ssh"}
        page = {"title": "copy files", "text": "to a remote host"}
        match = client.match(page, [{"id": "top", "count": 2}, {"id": "side"}], blocked_ids=["ls"])
        assert [(place["id"], len(place["hits"])) for place in match["placements"]] == [
            ("top", 2),
            ("side", 1),
        ]
        assert client.together("linux/cp") == []
        assert isinstance(client.complete("cop", limit=3), list)


def test_documents_are_written_and_read(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m")
    with connected(tmp_path) as client:
        written = client.put("new/a b", {"title": "rsync", "text": "mirror files"})
        assert client.get("new/a b", min_seq=written["seq"])["title"] == "rsync"
        written = client.patch("new/a b", {"text": None, "stars": 3})
        assert client.get("new/a b", min_seq=written["seq"]) == {"title": "rsync", "stars": 3}
        verdicts = client.bulk([{"_id": "x", "title": "x"}, {"_id": "y", "title": 7}])
        assert [verdict["status"] for verdict in verdicts] == [200, 422]
        gone = client.delete("new/a b")
        with pytest.raises(ServiceError) as refused:
            client.get("new/a b", min_seq=gone["seq"])
        assert refused.value.status == 404
        shown = client.search("copy files")
        event = {
            "action_name": "click",
            "timestamp": "2030-01-01T00:00:00Z",
            "query_id": shown["query_id"],
            "event_attributes": {"object": {"object_id": "linux/cp"}},
        }
        assert client.report([event])["refused"] == 1  # it lies in the future


def test_refusals_name_the_field(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m")
    with connected(tmp_path) as client:
        with pytest.raises(ServiceError, match=r"body\.limit: .*greater") as refused:
            client.search("a", limit=0)
        assert refused.value.status == 422
        assert refused.value.kind.startswith("urn:fullrank:problem:")
        assert refused.value.errors[0]["field"] == "body.limit"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command in this process and return its exit code."""
    monkeypatch.setattr("sys.argv", ["fullrank", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    return code if isinstance(code, int) else int(code is not None)


def test_the_command_line_asks_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bundle(tmp_path / "bundles", "m", n_dense=4)
    search = ["search", "copy files", "--limit", "2", "--explain", "--json"]
    with connected(tmp_path / "bundles") as client:
        asked = []

        def opened(url: str, key: str | None) -> AbstractContextManager[Client]:
            asked.append((url, key))
            return nullcontext(client)

        monkeypatch.setattr("fullrank.client.Client", opened)
        assert run(monkeypatch, *search, "--url", "http://service", "--key", KEY) == 0
    of_service = json.loads(capsys.readouterr().out)
    assert asked == [("http://service", KEY)]
    assert run(monkeypatch, search[0], str(tmp_path / "bundles" / "m"), *search[1:]) == 0
    of_bundle = json.loads(capsys.readouterr().out)
    for name in ("total", "total_at_least", "certified", "reordered"):
        assert of_service[name] == of_bundle[name]
    for one, other in zip(of_service["hits"], of_bundle["hits"], strict=True):
        for name in ("id", "score", "dense", "lexical", "bias", "fields", "words"):
            assert one[name] == other[name]


def test_without_a_service_a_bundle_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(monkeypatch, "search", "copy files") == 2
    assert "expected BUNDLE TEXT, or --url URL TEXT" in capsys.readouterr().err
    assert run(monkeypatch, "search", "copy", "--url", "http://127.0.0.1:9") == 1
    assert capsys.readouterr().err.startswith("fullrank: http://127.0.0.1:9: ")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(502, text="<html>bad gateway</html>"), "answered 502"),
        (httpx.Response(500, json=["no", "problem"]), "answered 500"),
        (httpx.Response(200, text="<html>"), "no JSON"),
        (httpx.ConnectError("refused"), "refused"),
        (httpx.ReadTimeout(""), "ReadTimeout"),
    ],
)
def test_what_is_no_service_is_one_error(answer: httpx.Response | Exception, message: str) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    transport = httpx.MockTransport(reply)
    with (
        Client("http://proxy", transport=transport) as client,
        pytest.raises(ServiceError, match=message),
    ):
        client.search("a")


def test_options_are_the_fields_of_requests() -> None:
    assert SearchOptions.__annotations__.keys() == SearchRequest.model_fields.keys() - {"query"}
    missing = {"page", "placements"}
    assert MatchOptions.__annotations__.keys() == MatchRequest.model_fields.keys() - missing


@pytest.mark.parametrize(
    ("given", "answered"),
    [
        (replies.Hit, schemas.Hit),
        (replies.SearchReply, schemas.SearchReply),
        (replies.PlacedHit, match_schemas.PlacedHit),
        (replies.Placed, match_schemas.FilledPlacement),
        (replies.MatchReply, match_schemas.MatchReply),
        (replies.Written, schemas.WriteReply),
    ],
)
def test_replies_have_the_keys_of_the_service(given: Any, answered: type[BaseModel]) -> None:
    fields, hints = answered.model_fields, get_type_hints(given, include_extras=True)
    assert hints.keys() == fields.keys()
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    assert optional == {name for name in fields if not fields[name].is_required()}
