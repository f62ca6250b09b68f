"""Every request that docs/api.md shows is answered, and the replies that it shows have the fields of real ones."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank.storage.documents import Document
from tests.api.support import AUTH, at, make_bundle, running

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
_JSON = json.JSONDecoder()
_SPOKEN = re.compile(r"(GET|POST|PUT|DELETE|PATCH) (/v1/\S+)\s*(.*)")


@dataclass
class Example:
    """A request of the page, and the reply that is shown for it."""

    method: str
    path: str
    body: Any = None
    params: dict[str, str] = field(default_factory=dict)
    reply: Any = None


def blocks() -> Iterator[list[str]]:
    """Yield the indented blocks of the page."""
    block: list[str] = []
    for line in [*PAGE.read_text("utf-8").splitlines(), ""]:
        if line.startswith("    "):
            block.append(line[4:])
        elif block:
            yield block
            block = []


def objects(text: str) -> list[Any]:
    """Return the JSON objects that a text is made of; none if it is anything else."""
    found, place = [], 0
    text = text.strip()
    while place < len(text):
        try:
            value, place = _JSON.raw_decode(text, place)
        except ValueError:
            return []
        found.append(value)
        place += len(text[place:]) - len(text[place:].lstrip())
    return found


def of_curl(command: str) -> Example:
    """Read a curl command."""
    words = shlex.split(command.replace("$KEY", "key"))[1:]
    found = Example("GET", "")
    while words:
        word = words.pop(0)
        if word == "-X":
            found.method = words.pop(0)
        elif word == "-H":
            words.pop(0)
        elif word == "-d":
            found.body = json.loads(words.pop(0))
            found.method = "POST" if found.method == "GET" else found.method
        elif word == "--data-urlencode":
            name, _, value = words.pop(0).partition("=")
            found.params[name] = value
        elif not word.startswith("-"):
            found.path = word.removeprefix("localhost:8000")
    return found


def examples() -> list[Example]:
    """Return all requests of the page, in order."""
    found: list[Example] = []
    for block in blocks():
        text = "\n".join(block)
        if text.startswith("curl"):
            commands = re.split(r"\n(?=curl)", text.replace("\\\n", " "))
            found += map(of_curl, commands)
        elif spoken := _SPOKEN.match(text):
            method, path, rest = spoken.groups()
            asked = objects(rest.partition("→")[0])
            found.append(Example(method, path, asked[0] if asked else None))
            if "ndjson" in rest:
                found[-1].body = ""
        elif text.startswith('{"_id"'):
            lines = [_JSON.raw_decode(line) for line in block]
            found[-1].body = "".join(json.dumps(value) + "\n" for value, _ in lines)
            found[-1].reply = [
                json.loads(line[end:].replace("→", ""))
                for line, (_, end) in zip(block, lines, strict=True)
            ]
        elif all("query" in one for one in objects(text)) and objects(text):
            found += [Example("POST", "/v1/search", one) for one in objects(text)]
        elif any("placements" in one and "page" in one for one in objects(text)):
            found.append(Example("POST", "/v1/match", objects(text)[0]))
        elif (
            found
            and len(objects(text)) == 1
            and {"model", "generation", "id"} & {*objects(text)[0]}
        ):
            found[-1].reply = objects(text)[0]
    return found


CORPUS = [
    Document("common/scp", {"title": "scp", "text": "Copy files to a remote host over ssh"}),
    Document("common/rcp", {"title": "rcp", "text": "Copy files to another host"}),
    *(
        Document(
            f"a{number}",
            {
                "title": f"tv {number} boots",
                "text": f"television boots mail client rename copy coffee {number}",
                "section": ("mail", "net")[number % 2],
                "year": 1990 + number,
                "published": f"2026-10-{number + 1:02d}T00:00:00Z",
                "stars": number,
                "price": number * 1.5,
                "brand": ("acme", "polar")[number % 2],
                "platform": "linux",
                "language": "en",
                "min_age": number,
                "in_stock": True,
            },
        )
        for number in range(20)
    ),
]


def with_versions(body: Any, version: str) -> Any:
    """Return a body with a version that exists in place of the page's."""
    text = re.sub(r"tldr-\d{8}t\d{6}z-[0-9a-f]{8}", version, json.dumps(body))
    return json.loads(text)


async def answered(client: httpx.AsyncClient, example: Example, version: str) -> httpx.Response:
    headers, content = dict(AUTH), None
    if isinstance(example.body, str):
        headers["Content-Type"], content = "application/x-ndjson", example.body
    elif example.body is not None:
        headers["Content-Type"] = "application/json"
        content = json.dumps(with_versions(example.body, version))
    return await client.request(
        example.method,
        example.path,
        params=example.params or None,
        headers=headers,
        content=content,
    )


async def test_every_example_of_the_page_is_answered(tmp_path: Path) -> None:
    make_bundle(tmp_path, "ads", CORPUS)
    older = make_bundle(tmp_path, "shop", CORPUS, created=at(1))
    newer = make_bundle(tmp_path, "shop", CORPUS, created=at(2), n_dense=4)
    found = examples()
    assert len(found) > 20
    async with running(tmp_path) as client:
        for example in found:
            # The candidate of an experiment is not the version that serves.
            version = older if "experiments" in example.path else newer
            if example.method == "GET" and "decisions" in example.path:
                continue
            reply = await answered(client, example, version)
            assert reply.is_success, (example, reply.text)
            if isinstance(example.reply, dict):
                missing = example.reply.keys() ^ reply.json().keys()
                assert not missing, (example.path, missing)
            elif example.reply is not None:
                lines = [json.loads(line) for line in reply.text.splitlines()]
                statuses = [line["status"] for line in lines]
                assert statuses == [line["status"] for line in example.reply]
