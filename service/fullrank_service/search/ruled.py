"""Apply rules to a search, interleave two models, and explore."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from random import Random, random
from typing import Any

from fullrank.errors import FilterError
from fullrank.events.interleave import CANDIDATE, DEPTH, explore, interleave
from fullrank.filters.identifiers import MOST, spellings_of
from fullrank.live import View
from fullrank.search.rules.places import Page, spread
from fullrank.search.rules.rule import Rule
from fullrank.search.rules.synonyms import replaced
from fullrank_service.base.errors import DocumentsMissing
from fullrank_service.base.experiment import Experiment
from fullrank_service.documents.live import Documents
from fullrank_service.events.shown import Tried
from fullrank_service.http.deps import RequestModel
from fullrank_service.search.ranking import Ranker
from fullrank_service.search.request import Ranked, RankRequest, Restriction

_DAY_S = 86_400


class Trying:
    """Ranks, and tries other documents on some of the lists, of which it explores a share in each of two ways."""

    def __init__(self, ranker: Ranker, live: Documents, explored: float) -> None:
        self._ranker = ranker
        self._live = live
        self._explored = explored

    async def rank(
        self,
        serving: RequestModel,
        view: View,
        request: RankRequest,
        person: str | None,
        min_seq: int,
    ) -> Ranked:
        """Rank a search that names no model, for a person if known, in the view of the active version."""
        experiment = serving.experiment
        if experiment is not None and serving.sees(experiment.candidate):
            coin = _coin(experiment, request, person)
            if coin is not None:
                # These lists are longer than the page, which may fit FULLRANK_MAX_ANSWER_BYTES alone.
                with suppress(FilterError):
                    return await self._interleaved(
                        serving, view, request, experiment, coin, min_seq
                    )
        is_sorted = request.ordering is not None and bool(request.ordering.sort)
        if not (request.offset or is_sorted) and random() < 2 * self._explored:
            with suppress(FilterError):
                return await self._explore(view, request)
        return await self._ranker.rank(view, request)

    async def _interleaved(
        self,
        serving: RequestModel,
        view: View,
        request: RankRequest,
        experiment: Experiment,
        coin: Random,
        min_seq: int,
    ) -> Ranked:
        if serving.slot is not None:
            serving.slot.set_cost(
                serving.slot.cost + 1
            )  # two rankings for this search of the batch
        count = request.offset + request.limit
        whole = replace(request, limit=count, offset=0)
        uncounted = request.asked.model_copy(update={"facets": [], "facet_ranges": {}})
        candidate = await self._live.view(serving.serving.models[experiment.candidate], min_seq)
        a = await self._ranker.rank(view, whole)
        try:
            other = replace(whole, asked=uncounted, is_part=True)
            b = await self._ranker.rank(candidate, other)
        except DocumentsMissing:
            # Shards of a fleet that were restarted open the active version first, and the candidate later.
            return replace(a, hits=a.hits[request.offset :])
        rankings = [[hit["id"] for hit in ranked.hits] for ranked in (a, b)]
        picks = interleave(rankings[0], rankings[1], count, coin)[request.offset :]
        hits = [(b if pick.team == CANDIDATE else a).hits[pick.rank] for pick in picks]
        return replace(
            a,
            hits=hits,
            certified=a.certified and b.certified,
            reordered=max(a.reordered, b.reordered),
            covered=min(a.covered, b.covered),
            tried=Tried(experiment.candidate, "".join(pick.team for pick in picks)),
        )

    async def _explore(self, view: View, request: RankRequest) -> Ranked:
        deep = replace(request, limit=max(request.limit, DEPTH), with_clicks=True)
        ranked = await self._ranker.rank(view, deep)
        ids = [hit["id"] for hit in ranked.hits]
        clicked = {hit["id"] for hit in ranked.hits if _is_clicked(hit["explanation"])}
        # This list was chosen already; each of the two ways is as likely.
        coin = Random(random())
        found = explore(ids, 0.5, coin, view.is_live, shown=request.limit, clicked=clicked)
        tried = Tried(pair=found.pair, swapped=found.swapped, inserted=found.inserted)
        hits = [ranked.hits[place] for place in found.order]
        if not request.asked.explain:
            hits = [{**hit, "explanation": None} for hit in hits]
        return replace(ranked, hits=hits, tried=tried)


def _is_clicked(explanation: Mapping[str, Any] | None) -> bool:
    clicks = None if explanation is None else explanation["clicks"]
    return clicks is not None and clicks["after_query"] > 0


def _coin(experiment: Experiment, request: RankRequest, person: str | None) -> Random | None:
    """Return the coin of a list that is interleaved, None of others."""
    if time.time() > experiment.started + experiment.max_days * _DAY_S:
        return None
    if person is None:
        chosen = not request.offset and random() < experiment.share
        return Random(random()) if chosen else None
    key = "\0".join((experiment.candidate, str(experiment.started), person, request.text))
    seed = int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest())
    # The low half decides whether, the rest decides how.
    chosen = (seed & (1 << 64) - 1) < experiment.share * (1 << 64)
    return Random(seed >> 64) if chosen else None


Rank = Callable[[RankRequest], Awaitable[Ranked]]


def applying(rules: Sequence[Rule], *, has_cursor: bool) -> Sequence[Rule]:
    """Return the rules that have an effect on a search: with a cursor those that hide or filter documents.

    A pin stands at a place, and pages of cursors have none. Synonyms that change between two pages would change scores,
    so documents would come twice or never.
    """
    return [rule for rule in rules if rule.is_restricting] if has_cursor else rules


def restricted(request: RankRequest, rules: Sequence[Rule]) -> RankRequest:
    """Return a request for the documents that no rule hides and all filters of rules match."""
    hidden = dict.fromkeys(id for rule in rules for id in rule.hide)
    return replace(
        request,
        restrictions=[Restriction(r.id, r.filter) for r in rules if r.filter is not None],
        exclude=[*request.exclude, *hidden],
    )


async def rank_by_rules(
    rules: Sequence[Rule], view: View, request: RankRequest, ranker: Ranker, rank: Rank
) -> Ranked:
    """Rank for a query under the rules that apply to it; a document that it names comes first.

    The pinned documents are scored separately and left out of the ranking, so no experiment moves one.

    Args:
        rules: By id; the first one that pins a document decides. With a cursor, pins and synonyms are ignored.
        view: Of the active model.
        ranker: Scores the pinned documents.
        rank: Ranks the others.

    Raises:
        FilterError: filter or facets of the request do not fit the fields.
    """
    if rules:
        request = restricted(request, rules)
    is_paged = request.after is not None
    if rules and not is_paged:
        synonyms = (group for rule in rules for group in rule.synonyms)
        request = replace(request, synonyms=replaced(request.text, synonyms))
    pins = [] if is_paged else await _pins(rules, view, request, ranker)
    if not pins:
        return await rank(request)
    page = Page(request.offset, request.limit, spread(place for place, _ in pins))
    needed = replace(
        request,
        offset=page.ranked_offset,
        limit=max(1, page.ranked_limit),
        pinned=[hit["id"] for _, hit in pins],
        # Who types an identifier looks for nothing else, but what the bundle takes for one may be a word.
        is_strict=any(hit["rule"] is None for _, hit in pins),
    )
    ranked = await rank(needed)
    ranked_hits = ranked.hits[: page.ranked_limit]
    length = ranked.total if ranked.is_total else sys.maxsize
    hits, places = page.put(ranked_hits, length, [hit for _, hit in pins])
    return replace(
        ranked,
        hits=hits,
        total=ranked.total + len(pins),
        tried=shifted(ranked.tried, places, len(hits)),
        pinned=tuple(places),
    )


async def _pins(
    rules: Sequence[Rule], view: View, request: RankRequest, ranker: Ranker
) -> list[tuple[int, dict[str, Any]]]:
    """Return the place and the hit of each pinned document that exists and passes the filters, by place."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for rule in rules:
        for pin in rule.pins:
            wanted.setdefault(pin.id, (pin.place, rule.id))
    names = spellings_of(request.text) if request.ordering is None else []
    hits = []
    for ids, most, by_name in ((list(wanted), len(wanted), False), (names, MOST, True)):
        if ids:
            alone = replace(request, only=ids, by_name=by_name, offset=0, limit=most, is_part=True)
            hits += (await ranker.rank(view, alone)).hits
    pins = []
    for id, hit in {hit["id"]: hit for hit in hits}.items():
        place, by = wanted.get(id, (0, None))
        pins.append((place, {**hit, "rule": by}))
    # Rules are in the order of their ids, and so are their pins of one place; then what the query names, by score.
    order = {id: number for number, id in enumerate(wanted)}
    return sorted(pins, key=lambda pin: (pin[0], order.get(pin[1]["id"], len(order))))


def shifted(tried: Tried, pinned: Sequence[int], size: int) -> Tried:
    """Return the experiment on the ranking, with its places in the list that has pins."""
    if not pinned:
        return tried
    free = [place for place in range(size) if place not in pinned]
    teams = tried.teams
    if teams:
        own = dict(zip(free, teams, strict=False))
        teams = "".join(own.get(place, "-") for place in range(size))
    pair, swapped = None, False
    if tried.pair is not None and tried.pair + 1 < len(free):
        upper, lower = free[tried.pair], free[tried.pair + 1]
        if lower == upper + 1:  # else a pin stands between the two
            pair, swapped = upper, tried.swapped
    inserted = tried.inserted
    if inserted is not None:
        inserted = free[inserted] if inserted < len(free) else None
    return tried._replace(teams=teams, pair=pair, swapped=swapped, inserted=inserted)
