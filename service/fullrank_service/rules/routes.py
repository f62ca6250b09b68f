"""Rules of operators: /v1/rules.

The rules of all bundle names are one collection of the log of documents, with ids such as "shop/summer-sale". A thread
replaces their index by one assignment, so a search sees the rules before a change or after it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from logging import getLogger
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Query
from fastapi import Path as PathParameter
from pydantic import ConfigDict, Field
from starlette.datastructures import State

from fullrank.errors import FilterError
from fullrank.filters.query import constant, matching, parse_filter
from fullrank.live import View
from fullrank.search.rules import rule as rules
from fullrank.search.rules.rule import Rule, RuleError, RuleIndex, read_rule
from fullrank_service.base import errors
from fullrank_service.base.background import Failed, Repeater, uncounted
from fullrank_service.base.errors import Invalid, RuleNotFound
from fullrank_service.documents.live import DocumentsDep
from fullrank_service.documents.log import Caps, Log, LogError, LogFull, Logged, Submission, Write
from fullrank_service.documents.sqlitelog import FORMER_RULES, LogPlace, log_file, place_of
from fullrank_service.http.deps import Capability, ServingDep, part
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.schemas import FilterJson, Id, WriteQuery
from fullrank_service.http.strict import Reply, Request, Text

# No bundle can have this name.
COLLECTION = ".rules"
MAX_RULES = 10_000
_NO_CAPS = Caps(sys.maxsize, sys.maxsize)
_MAX_REST_S = 0.5
_log = getLogger(__name__)
Found = TypeVar("Found")


def _since(log: Log, seq: int) -> tuple[list[Logged], int]:
    """Return the changes of rules after a number, and the number up to which there are no others."""
    found: list[Logged] = []
    while True:
        new, seq = log.after(COLLECTION, seq, MAX_RULES)
        if not new:
            return found, seq
        found += new


def _stored(log: Log | None) -> dict[str, bytes]:
    found = [] if log is None else _since(log, 0)[0]
    return {one.id: one.fields for one in found if one.fields is not None}


class Rules:
    """Rules for routes and searches; those of the former file move into the log. Raises problems."""

    def __init__(
        self,
        place: LogPlace,
        former: Path | None = None,
        *,
        poll_s: float = 0.05,
        failed: Failed = uncounted,
    ) -> None:
        self._place, self._former = place, former
        self._log: Log | None = None
        self._indexes: Mapping[str, RuleIndex] = {}
        self._known: dict[str, Rule] = {}
        self._seq = 0
        self._thread = Repeater(
            "rules", self._follow, poll_s, rest=2, max_rest_s=_MAX_REST_S, ended=self._close,
            failure="rules are not followed", failed=failed,
            expected=(LogError, OSError),
        )  # fmt: skip

    def start(self) -> None:
        """Read the rules, then follow them."""
        try:
            self._follow()
        except Exception as error:
            self._thread.log_failure(error)
        self._close()  # the thread has a connection of its own
        self._thread.start()

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.close)

    def matching(self, collection: str, query: str) -> Sequence[Rule]:
        """Return the rules that apply to a query now, by id."""
        index = self._indexes.get(collection)
        return () if index is None else index.matching(query, time.time())

    def ids(self, collection: str) -> set[str]:
        """Return the rules of a collection that searches of this worker see."""
        return {rule.id for key, rule in self._known.items() if key == f"{collection}/{rule.id}"}

    async def put(self, collection: str, id: str, rule: Mapping[str, Any]) -> None:
        """Add or replace a checked rule, synced. Raises TooManyRules, StorageFull, RulesUnavailable."""
        if len(self.ids(collection) - {id}) >= MAX_RULES:
            raise errors.TooManyRules(f"{collection} has {MAX_RULES} rules; delete one first.")
        write = Write(f"{collection}/{id}", orjson.dumps(rule))
        await self._on_thread(lambda: self._put(write))

    async def delete(self, collection: str, id: str) -> None:
        """Delete a rule, if there is one. Raises as put."""
        await self._on_thread(lambda: self._delete(f"{collection}/{id}"))

    async def get(self, collection: str, id: str) -> dict[str, Any] | None:
        """Return a rule as it is stored; None if there is none with this id. Raises RulesUnavailable."""
        found = await self._on_thread(lambda: self._find(f"{collection}/{id}"))
        return None if found is None else orjson.loads(found)

    async def page(self, collection: str, after: str, limit: int) -> list[dict[str, Any]]:
        """Return rules as they are stored, each with its id, in ascending id order. Raises RulesUnavailable."""
        found = await self._on_thread(self._all)
        names = ((key, *key.partition("/")[::2]) for key in found)
        ids = {id: found[key] for key, name, id in names if name == collection and id > after}
        return [{"id": id, **orjson.loads(ids[id])} for id in sorted(ids)[:limit]]

    def _put(self, write: Write) -> None:
        submission = Submission(COLLECTION, [write], lambda _: b"", seen=self._seq)
        with closing(self._place.open()) as log:
            [outcome] = log.commit([submission], _NO_CAPS)
        if isinstance(outcome, Exception):
            raise outcome
        self._thread.nudge()

    def _delete(self, key: str) -> None:
        if self._find(key) is not None:
            self._put(Write(key, None))

    def _find(self, key: str) -> bytes | None:
        log = self._place.existing()
        if log is None:
            return None
        with closing(log):
            return log.find(COLLECTION, key)

    def _all(self) -> dict[str, bytes]:
        log = self._place.existing()
        if log is None:
            return {}
        with closing(log):
            return _stored(log)

    async def _on_thread(self, work: Callable[[], Found]) -> Found:
        try:
            return await asyncio.to_thread(work)
        except LogFull:
            raise errors.StorageFull from None
        except (LogError, OSError) as error:
            _log.error("rules: %s", error)
            raise errors.RulesUnavailable from None

    def _follow(self) -> None:
        """Bring the rules up to date; after a failure they stay as they were until the next round."""
        if self._former is not None:
            _move(self._former, self._place)
            self._former = None
        try:
            self._log = self._log or self._place.existing()
            if self._log is None:
                return
            found, self._seq = _since(self._log, self._seq)
        except Exception:
            self._close()
            raise
        if not found:
            return
        known: dict[str, Rule | None] = {**self._known, **{one.id: _rule(one) for one in found}}
        self._known = {key: rule for key, rule in known.items() if rule is not None}
        by_collection = defaultdict[str, list[Rule]](list)
        for key, rule in self._known.items():
            by_collection[key.partition("/")[0]].append(rule)
        self._indexes = {name: RuleIndex(rules) for name, rules in by_collection.items()}

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def _rule(stored: Logged) -> Rule | None:
    if stored.fields is None:
        return None
    try:
        return read_rule(stored.id.partition("/")[2], orjson.loads(stored.fields))
    except (RuleError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.error("rule %s is ignored: %s", stored.id, error)
        return None


def _move(former: Path, place: LogPlace) -> None:
    """Move the rules of a file into the log; what the log knows of a rule stays, also that it was deleted."""
    if not former.exists():
        return
    try:
        # Another worker may have just moved it.
        with closing(sqlite3.connect(f"{former.absolute().as_uri()}?mode=rw", uri=True)) as file:
            is_made = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'rules'").fetchone()
            query = "SELECT collection || '/' || id, rule FROM rules"
            rows = file.execute(query).fetchall() if is_made else []
    except sqlite3.Error as error:
        if not former.exists():
            return
        raise LogError(f"{former}: {error}; mend or remove this file") from error
    missing = [
        Submission(COLLECTION, [Write(*row)], lambda _: b"", unchanged_since=0) for row in rows
    ]
    with closing(place.open()) as log:
        log.commit(missing, _NO_CAPS)
        stored = _stored(log)
    others = ", ".join(key for key, rule in rows if stored.get(key) != rule)
    if others:
        _log.warning(
            "%s: the log has other versions of these rules, which stay: %s", former, others
        )
    with suppress(FileNotFoundError):
        former.rename(former.with_name(f"{former.name}.moved"))
    _log.info("moved the rules of %s into the log of documents", former)


RuleId = Annotated[
    str,
    PathParameter(
        min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$", examples=["summer-sale"]
    ),
]
_RuleText = Annotated[Text, Field(min_length=1, max_length=rules.MAX_TEXT_CHARS)]
_Time = Annotated[
    Text,
    Field(
        max_length=40,
        description="ISO 8601 with an offset from UTC",
        examples=["2026-11-27T00:00:00+01:00"],
    ),
]
MAX_PAGE = 1_000


class QueryCondition(Request):
    """The queries that a rule is for: exactly one of the three, compared without letter case and accents."""

    is_: _RuleText | None = Field(default=None, alias="is", description="the whole query")
    contains: _RuleText | None = Field(default=None, description="words of the query in a row")
    prefix: _RuleText | None = Field(default=None, description="what the query begins with")


class RulePin(Request):
    id: Id
    position: Annotated[int, Field(ge=1, le=rules.MAX_POSITION)] = Field(
        description="1 is the first"
    )


class RuleBody(Request):
    """A rule; at least one of filter, pin, hide and synonyms."""

    model_config = ConfigDict(serialize_by_alias=True)

    query: QueryCondition | None = Field(default=None, description="absent: every query")
    filter: FilterJson | None = Field(default=None, description="rank only documents that match")
    pin: list[RulePin] = Field(
        default=[], max_length=rules.MAX_PINS, description="documents at fixed places"
    )
    hide: list[Id] = Field(
        default=[], max_length=rules.MAX_HIDDEN, description="documents not to return"
    )
    synonyms: list[Annotated[list[_RuleText], Field(min_length=2, max_length=rules.MAX_GROUP)]] = (
        Field(
            default=[],
            max_length=rules.MAX_GROUPS,
            description="words or phrases that stand for each other",
            examples=[[["tv", "television"]]],
        )
    )
    from_: _Time | None = Field(default=None, alias="from", description="when the rule begins")
    until: _Time | None = Field(default=None, description="when it ends")


class RulesQuery(WriteQuery):
    """The query string of a list of rules."""

    after: Annotated[str, Field(max_length=100)] = Field(
        default="", description="return rules with greater ids"
    )
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100


class RuleReply(RuleBody):
    id: str
    collection: str = Field(description="bundle name; the rule holds for all its versions")


class RuleDeleted(Reply):
    id: str
    collection: str


class StoredRule(RuleBody):
    id: str


class RulesReply(Reply):
    collection: str
    rules: list[StoredRule] = Field(description="by id")


RulesDep = Annotated[Rules, part("rules")]
router = APIRouter(prefix="/v1/rules", tags=["rules"], route_class=GuardedRoute)


@router.get(
    "",
    response_model=RulesReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("ingest", "collections"),
)
async def list_rules(
    asked: Annotated[RulesQuery, Query()], serving: ServingDep, rules: RulesDep
) -> JsonResponse:
    """List the rules of a collection by id, page by page."""
    name = serving.resolve(asked.model).name
    found = await rules.page(name, asked.after, asked.limit)
    return JsonResponse({"collection": name, "rules": [_complete(rule) for rule in found]})


@router.put(
    "/{id}",
    response_model=RuleReply,
    responses=problems(400, 404, 409, 413, 415, 422, 503, 507),
    openapi_extra=needs("ingest", "collections"),
)
async def put_rule(
    id: RuleId,
    body: RuleBody,
    asked: Annotated[WriteQuery, Query()],
    serving: ServingDep,
    rules: RulesDep,
    documents: DocumentsDep,
) -> JsonResponse:
    """Add or replace a rule. The answer comes after it is synced to disk; every worker applies it within a second."""
    bundle = serving.resolve(asked.model)
    rule = body.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    try:
        read = read_rule(id, rule, time.time())
    except RuleError as error:
        path = f"body.{error.path}" if error.path else "body"
        raise Invalid(errors=[{"field": path, "reason": error.reason}]) from None
    if read.filter is not None:
        views = [followed.view for followed in documents.views(bundle.name)]
        await asyncio.to_thread(_check_filter, read, read.filter, views)
    await rules.put(bundle.name, id, rule)
    return JsonResponse({"id": id, "collection": bundle.name, **_complete(rule)})


@router.get(
    "/{id}",
    response_model=RuleReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("ingest", "collections"),
)
async def get_rule(
    id: RuleId, asked: Annotated[WriteQuery, Query()], serving: ServingDep, rules: RulesDep
) -> JsonResponse:
    """Read a rule as it was stored."""
    name = serving.resolve(asked.model).name
    rule = await rules.get(name, id)
    if rule is None:
        raise RuleNotFound(f"{name} has no rule {id!r}.")
    return JsonResponse({"id": id, "collection": name, **_complete(rule)})


@router.delete(
    "/{id}",
    response_model=RuleDeleted,
    responses=problems(404, 422, 503, 507),
    openapi_extra=needs("ingest", "collections"),
)
async def delete_rule(
    id: RuleId, asked: Annotated[WriteQuery, Query()], serving: ServingDep, rules: RulesDep
) -> JsonResponse:
    """Delete a rule. Deleting a rule that does not exist succeeds."""
    name = serving.resolve(asked.model).name
    await rules.delete(name, id)
    return JsonResponse({"id": id, "collection": name})


def _complete(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {**RuleBody.model_construct().model_dump(by_alias=True), **rule}


def _check_filter(rule: Rule, condition: Mapping[str, Any], views: list[View]) -> None:
    parsed = parse_filter(condition, "body.filter")
    decided = constant(parsed)
    if decided is False:
        raise FilterError("body.filter", "matches no document, so searches would find nothing")
    if decided and not (rule.pins or rule.hide or rule.synonyms):
        raise FilterError("body.filter", "matches every document, so the rule has no effect")
    for view in views:
        for columns in view.columns:
            matching(parsed, columns)


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Rules]:
    settings = state.shared.settings
    rules = Rules(
        place_of(settings, settings.bundles),
        log_file(settings).with_name(FORMER_RULES),
        poll_s=settings.documents_poll_ms / 1000,
        failed=state.shared.metrics.background_failed,
    )
    rules.start()
    try:
        yield rules
    finally:
        await rules.close()


RULES = Capability("rules", router.routes, _opened)
