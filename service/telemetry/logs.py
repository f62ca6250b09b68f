"""Log lines: for people or as JSON, with the id of the request that they are about, and no secret in any.

Whatever a line is made of, traceback included, API keys and passwords in addresses are struck out of it, and a message
cannot break out of its line.
"""

from __future__ import annotations

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

REQUESTS = "service.requests"
"""The logger that gets a line for each request, where that is wanted."""

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
    """The text with everything struck out that looks like a key or a password."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class Lines(logging.Formatter):
    """time level process logger: message [request id]"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_CONTROL)
        id = request_id.get()
        return super().formatMessage(record) + (f" [{id}]" if id else "")

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, process, message, request_id, error, and what ``extra`` held."""

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
        # Struck out of the parts, so that the line stays JSON whatever they hold.
        clean = {k: without_secrets(v) if isinstance(v, str) else v for k, v in line.items()}
        return json.dumps(clean, default=str)


def log_request(
    method: str, path: bytes, status: int, seconds: float, facts: dict[str, Any]
) -> None:
    """A line about a request that was answered: never its query string, its body or its headers."""
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
    """Everything to stderr, for logging.config; form is "text" or "json"."""
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
            # Asked for by a setting of its own, whatever the level of the rest.
            REQUESTS: {**handlers, "level": "INFO"},
        },
    }
