"""Test what the documentation points to, that the site has every page, and its spelling."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import anchor, read_page
from tests.walls.source import ROOT

DOCS = ROOT / "docs"
SITE = sorted(DOCS.glob("**/*.md"))
PAGES = sorted([*SITE, *(ROOT / f"{n}.md" for n in ("README", "CONTRIBUTING"))])
# Words that are right here.
SPELLED = "tread,comand"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"\bbenchmarks\.[\w.]*\w")
_FENCE = re.compile(r"^( *)(`{3,})[^\n]*\n.*?^\1\2$", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """Give the anchors of a page's headings: those of the site, and outside of it those of GitHub."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    found = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    if page in SITE:
        return {*map(anchor, found)}
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in found}


def broken(page: Path) -> Iterator[str]:
    """Yield links to files or headings that do not exist, and modules of benchmarks that do not."""
    text = page.read_text("utf-8")
    for link in _LINK.findall(_FENCE.sub("", text)):
        file, _, place = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if re.match(r"[a-z]+:", link):
            continue
        is_outside = page in SITE and not target.is_relative_to(DOCS)
        if is_outside or not target.exists() or (place and place not in headings(target)):
            yield link
    for name in _COMMAND.findall(text):
        path = ROOT.joinpath(*name.split("."))
        if not path.is_dir() and not path.with_suffix(".py").is_file():
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_commands_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_the_site_has_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8").replace("!ENV", "")
    named = re.findall(r"[\w/-]+\.md", yaml.dump(yaml.safe_load(text)["nav"]))
    assert sorted(named) == [page.relative_to(DOCS).as_posix() for page in SITE]


@pytest.mark.parametrize("page", SITE, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_has_one_title_a_description_and_no_indented_block(page: Path) -> None:
    text = page.read_text("utf-8")
    described = re.match(r"---\ndescription: (.{20,150})\n---\n", text)
    assert described, (
        "begin with front matter: `description:` and a sentence of 20 to 150 characters"
    )
    assert isinstance(yaml.safe_load(text.split("---\n")[1])["description"], str)
    assert len(re.findall(r"^# ", _FENCE.sub("", text), re.MULTILINE)) == 1
    assert [fault for fault in read_page(page).faults if "indented" in fault] == []


def test_words_are_spelled_right() -> None:
    command = [
        sys.executable,
        "-m",
        "codespell_lib",
        "--ignore-words-list",
        SPELLED,
        *map(str, PAGES),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr
