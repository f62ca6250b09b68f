"""Answers of routes that rank: what they need, what is logged, what is sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fullrank.live import View
from fullrank.rules.rule import Rule
from fullrank_service.base.settings import Settings
from fullrank_service.documents.live import Documents
from fullrank_service.events.shown import NOTHING, Shown, Tried
from fullrank_service.http.headers import new_id
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


class Answer(NamedTuple):
    """An answer whose hits are final: what is logged and sent."""

    searches: Searches
    serving: RequestModel
    view: View
    request: RankRequest
    asker: Asked
    ranked: Ranked
    started: float
    tried: Tried = NOTHING
    rules: Sequence[Rule] = ()
    pinned: tuple[int, ...] = ()
    did_you_mean: str | None = None
    ads: Sequence[tuple[int, str, float]] = ()


def ranking_reply(
    answer: Answer, kind: str, page_url: str | None = None, **content: Any
) -> dict[str, Any]:
    """Record an answer and write its reply."""
    view, ranked, serving = answer.view, answer.ranked, answer.serving
    query_id = new_id()
    if answer.searches.record is not None:
        answer.searches.record(
            Shown(
                query_id,
                time.time(),
                answer.request.text,
                [hit["id"] for hit in ranked.hits],
                kind,
                answer.request.offset,
                view.bundle.version,
                serving.generation,
                answer.request.filter,
                page_url,
                answer.asker,
                serving.headers,
                answer.tried,
                answer.pinned,
                view.bundle.manifest.model_id if answer.ads else "",
                answer.ads,
            )
        )
    return {
        "query_id": query_id,
        "model": view.bundle.version,
        "generation": serving.generation,
        "took_ms": round((time.perf_counter() - answer.started) * 1000, 3),
        "certified": ranked.certified,
        "reordered": ranked.reordered,
        "covered": ranked.covered,
        "candidate": answer.tried.candidate,
        **content,
    }


def search_reply(answer: Answer, kind: str) -> dict[str, Any]:
    ranked = answer.ranked
    return ranking_reply(
        answer,
        kind,
        total=ranked.total if ranked.is_total else None,
        total_at_least=None if ranked.is_total else ranked.total,
        hits=ranked.hits,
        facets=ranked.facets,
        cursor=None,
        facet_ranges=ranked.facet_ranges,
        rules=[rule.id for rule in answer.rules],
        did_you_mean=answer.did_you_mean,
    )
