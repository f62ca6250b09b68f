"""Read the Markdown and HTML pages of a site: titles, headings, text, and the links between them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
import yaml
from markdown_it import MarkdownIt

from fullrank_trainer.importing.rows import Row

ENDINGS = (".md", ".markdown", ".html", ".htm")
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
# Parts of a page that every page of a site repeats, or that nobody reads.
_OUTSIDE = frozenset(
    {"script", "style", "nav", "header", "footer", "aside", "template", "noscript", "svg"}
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_BLOCKS = _HEADINGS | {
    *("p", "li", "tr", "div", "section", "pre", "br", "table", "dt", "dd", "blockquote")
}
_EMPTY = frozenset(
    {"br", "img", "hr", "meta", "link", "input", "source", "wbr", "col", "area", "base", "embed"}
)


@dataclass
class Page:
    """What a page says; ``fields`` has the rest of the front matter, or the description of HTML."""

    title: str = ""
    headings: list[str] = field(default_factory=list)
    text: str = ""
    links: list[tuple[str, str]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)


class Pages:
    """The pages of a folder, without hidden folders and node_modules.

    ``rows`` also fills ``links``: the pages that each page links to, with the texts of the links.

    Args:
        root: The folder.
        address: The url of a page, in which {path} stands for its path without the ending; None: pages have no url.
    """

    def __init__(self, root: Path, address: str | None) -> None:
        self._root, self._address = root, address
        self.files = sorted(_files(root))
        ids = {path.relative_to(root).as_posix() for path in self.files}
        self._by_address = {name: id for id in sorted(ids, reverse=True) for name in _names(id)}
        self.links: dict[str, list[tuple[str, str]]] = {}

    def rows(self) -> Iterator[Row]:
        for path in self.files:
            id = path.relative_to(self._root).as_posix()
            try:
                content = path.read_bytes().decode("utf-8-sig")
                page = (read_html if path.suffix in (".html", ".htm") else read_markdown)(content)
            except (OSError, ValueError, yaml.YAMLError) as error:
                yield Row(str(path), {"_id": id}, f"cannot be read: {' '.join(str(error).split())}")
                continue
            named = ((self._target(id, href), text) for href, text in page.links)
            self.links[id] = [(to, text) for to, text in named if to is not None and to != id]
            title = page.title or next(iter(page.headings), "") or Path(id).stem
            fields = {"_id": id, "title": title, "text": page.text}
            if headings := [heading for heading in page.headings if heading != title]:
                fields["headings"] = "\n".join(headings)
            if self._address is not None:
                fields["url"] = self._address.replace("{path}", posixpath.splitext(id)[0])
            yield Row(str(path), {"_id": id, **page.fields, **fields})

    def _target(self, id: str, href: str) -> str | None:
        parts = urlsplit(href)
        if parts.scheme or parts.netloc or not parts.path:
            return None
        # Joined with an absolute path, the folder of the page is left out.
        path = posixpath.join(posixpath.dirname(id), unquote(parts.path)).lstrip("/")
        return self._by_address.get(posixpath.normpath(path).removesuffix("/"))


def _files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name[0] != "." and name not in _SKIPPED_FOLDERS]
        yield from (Path(folder, name) for name in files if name.lower().endswith(ENDINGS))


def _names(id: str) -> Iterable[str]:
    """Yield the paths that may stand in links to a page: with its ending, without, as HTML, its folder."""
    stem = posixpath.splitext(id)[0]
    yield from (id, stem, f"{stem}.html", f"{stem}.md")
    if posixpath.basename(stem).lower() in ("index", "readme", "_index"):
        yield posixpath.dirname(stem) or "."


def read_markdown(content: str) -> Page:
    """Read a page of CommonMark with tables, and YAML front matter. Raises YAMLError if that is damaged."""
    page = Page()
    if front := _FRONT.match(content):
        content = content[front.end() :]
        given = yaml.safe_load(front[1])
        if isinstance(given, dict):
            page.title = str(given.pop("title", None) or "")
            # Dates become text, as JSON has none.
            page.fields = orjson.loads(orjson.dumps(given, option=orjson.OPT_NON_STR_KEYS))
    found = read_html(MarkdownIt("commonmark").enable("table").render(content))
    page.headings, page.text, page.links = found.headings, found.text, found.links
    return page


def read_html(content: str) -> Page:
    """Read a page of HTML: what is in <main> or <article>, if it has one."""
    reader = _Reader()
    reader.feed(content)
    reader.close()
    return reader.page()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self._title: list[str] = []
        self._description = ""
        # Text, headings and links of the whole page, and of its main part.
        self._parts = (_Part(), _Part())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta" and (given.get("name") or "").lower() == "description":
            self._description = (given.get("content") or "").strip()
        if tag not in _EMPTY:
            self._open.append(tag)
        for part in self._here():
            part.begin(tag, given.get("href") if tag == "a" else None)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            for part in self._here():
                part.end(tag)
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if "title" in self._open and "svg" not in self._open:
            self._title.append(data)
            return
        for part in self._here():
            part.add(data)

    def _here(self) -> Iterable[_Part]:
        if not _OUTSIDE.isdisjoint(self._open):
            return ()
        is_main = "main" in self._open or "article" in self._open
        return self._parts if is_main else self._parts[:1]

    def page(self) -> Page:
        part = self._parts[1] if self._parts[1].text().strip() else self._parts[0]
        fields = {"description": self._description} if self._description else {}
        title = " ".join("".join(self._title).split())
        return Page(title, part.headings, part.text(), part.links, fields)


class _Part:
    def __init__(self) -> None:
        self.headings: list[str] = []
        self.links: list[tuple[str, str]] = []
        self._pieces: list[str] = []
        self._heading: list[str] | None = None
        self._link: tuple[str, list[str]] | None = None

    def begin(self, tag: str, href: str | None) -> None:
        if tag in _BLOCKS:
            self._pieces.append("\n")
        if tag in _HEADINGS:
            self._heading = []
        if href is not None:
            self._link = (href, [])

    def end(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._pieces.append("\n")
        if tag in _HEADINGS and self._heading is not None:
            # Generators of sites end a heading with a link to itself, "¶".
            if heading := " ".join("".join(self._heading).split()).rstrip("¶").rstrip():
                self.headings.append(heading)
            self._heading = None
        if tag == "a" and self._link is not None:
            href, words = self._link
            if text := " ".join("".join(words).split()):
                self.links.append((href, text))
            self._link = None

    def add(self, data: str) -> None:
        self._pieces.append(data)
        if self._heading is not None:
            self._heading.append(data)
        if self._link is not None:
            self._link[1].append(data)

    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._pieces).split("\n"))
        return "\n".join(kept for line in lines if (kept := line.removesuffix("¶")))
