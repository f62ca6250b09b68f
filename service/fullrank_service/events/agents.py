"""Tell programs from people by their User-Agent. Programs that pretend to be people are the reader's problem."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

# Parts of the names that crawlers, monitors and previews give themselves. "bot" covers Googlebot, bingbot, GPTBot and
# most others; not CUBOT, which makes telephones. HTTP libraries are not among them: a shop's own server calls with one,
# for people.
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
