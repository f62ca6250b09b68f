"""Log lines: one each, with the request's id, and without secrets."""

from __future__ import annotations

import io
import json
import logging
import logging.config
from typing import Any

import pytest

from fullrank_service.base import logs


def written(form: str, *arguments: Any, error: Exception | None = None, **more: Any) -> str:
    """Format a record with a formatter of the configuration."""
    made = logs.configuration("info", form)["formatters"][form]["()"]
    formatter: logging.Formatter = getattr(logs, made.rpartition(".")[2])()
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord(
        "service.x", logging.ERROR, "", 1, arguments[0], arguments[1:], exc_info
    )
    record.__dict__ |= more
    return formatter.format(record)


@pytest.fixture(params=["text", "json"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer abc.DEF-123",
        f"fr_shop_{'k' * 43}",
        f"fr_shop-two_{'-_x' * 14}",
        "redis://:hunter2@host:6379/0",
        f"/v1/search%3Fkey%3Dfr_shop_{'k' * 43}",
        "redis://user:hunter2@host:6379/0",
        "redis://:a@hunter2@host:6379/0",
    ],
)
def test_a_secret_is_in_no_line(form: str, secret: str) -> None:
    token = "hunter2" if "hunter2" in secret else secret.split()[-1]
    lines = [
        written(form, f"it was {secret}"),
        written(form, "it was %s", secret),
        written(form, "failed", error=ValueError(secret)),
        written(form, "failed", facts={"path": secret}) if form == "json" else "",
    ]
    for line in lines:
        assert token not in line
    assert "***" in lines[0]


def test_a_message_cannot_start_a_new_line(form: str) -> None:
    line = written(form, "asked for %s", "a\n2026-01-01 ERROR forged\r\x1b[31m\x85\x00")
    assert line.isprintable()


def test_every_json_line_is_one_object() -> None:
    try:
        raise ValueError('"\n\ud800')
    except ValueError as error:
        line = written("json", "no %s", '"}', error=error, facts={"path": '\\ "', "ms": 1.5})
    assert line.encode()
    found = json.loads(line)
    assert found["message"] == 'no "}'
    assert (found["level"], found["logger"], found["ms"]) == ("error", "service.x", 1.5)
    assert "Traceback" in found["error"]


def test_lines_contain_the_id_of_their_request(form: str) -> None:
    named = logs.request_id.set("some-id")
    try:
        assert "some-id" in written(form, "in it")
    finally:
        logs.request_id.reset(named)
    assert "some-id" not in written(form, "after it")


def test_logging_accepts_the_configuration(form: str) -> None:
    before = {
        name: logging.getLogger(name)
        for name in ("uvicorn", "fullrank_service", "fullrank", logs.REQUESTS)
    }
    kept = {name: (list(log.handlers), log.level, log.propagate) for name, log in before.items()}
    try:
        logging.config.dictConfig(logs.configuration("warning", form))
        [handler] = before["fullrank_service"].handlers
        assert isinstance(handler, logging.StreamHandler)
        stream = io.StringIO()
        handler.setStream(stream)
        before["fullrank_service"].info("not this")
        before["fullrank_service"].warning("this")
        assert len(stream.getvalue().splitlines()) == 1
    finally:
        for name, (handlers, level, propagate) in kept.items():
            before[name].handlers, before[name].propagate = handlers, propagate
            before[name].setLevel(level)
