"""Every example of docs/api.md runs, and the replies have the keys and fixed values of the page."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from fullrank.replies import SecondScore
from fullrank.storage.documents import Document
from fullrank_service.completion.routes import TogetherReply
from fullrank_service.models.swap import Swap
from tests.api.conftest import Root, copy_of
from tests.api.examples import PAGE_VARYING, Example, examples, python_blocks
from tests.api.support import AUTH, Client, at, make_bundle, running, served
from tests.docs.comparing import REST
from tests.docs.comparing import differences as all_differences

pytestmark = pytest.mark.anyio

CORPUS = [
    Document(
        "common/scp",
        {"title": "scp", "text": "Copy a file, or files, to another remote host over ssh"},
    ),
    Document("common/rcp", {"title": "coffee rcp", "text": "Copy files to another host"}),
    *(
        Document(
            f"a{number}",
            {
                "title": f"tv {number} boots",
                "text": f"television boots mail client rename copy coffee {number}",
                "section": ("mail", "net")[number % 2],
                "year": 1990 + number,
                "published": f"2026-10-{number % 28 + 1:02d}T00:00:00Z",
                "stars": number,
                "price": number * 1.5,
                "brand": ("acme", "polar")[number % 2],
                "platform": "linux",
                "language": "en",
                "min_age": number,
                "in_stock": True,
                "category": "Cameras > Digital",
                "shop": {"lat": 52.5, "lon": 13.4},
            },
        )
        for number in range(30)
    ),
]


def prepared(body: Any, version: str, cursor: str | None) -> Any:
    """Return a body with a version, a cursor and times that exist in place of the page's."""
    text = re.sub(r"tldr-\d{8}t\d{6}z-[0-9a-f]{8}", version, json.dumps(body))
    text = re.sub(r'"cursor": "WyJ[^"]*"', f'"cursor": "{cursor}"', text)
    text = re.sub(r'"timestamp": "[^"]*"', f'"timestamp": "{datetime.now(UTC).isoformat()}"', text)
    return json.loads(re.sub(r'"(from|until)": "2026', r'"\1": "2099', text))


async def answered(
    client: Client, example: Example, version: str, cursor: str | None
) -> httpx.Response:
    headers, content = dict(AUTH), None
    if isinstance(example.body, str):
        headers["Content-Type"], content = "application/x-ndjson", example.body
    elif example.body is not None:
        headers["Content-Type"] = "application/json"
        content = json.dumps(prepared(example.body, version, cursor))
    return await client.request(
        example.method,
        example.path,
        params=example.params or None,
        headers=headers,
        content=content,
    )


def differences(shown: Any, real: Any, place: str = "reply") -> Iterator[str]:
    return all_differences(shown, real, place, PAGE_VARYING)


def check(example: Example, reply: Any) -> None:
    """Compare a reply with what the page shows of it."""
    shown = example.reply
    if example.status == 422 and "field" in (shown or ()):
        assert reply["errors"] == [shown]
    elif (
        "/together" in example.path
    ):  # a list of clicks of several people, which this service does not have
        TogetherReply.model_validate(shown)
        assert reply.keys() == shown.keys()
    elif shown is not None:
        assert list(differences(shown, reply)) == [], example
    for name, part in example.fragment.items():
        if (
            name == "second_stage"
        ):  # of a bundle that has one; tests/api/test_second_stage.py compares its values
            features = [one for one in part["features"] if one != REST]
            TypeAdapter(SecondScore).validate_python({**part, "features": features})
        else:
            real = reply[name] if name in reply else reply["hits"][0][name]
            assert list(differences(part, real, name)) == [], example


async def test_every_example_of_the_page_is_answered(tmp_path: Path) -> None:
    make_bundle(tmp_path, "ads", CORPUS)
    older = make_bundle(tmp_path, "shop", CORPUS, created=at(1))
    newer = make_bundle(tmp_path, "shop", CORPUS, created=at(2), n_dense=4)
    found, cursor = examples(), None
    assert len(found) >= 40
    async with running(tmp_path) as client:
        async with asyncio.timeout(30):  # titles are read in the background
            while not (await client.get("/v1/complete?prefix=cof")).json()["completions"]:
                await asyncio.sleep(0.02)
        for example in found:
            # The candidate of an experiment is not the version that serves.
            version = older if "experiments" in example.path else newer
            response = await answered(client, example, version, cursor)
            assert response.status_code == example.status, (example, response.text)
            if isinstance(example.body, str):
                reply: Any = [json.loads(line) for line in response.text.splitlines()]
            else:
                reply = response.json()
                cursor = reply.get("cursor")
            check(example, reply)


async def test_each_difference_of_a_reply_is_found() -> None:
    shown = {"hits": [{"id": "a", "rule": None}], "certified": True, "score": 1.5}
    same = {"hits": [{"id": "b", "rule": None}] * 2, "certified": True, "score": 2}
    assert list(differences(shown, same)) == []
    for changed in (
        same | {"certified": False},
        same | {"score": "2"},
        same | {"more": 1},
        same | {"hits": []},
        same | {"hits": [{"id": "b"}]},
        same | {"hits": [{"id": "b", "rule": "r"}]},
        {"certified": True, "score": 1.5},
    ):
        assert len(list(differences(shown, changed))) == 1
    assert list(differences({"score": 1, REST: None}, same)) == []


@pytest.fixture(scope="module")
def url(two_models: Root, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own process, with an experiment."""
    root = copy_of(two_models, tmp_path_factory.mktemp("documented"))
    swap = Swap(root.path)
    swap.activate(root.learned)
    swap.start_experiment(root.bm25, 0.2, 14)
    with served(root.path) as address:
        yield address


@pytest.mark.sweep
def test_the_python_client_of_the_page_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = python_blocks()
    exec(code.replace("http://localhost:8000", url), {})
    assert capsys.readouterr().out.splitlines() == [
        "rsync",
        "422 [{'field': 'body.limit', 'reason': 'Input should be greater than or equal to 0'}]",
    ]
