"""The Python client against the service itself, and against what is no service."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank.cli import main
from fullrank.client import Client, ServiceError
from fullrank.replies import MatchOptions, RuleFields, SearchOptions, SimilarOptions
from fullrank_service.ads.schemas import MatchRequest
from fullrank_service.app import create_app
from fullrank_service.rules import routes as rule_schemas
from fullrank_service.search.schemas import SearchRequest, SimilarQuery
from tests.api.support import KEY, at, bridged, make_bundle, settings_for

OPENAPI = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"


@contextmanager
def connected(root: Path) -> Iterator[Client]:
    """Give a client of a service over a folder of bundles."""
    with (
        bridged(create_app(settings_for(root))) as transport,
        Client("http://service", key=KEY, transport=transport) as client,
    ):
        yield client


def test_each_call_gets_what_the_service_answers(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m", n_dense=4)
    with connected(tmp_path) as client:
        found = client.search("copy files", limit=2, facets=["section"], explain=True)
        assert found["hits"][0]["id"] in ("linux/cp", "linux/scp")
        assert len(found["hits"]) == 2
        assert found["facets"]["section"]["distinct"] == 1
        assert client.search("remote ssh", match="all")["total"] == 2
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


def test_a_client_of_a_collection_stays_in_it(tmp_path: Path) -> None:
    other = make_bundle(tmp_path, "other")
    make_bundle(tmp_path, "m", created=at(1))
    with (
        bridged(create_app(settings_for(tmp_path))) as transport,
        Client("http://service", key=KEY, transport=transport, collection="other") as client,
    ):
        assert client.search("copy files")["model"] == other
        assert client.put("new", {"title": "rsync"})["collection"] == "other"
        assert client.put_page("https://news.example/a", "copy files")


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


def test_pages_are_read_to_their_end(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m")
    with connected(tmp_path) as client:
        whole = [hit["id"] for hit in client.search("files", limit=100)["hits"]]
        assert len(whole) > 4
        found = client.search_all("files", limit=2, fields=["title"])
        first = next(found)
        client.delete(whole[-1])
        last = client.put("new", {"title": "files", "text": "files"})
        assert "new" in [hit["id"] for hit in client.search("files", min_seq=last["seq"])["hits"]]
        assert [first["id"], *(hit["id"] for hit in found)] == whole[:-1]


def test_pages_of_text_and_rules_are_kept(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m")
    with connected(tmp_path) as client:
        url = client.put_page("https://news.example/a#b", "copy files", keywords=["ssh"])
        assert url == "https://news.example/a"
        [placement] = client.match({"url": url}, [{"id": "top"}])["placements"]
        assert len(placement["hits"]) == 1
        rule = client.put_rule("r", {"hide": ["linux/cp"], "from": "2020-01-01T00:00:00Z"})
        assert rule == client.get_rule("r")
        assert [one["id"] for one in client.rules()] == ["r"]
        assert client.rules(after="r") == []
        deadline = time.monotonic() + 10
        while client.search("copy files")["rules"] != ["r"]:
            assert time.monotonic() < deadline
        assert "linux/cp" not in [hit["id"] for hit in client.search("copy files")["hits"]]
        client.delete_rule("r")
        with pytest.raises(ServiceError) as refused:
            client.get_rule("r")
        assert refused.value.status == 404


def test_a_write_with_a_key_is_stored_once(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m")
    with connected(tmp_path) as client:
        written = [client.put("a", {"title": "a"}, idempotency_key="k") for _ in range(2)]
        written += [client.patch("a", {"text": "b"}, idempotency_key="l") for _ in range(2)]
        written += [client.delete("a", idempotency_key="m") for _ in range(2)]
        assert [one["seq"] for one in written] == [1, 1, 2, 2, 3, 3]
        verdicts = [client.bulk([{"_id": "b", "title": "b"}], idempotency_key="n") for _ in "ab"]
        assert verdicts[0] == verdicts[1]
        assert verdicts[0][0]["seq"] == 4


def test_there_is_a_call_for_each_route_of_applications() -> None:
    asked = set[str]()

    def reply(request: httpx.Request) -> httpx.Response:
        asked.add(f"{request.method} {request.url.path}")
        empty: dict[str, Any] = {"hits": [], "cursor": None, "answers": [], "completions": []}
        return httpx.Response(200, json={**empty, "rules": [], "fields": {}, "url": "u"})

    with Client("http://service", transport=httpx.MockTransport(reply)) as client:
        client.search("a")
        client.search_batch([])
        client.similar("d")
        client.match({}, [])
        client.put_page("u", "t")
        client.complete("a")
        client.together("d")
        client.models()
        client.get("d")
        client.put("d", {})
        client.patch("d", {})
        client.delete("d")
        client.bulk([])
        client.rules()
        client.get_rule("d")
        client.put_rule("d", {})
        client.delete_rule("d")
        client.report([])
    # Links and the shapes of other clients' events are for those; operators use the command line.
    others = {"GET /v1/search", "POST /v1/ubi/ubi_events", "POST /v1/ubi/ubi_queries"}
    others.add("POST /v1/insights/1/events")
    routes = {
        f"{method.upper()} {re.sub('{.*?}', 'd', path)}"
        for path, operations in json.loads(OPENAPI.read_text("utf-8"))["paths"].items()
        if "{name}" not in path
        for method, operation in operations.items()
        if operation.get("security", [{"key": ["admin"]}]) != [{"key": ["admin"]}]
    }
    assert asked == routes - others


def test_refusals_name_the_field(tmp_path: Path) -> None:
    make_bundle(tmp_path, "m")
    with connected(tmp_path) as client:
        with pytest.raises(ServiceError, match=r"body\.limit: .*greater") as refused:
            client.search("a", limit=-1)
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
    for name in ("total", "total_at_least", "certified", "reordered", "hits"):
        assert of_service[name] == of_bundle[name]


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
    assert SimilarOptions.__annotations__.keys() == SimilarQuery.model_fields.keys()
    rule = {field.alias or name for name, field in rule_schemas.RuleBody.model_fields.items()}
    assert RuleFields.__annotations__.keys() == rule
