"""docs/reference/http.md has every problem that the service or its proxy can answer, and no other one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fullrank_service.base import errors

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"\| (\d{3}) \| ((?:`[a-z-]+` ?)+)\|")
_PROXY = re.compile(r'"urn:fullrank:problem:([a-z-]+)",[^}]*"status":(\d{3})')


def problems(base: type[errors.Problem] = errors.Problem) -> Iterator[tuple[int, str]]:
    """Yield the status and the type of each class of problem, without bases that no code raises."""
    for kind in base.__subclasses__():
        if kind is not errors.RetryLater:
            yield kind.status, kind.slug
        yield from problems(kind)


def test_the_table_has_the_problems_of_the_code() -> None:
    rows = _ROW.findall((ROOT / "docs" / "reference" / "http.md").read_text("utf-8"))
    documented = [
        (int(status), slug) for status, slugs in rows for slug in re.findall("[a-z-]+", slugs)
    ]
    proxy = _PROXY.findall((ROOT / "deploy" / "nginx.conf").read_text("utf-8"))
    known = {*problems(), *((int(status), slug) for slug, status in proxy)}
    assert len(documented) == len({*documented})
    assert {*documented} == known
