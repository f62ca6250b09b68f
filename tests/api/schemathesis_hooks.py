"""Hooks for Schemathesis: what it cannot know from the OpenAPI document.

Whether a filter, a facet, a sequence number or an idempotency key is valid depends on stored data. JSON Schema also
counts 10.0 and numbers of any length as integers. FULLRANK_FIT=1 replaces such values in requests that should be
accepted, so that each of them must be; without it they stay as generated.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

import schemathesis

FITTING = {"section": {"in": [1, 2]}}
# Sorting excludes boosts and diversity.
ORDERS = {
    "sort": [],
    "boost": [{"field": "section", "decay": {"origin": 1, "scale": 2.5}, "weight": -0.5}],
    "group_by": {"field": "section", "limit": 2},
}
COLLECTION = "/v1/collections/{name}/"
HIGHLIGHT = {"fields": ["text"], "words": 2, "pre": "<b>", "post": "</b>"}


@schemathesis.serializer("application/x-ndjson")
def as_lines(context: Any, value: Any) -> bytes:
    """Send bytes and text as they are, other values as one line of JSON."""
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "replace")


# The last write that was acknowledged.
written = {"seq": 0}


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    for seq in response.headers.get("x-seq", []):
        written["seq"] = max(written["seq"], int(seq))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Make what depends on stored data fit, where the request is meant to be accepted."""
    if (
        os.environ.get("FULLRANK_FIT") != "1"
        or not case.meta
        or not case.meta.generation.mode.is_positive
    ):
        return
    case.body = plain(case.body)
    body = case.body if isinstance(case.body, dict) else {}
    searches = body.get("searches", [])
    for asked in (body, *searches):
        for name in {"filter", "targeting"} & set(asked):
            asked[name] = FITTING
        asked.pop("facet_under", None)
        if "facets" in asked:
            asked["facets"] = ["section"]
        if isinstance(asked.get("highlight"), dict):
            asked["highlight"] = HIGHLIGHT
        if "cursor" in asked:
            # A cursor of another search, or one beside a limit of 0, an offset or another order, is refused.
            for name in ("limit", "offset", "sort", "group_by", "diversity", "mode"):
                asked.pop(name, None)
            asked["cursor"] = "*"
        if "facet_ranges" in asked:
            asked["facet_ranges"] = {"section": [{"from": 1, "to": 2.5}]}
        for name in ORDERS.keys() & asked.keys():
            asked[name] = ORDERS[name]
    path = case.path
    if path.startswith(COLLECTION):
        case.path_parameters["name"] = "learned"
        path = "/v1/" + path.removeprefix(COLLECTION)
    if case.method.upper() == "PUT" and path.startswith("/v1/rules/"):
        # Whether a rule can ever apply depends on several of its fields.
        case.body = {"filter": FITTING, "hide": ["a"]}
    if path == "/v1/match":
        # These exclude each other, and a domain has letters.
        for name in {"acat", "wseat", "badv", "user"} & set(body):
            del body[name]
        # No text is kept for it.
        body.get("page", {}).pop("url", None)
    for page in (body.get("page"), body if path == "/v1/pages" else None):
        if isinstance(page, dict):  # text that is blank is no text
            page["text"] = "copy files"
    if path == "/v1/pages":
        body["url"] = "https://news.example/a"
    query = case.query = plain(case.query or {})
    if "filter" in query:
        query["filter"] = json.dumps(FITTING)
    if "facets" in query:
        query["facets"] = ["section"]
    if "highlight" in query:
        query["highlight"] = ["text"]
    for place in (body, query, *searches):
        if "min_seq" in place:
            place["min_seq"] = 0
    if case.method.upper() == "GET" and path.startswith("/v1/documents/"):
        # Who has written and asks for it must have it now: what was deleted is gone.
        case.query = {**query, "min_seq": written["seq"]}
    for name in [name for name in case.headers or {} if name.lower() == "idempotency-key"]:
        case.headers[name] = uuid.uuid4().hex


def plain(value: Any) -> Any:
    """The value, with whole numbers written as such and none of more than 64 bits."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return plain(int(value))
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return 0
    return value
