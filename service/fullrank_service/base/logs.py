"""Log lines, for people or as JSON, with the id of their request and without secrets.

API keys and passwords in addresses are removed from every part of a line, tracebacks included, and control characters
are escaped, so that no message can start a new line.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

REQUESTS = "fullrank_service.requests"
"""The logger of the lines about requests."""
# Lines of a worker about failures with one status, so that a flood of them does not fill the disk.
_LINES_A_MINUTE = 10
# Failures that are no sign of trouble: no such document, and a client that left.
_USUAL = (404, 499)
# Facts that lines for people have too.
_SHOWN = ("problem", "key", "left_out")

request_id: ContextVar[str] = ContextVar("fullrank.request_id", default="")

_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), r"\1 ***"),
    (re.compile(r"fr_[A-Za-z0-9-]+_[\w-]+"), "fr_***"),
    (re.compile(r"frt_[\w.-]+"), "frt_***"),
    (re.compile(r"://[^/\s]*@"), "://***@"),
)
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, 0x85)} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\t",
}


def without_secrets(text: str) -> str:
    """Replace everything in a text that looks like a key or a password."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class Lines(logging.Formatter):
    """Lines for people: time level process logger: message [request id]."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_CONTROL)
        id = request_id.get()
        return super().formatMessage(record) + (f" [{id}]" if id else "")

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, process, message, request_id, error, and the facts of ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if id := request_id.get():
            line["request_id"] = id
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # Each value by itself, so that the line stays JSON.
        clean = {k: without_secrets(v) if isinstance(v, str) else v for k, v in line.items()}
        return json.dumps(clean, default=str)


class RequestLog:
    """Logs failures, or all requests, by route: paths, query strings, bodies and headers can name people."""

    def __init__(self, *, is_full: bool) -> None:
        self._is_full = is_full
        # By status: the end of a minute, and the failures in it.
        self._minutes: dict[int, tuple[float, int]] = {}

    def answered(
        self,
        method: str,
        route: str,
        status: int,
        seconds: float,
        client: str,
        **facts: str | int | None,
    ) -> None:
        """Log a request, with the facts that are not None; the address of the client only in a full log."""
        if self._is_full:
            self._write(method, route, status, seconds, {"client": client, **facts})
        elif status >= 400 and status not in _USUAL:
            self.failed(method, route, status, seconds, **facts)

    def failed(
        self, method: str, route: str, status: int, seconds: float, **facts: str | int | None
    ) -> None:
        """Log a failure, unless its status has filled its lines of this minute."""
        now = time.monotonic()
        end, count = self._minutes.get(status, (0.0, 0))
        if now >= end:
            facts["left_out"] = count - _LINES_A_MINUTE if count > _LINES_A_MINUTE else None
            end, count = now + 60, 0
        self._minutes[status] = end, count + 1
        if count < _LINES_A_MINUTE:
            self._write(method, route, status, seconds, facts)

    def _write(
        self,
        method: str,
        route: str,
        status: int,
        seconds: float,
        facts: Mapping[str, str | int | None],
    ) -> None:
        ms = round(seconds * 1e3, 3)
        own = {"method": method, "route": route, "status": status, "ms": ms}
        own |= {name: fact for name, fact in facts.items() if fact is not None}
        more = "".join(f" {name}={own[name]}" for name in _SHOWN if name in own)
        message = f"{method} {route} {status} {ms:.3f} ms{more}"
        logging.getLogger(REQUESTS).info(message, extra={"facts": own})


def configuration(level: str, form: str) -> dict[str, Any]:
    """Return a configuration for logging.config: all lines to stderr; form is "text" or "json"."""
    handlers = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "text": {"()": "fullrank_service.base.logs.Lines"},
            "json": {"()": "fullrank_service.base.logs.JsonLines"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": form}},
        "loggers": {
            **dict.fromkeys(("uvicorn", "fullrank_service", "fullrank"), handlers),
            # A separate setting selects them, independent of the level of other logs.
            REQUESTS: {**handlers, "level": "INFO"},
        },
    }
