"""Test what the documentation points to: pages, their headings, and the benchmarks that it quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.walls.source import ROOT

PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), *(ROOT / f"{n}.md" for n in ("README", "CONTRIBUTING"))]
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"\bbenchmarks\.[\w.]*\w")


def headings(page: Path) -> set[str]:
    """Give the anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).lower() for text in found)
    return {re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-") for text in plain}


def broken(page: Path) -> Iterator[str]:
    """Yield links to files or headings that do not exist, and modules of benchmarks that do not."""
    text = page.read_text("utf-8")
    for link in _LINK.findall(text):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in headings(target)):
            yield link
    for name in _COMMAND.findall(text):
        path = ROOT.joinpath(*name.split("."))
        if not path.is_dir() and not path.with_suffix(".py").is_file():
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_commands_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []
