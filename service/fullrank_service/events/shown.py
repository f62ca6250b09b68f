"""What an answer showed: noted on the event loop in a few microseconds, made into a line on another thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import orjson

from fullrank.events.log import Pseudonyms
from fullrank.events.records import MAX_TEXT_CHARS, ServedList

_MAX_FILTER_BYTES = 8_192
# Parts of the names that crawlers, monitors and previews give themselves; programs that pretend to be people are left
# to readers of the log. "bot" covers Googlebot, bingbot, GPTBot and most others; not CUBOT, which makes telephones.
# HTTP libraries are not among them: a shop's own server calls with one, for people.
_PROGRAMS = re.compile(
    r"(?<!cu)bot(\b|[/;_-])|crawl|spider|slurp|headless|lighthouse|pingdom|uptime|monitor|preview|scrap|"
    r"facebookexternalhit|mediapartners|archiver|validator|phantomjs",
    re.IGNORECASE,
)


def is_bot(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the headers of a request name a program. A request without a User-Agent names none."""
    for name, value in headers:
        if name == b"user-agent":
            return _is_program(value[:512])
    return False


@lru_cache(maxsize=4096)
def _is_program(agent: bytes) -> bool:
    return _PROGRAMS.search(agent.decode("latin-1")) is not None


class Asker(Protocol):
    """The part of a request that says who asked."""

    client_id: str | None
    session_id: str | None
    user_id: str | None
    application: str | None
    record: bool


class Tried(NamedTuple):
    """What was tried on one list, as fullrank.events.records.ServedList; by default nothing."""

    candidate: str | None = None
    teams: str = ""
    pair: int | None = None
    swapped: bool = False
    inserted: int | None = None


NOTHING = Tried()


class Shown(NamedTuple):
    """One answer, as fullrank.events.records.ServedList, of which the rest comes from the request.

    Asker and headers are in clear, in memory only.
    """

    query_id: str
    at: float
    text: str
    ids: Sequence[str]
    kind: str
    offset: int
    model: str
    generation: int
    filter: Any
    page_url: str | None
    asker: Asker
    headers: Iterable[tuple[bytes, bytes]]
    tried: Tried = NOTHING
    pinned: tuple[int, ...] = ()
    model_id: str = ""
    ads: Sequence[tuple[int, str, float]] = ()

    def line(self, people: Pseudonyms) -> bytes:
        """Return the line that stores it. Raises TypeError for a filter that JSON cannot hold."""
        asker = self.asker
        texts = {
            "client_id": asker.client_id,
            "session_id": asker.session_id,
            "user_id": asker.user_id,
            "application": asker.application,
        }
        return ServedList(
            self.query_id,
            self.at,
            self.text[:MAX_TEXT_CHARS],
            self.ids,
            self.kind,
            self.offset,
            self.model,
            self.generation,
            *self.tried,
            self.pinned,
            texts=people.replace({name: text for name, text in texts.items() if text}),
            filter=_bounded(self.filter),
            page_url=self.page_url,
            is_bot=is_bot(self.headers),
            model_id=self.model_id,
            ads=self.ads,
        ).line()


def _bounded(filter: Any) -> Any:
    if filter is None or len(orjson.dumps(filter)) > _MAX_FILTER_BYTES:
        return None
    return filter
