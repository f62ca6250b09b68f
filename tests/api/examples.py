"""The examples of docs/api.md: requests, and the replies that the page shows for them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.docs import comparing
from tests.docs.comparing import read_json

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
_JSON = json.JSONDecoder()
_SPOKEN = re.compile(r"(GET|POST|PUT|DELETE|PATCH) (/v1/\S+)\s*(.*)", re.DOTALL)
_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
_INLINE = re.compile(r"`(GET) (/v1/[^\s`…]+\?[^\s`…]+)`")
_REPLY = re.compile(r"→\s*(\d{3})?")
# Values that depend on the run, or on documents that the page does not show.
PAGE_VARYING = comparing.VARYING | {
    *("id", "title", "total", "text", "workers", "collection", "active", "candidate", "kind"),
    *("count", "distinct", "snippet", "spans"),
}


@dataclass
class Example:
    """A request of the page.

    Attributes:
        reply: What is shown for it; None: nothing.
        fragment: A part of the reply that is shown, by the name of its field.
        status: Of the reply.
    """

    method: str
    path: str
    body: Any = None
    params: dict[str, str] = field(default_factory=dict)
    reply: Any = None
    fragment: dict[str, Any] = field(default_factory=dict)
    status: int = 200


def python_blocks() -> list[str]:
    return _PYTHON.findall(PAGE.read_text("utf-8"))


def examples() -> list[Example]:
    """Return all requests of the page, in order. Raises ValueError for a block of an unknown form."""
    found: list[Example] = []
    is_about_filters, block = False, list[str]()
    text = _PYTHON.sub("", PAGE.read_text("utf-8"))
    for line in [*text.splitlines(), ""]:
        if line.startswith("    "):
            block.append(line[4:])
            continue
        if block:
            _add("\n".join(block), found)
            block = []
        found += [Example(method, path) for method, path in _INLINE.findall(line)]
        if line.startswith("## "):
            is_about_filters = line == "## Filters"
        if is_about_filters:
            found += map(_filtered, _objects_in_code(line))
    return found


def _add(text: str, found: list[Example]) -> None:
    if text.startswith("curl"):
        found += map(of_curl, re.split(r"\n(?=curl)", text.replace("\\\n", " ")))
    elif text.startswith('{"_id"'):
        lines = [_JSON.raw_decode(line) for line in text.splitlines()]
        verdicts = [line[end:] for line, (_, end) in zip(text.splitlines(), lines, strict=True)]
        found[-1].body = "".join(json.dumps(value) + "\n" for value, _ in lines)
        found[-1].reply = [json.loads(line.replace("→", "")) for line in verdicts]
    elif spoken := _SPOKEN.match(text):
        method, path, rest = spoken.groups()
        if "application/x-ndjson" in rest:
            found.append(Example(method, path))
        else:
            found.append(_answered(Example(method, path), rest))
    elif text.startswith('"'):
        [fragment] = read_json("{" + text + "}")
        asking = (one for one in reversed(found) if fragment.keys() & {*(one.body or ())})
        next(asking, found[-1]).fragment = fragment
    elif "→" in text:
        for line in text.splitlines():
            found.append(_answered(Example("POST", "/v1/search"), line))
    else:
        for one in read_json(text):
            if "placements" in one and "page" in one:
                found.append(Example("POST", "/v1/match", one))
            elif "query" in one:
                found.append(Example("POST", "/v1/search", one))
            elif found[-1].reply is None:
                found[-1].reply = one
                found[-1].status = one.get("status", 200)
            else:
                raise ValueError(f"neither a request nor the reply of one: {text}")


def _answered(example: Example, text: str) -> Example:
    """Read the body of an example, and what stands after an arrow."""
    arrow = _REPLY.search(text)
    asked = read_json(text[: arrow.start()] if arrow else text)
    example.body = asked[0] if asked else None
    if arrow:
        example.status = int(arrow[1] or 200)
        [example.reply] = read_json(text[arrow.end() :])
    return example


def _filtered(condition: Any) -> Example:
    return Example("POST", "/v1/search", {"query": "mail client", "filter": condition})


def _objects_in_code(line: str) -> Iterator[Any]:
    """Yield the JSON objects that stand as code in a line, without those that name parts by letters."""
    for code in re.findall(r"`(\{[^`]*\})`", line):
        if not re.search(r"\bf\b", code):
            yield json.loads(code)


def of_curl(command: str) -> Example:
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
