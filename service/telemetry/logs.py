"""Log lines, for people or as JSON, with the id of their request and without secrets.

API keys and passwords in addresses are removed from every part of a line, tracebacks included, and control characters
are escaped, so that no message can start a new line.
"""

from __future__ import annotations

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

REQUESTS = "service.requests"
"""The logger of the lines about requests."""

request_id: ContextVar[str] = ContextVar("fullrank.request_id", default="")

_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), r"\1 ***"),
    (re.compile(r"fr_[A-Za-z0-9-]+_[\w-]+"), "fr_***"),
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


def log_request(
    method: str, path: bytes, status: int, seconds: float, facts: dict[str, Any]
) -> None:
    """Log an answered request, without its query string, body and headers."""
    shown = path.decode("ascii", "backslashreplace")
    facts = {
        "method": method,
        "path": shown,
        "status": status,
        "ms": round(seconds * 1e3, 3),
        **facts,
    }
    logging.getLogger(REQUESTS).info(
        "%s %s %d %.3f ms", method, shown, status, seconds * 1e3, extra={"facts": facts}
    )


def configuration(level: str, form: str) -> dict[str, Any]:
    """Return a configuration for logging.config: all lines to stderr; form is "text" or "json"."""
    handlers = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "text": {"()": "service.telemetry.logs.Lines"},
            "json": {"()": "service.telemetry.logs.JsonLines"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": form}},
        "loggers": {
            **dict.fromkeys(("uvicorn", "service", "fullrank"), handlers),
            # A separate setting switches these on, independent of the level of other logs.
            REQUESTS: {**handlers, "level": "INFO"},
        },
    }
