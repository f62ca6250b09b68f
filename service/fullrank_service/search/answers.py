"""Answers of routes that rank: what they need, what is logged, what is sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fullrank.live import View
from fullrank.rules.rule import Rule
from fullrank_service.base.settings import Settings
from fullrank_service.documents.live import Documents
from fullrank_service.events.shown import Shown
from fullrank_service.http.problems import new_id
from fullrank_service.http.serving import RequestModel
from fullrank_service.search.cursors import Cursors
from fullrank_service.search.ranker import Ranker
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.schemas import Asked
from fullrank_service.search.trying import Trying

ANSWER_HEADERS: dict[str, Any] = {
    "X-Model-Version": {
        "description": "version that answered",
        "schema": {"type": "string"},
    },
    "X-Model-Generation": {
        "description": "generation that answered",
        "schema": {"type": "integer"},
    },
}


@dataclass(frozen=True, slots=True)
class Searches:
    """What routes that rank use.

    Attributes:
        rules: Returns the rules that apply to a query, given the bundle name and the query.
        record: Logs what an answer shows; None: events are off, and nothing is tried.
    """

    settings: Settings
    documents: Documents
    ranker: Ranker
    cursors: Cursors
    trying: Trying
    rules: Callable[[str, str], Sequence[Rule]]
    record: Callable[[Shown], None] | None


def reply_to(
    searches: Searches,
    serving: RequestModel,
    view: View,
    request: RankRequest,
    asker: Asked,
    ranked: Ranked,
    started: float,
    kind: str,
    *,
    page_url: str | None = None,
    ads: Sequence[tuple[int, str, float]] = (),
    **content: Any,
) -> dict[str, Any]:
    """Record an answer whose hits are final, and write its reply.

    Args:
        asker: Who asks.
        started: By time.perf_counter.
        kind: As of ``fullrank.events.records.ServedList``, and so are page_url and ads.
        content: Further fields of the reply.
    """
    query_id = new_id()
    if searches.record is not None:
        searches.record(
            Shown(
                query_id,
                time.time(),
                request.text,
                [hit["id"] for hit in ranked.hits],
                kind,
                request.offset,
                view.bundle.version,
                serving.generation,
                request.filter,
                page_url,
                asker,
                serving.headers,
                ranked.tried,
                ranked.pinned,
                view.bundle.manifest.model_id if ads else "",
                ads,
            )
        )
    return {
        "query_id": query_id,
        "model": view.bundle.version,
        "generation": serving.generation,
        "took_ms": round((time.perf_counter() - started) * 1000, 3),
        "certified": ranked.certified,
        "reordered": ranked.reordered,
        "covered": ranked.covered,
        "candidate": ranked.tried.candidate,
        **content,
    }


def list_content(
    ranked: Ranked, rules: Sequence[Rule] = (), did_you_mean: str | None = None
) -> dict[str, Any]:
    """Return the fields of a reply with one list of hits."""
    return {
        "total": ranked.total if ranked.is_total else None,
        "total_at_least": None if ranked.is_total else ranked.total,
        "hits": ranked.hits,
        "facets": ranked.facets,
        "cursor": None,
        "facet_ranges": ranked.facet_ranges,
        "rules": [rule.id for rule in rules],
        "did_you_mean": did_you_mean,
    }
