"""What an answer showed: noted on the event loop in a few microseconds, made into a line on another thread."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
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
    """One answer, and who asked: in clear, in memory only."""

    served: ServedList
    asker: Asker
    headers: Iterable[tuple[bytes, bytes]]

    def line(self, people: Pseudonyms) -> bytes:
        """Return the line that stores it. Raises TypeError for a filter that JSON cannot hold."""
        served = self.served
        names = ("client_id", "session_id", "user_id", "application")
        texts = {name: text for name in names if (text := getattr(self.asker, name))}
        return replace(
            served,
            text=served.text[:MAX_TEXT_CHARS],
            texts=people.replace(texts),
            filter=_bounded(served.filter),
            is_bot=is_bot(self.headers),
        ).line()


def _bounded(filter: Any) -> Any:
    if filter is None or len(orjson.dumps(filter)) > _MAX_FILTER_BYTES:
        return None
    return filter
