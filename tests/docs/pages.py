"""Read the fenced blocks of the pages of the documentation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("tutorials", "guides", "reference", "concepts")

RUN = {"bash", "python"}
SHOWN = {"json", "text"}
"""What the block before it has printed."""
DATA = {"csv", "tsv", "jsonl", "yaml", "toml", "ini", "nginx", "caddy", "xml", "html", "css", "javascript"}  # fmt: skip
"""Files; so are blocks of the other languages that have a title."""
FORMULA = "math"
LOG = "log"
"""Title of a text that services of the page have logged."""
_INFO = re.compile(r'(\w+)(?: title="([^"]+)")?')
_COMMENT = re.compile(r"^<!-- (given|needs): (.+) -->$", re.MULTILINE)
_REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S+)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        title: The file that it is, or the request of which it is the body ("POST /v1/search"); may be empty.
        line: Of the page, from 1.
    """

    language: str
    title: str
    text: str
    line: int

    @property
    def request(self) -> tuple[str, str] | None:
        """Method and path, if it is a body to send."""
        match = _REQUEST.fullmatch(self.title)
        return (match[1], match[2]) if match else None

    @property
    def is_file(self) -> bool:
        return bool(self.title) and self.request is None

    @property
    def is_run(self) -> bool:
        return not self.is_file and (self.language in RUN or self.request is not None)


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        given: What exists before its first block, by the names of tests/docs/given.py.
        needs: Python modules that its blocks import and a development environment lacks.
        faults: What keeps blocks from being tested.
    """

    path: Path
    blocks: tuple[Block, ...]
    given: tuple[str, ...]
    needs: tuple[str, ...]
    faults: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return (
            self.path.relative_to(DOCS).as_posix()
            if self.path.is_relative_to(DOCS)
            else str(self.path)
        )


def pages() -> list[Page]:
    """Return all pages whose blocks are run: those of FOLDERS, and the start page."""
    paths = [path for folder in FOLDERS for path in (DOCS / folder).rglob("*.md")]
    start = DOCS / "index.md"
    return [read_page(path) for path in sorted([*paths, *([start] if start.exists() else [])])]


def anchor(heading: str) -> str:
    """Return the anchor of a heading on the site, as Python-Markdown makes it."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@cache
def read_page(path: Path) -> Page:
    text = path.read_text("utf-8")
    comments = {name: [] for name in ("given", "needs")} | {
        name: [one.strip() for one in value.split(",")] for name, value in _COMMENT.findall(text)
    }
    blocks, faults = list[Block](), list[str]()
    for token in MarkdownIt("commonmark").parse(text):
        if token.map is None or token.type not in ("fence", "code_block"):
            continue
        line = token.map[0] + 1
        match = _INFO.fullmatch(token.info.strip())
        if token.type == "code_block":
            faults.append(f"line {line}: indented block; fence it, and name its language")
        elif match is None:
            faults.append(f'line {line}: "{token.info}" is not LANGUAGE or LANGUAGE title="…"')
        else:
            blocks.append(Block(match[1], match[2] or "", token.content, line))
    return Page(
        path, tuple(blocks), tuple(comments["given"]), tuple(comments["needs"]),
        (*faults, *_untested(blocks)),
    )  # fmt: skip


def _untested(blocks: list[Block]) -> Iterator[str]:
    can_be_compared = False
    for block in blocks:
        where = f"line {block.line}: {block.language} block"
        if block.language not in RUN | SHOWN | DATA | {FORMULA}:
            yield f"{where}: unknown language; see tests/docs/pages.py"
        elif block.is_run:
            can_be_compared = True
        elif block.language in DATA and not block.title:
            yield f'{where} needs a title: the name of the file that it is, title="…"'
        elif block.language in SHOWN and not block.title and not can_be_compared:
            yield f"{where} shows what no block before it prints"
