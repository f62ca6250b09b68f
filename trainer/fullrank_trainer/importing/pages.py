"""Read the Markdown and HTML pages of a site: passages by heading, front matter, and the links between them."""

from __future__ import annotations

import os
import posixpath
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from xml.parsers import expat

import orjson
import yaml
from markdown_it import MarkdownIt

from fullrank.errors import FullrankError
from fullrank_trainer.importing.rows import Row
from fullrank_trainer.importing.tables import encoding_of, opened
from fullrank_trainer.lines import QRELS_HEADER, id_problem

ENDINGS = (".md", ".markdown", ".html", ".htm")
_INDEXES = frozenset({"index", "readme", "_index"})
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
_FRONT = re.compile(r"\A(---|\+\+\+)\r?\n(.*?)\r?\n\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)
# Attributes of a heading in Pandoc, Python-Markdown and kramdown: {#id}, { #id .class }, {: #id key="value" }
_ATTRIBUTES = re.compile(r"\s*\{:?\s*(?=[#.])([^{}]*)\}$")
# What each passage repeats of its page. More headings would make long pages grow by their square.
_LEAD_WORDS, _CONTEXT_HEADINGS = 30, 40
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


# AssertionError: what html.parser raises for "<![x".
_UNREADABLE = (
    *(OSError, ValueError, TypeError, LookupError, yaml.YAMLError),
    *(AssertionError, RecursionError),
)


@dataclass
class Passage:
    """What a page says up to its first heading with an anchor, or after one of them."""

    title: str = ""
    anchor: str = ""
    text: str = ""
    links: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Page:
    """What a page says; ``fields`` has the rest of the front matter, or the description of HTML."""

    title: str
    headings: list[str]
    passages: list[Passage]
    fields: dict[str, Any] = field(default_factory=dict)


class Pages:
    """The pages of a folder, without hidden folders and node_modules, or those of a sitemap in its order.

    ``rows`` also notes the links of each passage.

    Args:
        source: The folder, or the sitemap, beside which the pages lie.
        address: The url of a page, in which {path} stands for its path without the ending; None: that of the sitemap.
        encoding: None: what the page says, else UTF-8.
    """

    def __init__(self, source: Path, address: str | None, encoding: str | None) -> None:
        self._root = source if source.is_dir() else source.parent
        self._address, self._encoding = address, encoding
        ids = [path.relative_to(self._root).as_posix() for path in sorted(_files(self._root))]
        self._by_path = {name: id for id in reversed(ids) for name in _names(id)}
        # Place, page, address and date of each; a sitemap may list pages that are not saved.
        self._pages: list[tuple[str, str | None, str | None, str]]
        if source.is_dir():
            self._pages = [
                (str(self._root / id), id, self._url(id), "") for id in ids if id != "404.html"
            ]
        else:
            self._pages = [*self._saved(_read_sitemap(source))]
        self.total = len(self._pages)
        self._by_url = {unquote(url): id for _, id, url, _ in self._pages if id and url}
        # By passage: page, anchor and text of each link.
        self._links: dict[str, list[tuple[str, str, str]]] = {}

    @property
    def columns(self) -> dict[str, str]:
        return {}

    def rows(self) -> Iterator[Row]:
        for place, id, url, modified in self._pages:
            given = {"url": url, "lastmod": modified}
            given = {name: value for name, value in given.items() if value}
            if id is None:
                yield Row(place, given, f"no page beside the sitemap for {url}")
            else:
                yield from self._page(id, given)

    def _url(self, id: str) -> str | None:
        if self._address is None:
            return None
        path, address = posixpath.splitext(id)[0], self._address
        if address.endswith("{path}/") and posixpath.basename(path).lower() in _INDEXES:
            path, address = posixpath.dirname(path), address if "/" in path else address[:-1]
        return address.replace("{path}", quote(path))

    def _saved(
        self, listed: list[tuple[str, str, str]]
    ) -> Iterator[tuple[str, str | None, str | None, str]]:
        """Find the pages of a sitemap: its folder may be that of the host, above it, or a folder of the site."""
        found = self._by_path.get
        paths = [_path_of(url) for _, url, _ in listed]
        leading = max(
            range(6), key=lambda n: len({found(_without(path, n)) for path in paths} - {None})
        )
        for (place, url, modified), path in zip(listed, paths, strict=True):
            id = found(_without(path, leading))
            yield place, id, url if id is None else self._url(id) or url, modified

    def _page(self, id: str, given: dict[str, Any]) -> Iterator[Row]:
        path = self._root / id
        try:
            page = self._read(path)
        except _UNREADABLE as error:
            place = str(path)
            reason: object = getattr(error, "strerror", None) or error
            if isinstance(error, UnicodeDecodeError):
                reason = f"{error}; name its encoding, such as --encoding cp1252"
            elif isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
                place = f"{path}:{error.problem_mark.line + 2}"  # after the line "---"
                reason = f"front matter: {error.problem}"
            yield Row(place, {"_id": id}, f"cannot be read: {' '.join(str(reason).split())}")
            return
        title = page.title or next(iter(page.headings), "") or Path(id).stem
        headings = [heading for heading in page.headings if heading != title]
        # The passage's own heading is among them, or a search for it would find the other passages first.
        lead = " ".join(page.passages[0].text.split()[:_LEAD_WORDS])
        context = "\n".join(filter(None, [lead, *headings[:_CONTEXT_HEADINGS]]))
        for passage in page.passages:
            name = f"{id}#{passage.anchor}" if passage.anchor else id
            if not id_problem(name):  # else it is no document
                self._links[name] = [
                    (*target, text)
                    for href, text in passage.links
                    if (target := self._target(id, href)) is not None and target[0] != id
                ]
            own = {
                **page.fields,
                **given,
                "_id": name,
                "title": passage.title or title,
                "page": title,
            }
            own["text"] = passage.text
            if passage.anchor:
                own.pop("description", None)
                own["page_context"] = context
                if "url" in own:
                    own["url"] = f"{own['url']}#{passage.anchor}"
            elif headings:
                own["headings"] = headings
            yield Row(str(path), {"_id": name} | own, is_part=bool(passage.anchor))

    def _read(self, path: Path) -> Page:
        content = path.read_bytes()
        is_html = path.suffix.lower() in (".html", ".htm")
        said = _CHARSET.search(content[:2048]) if is_html else None
        text = content.decode(
            self._encoding or (said[1].decode() if said else encoding_of(content))
        ).removeprefix("\ufeff")
        return read_html(text) if is_html else read_markdown(text)

    def _target(self, id: str, href: str) -> tuple[str, str] | None:
        try:
            parts = urlsplit(href)
        except ValueError:  # such as http://[
            return None
        if parts.netloc:
            page = self._by_url.get(unquote(href.partition("#")[0]))
            return None if page is None else (page, unquote(parts.fragment))
        if parts.scheme or not parts.path:
            return None
        # Joined with an absolute path, the folder of the page is left out.
        path = posixpath.join(posixpath.dirname(id), unquote(parts.path)).lstrip("/")
        page = self._by_path.get(posixpath.normpath(path).removesuffix("/"))
        return None if page is None else (page, unquote(parts.fragment))

    def write(self, folder: Path, *, are_judged: bool) -> dict[str, int]:
        """Write the texts of links and, unless something else is judged, which passages link each other."""
        known = [
            (name, anchored if (anchored := f"{page}#{anchor}") in self._links else page, text)
            for name, found in self._links.items()
            for page, anchor, text in found
            if page in self._links  # a page that could not be read is no document
        ]
        pairs = sorted({(name, to) for name, to, _ in known})
        if pairs and not are_judged:
            (folder / "qrels").mkdir()
            lines = ["\t".join(QRELS_HEADER), *(f"{name}\t{to}\t1" for name, to in pairs), ""]
            (folder / "qrels" / "train.tsv").write_text("\n".join(lines), "utf-8")
        if known:
            lines = ["anchor\tcorpus-id", *(f"{text}\t{to}" for _, to, text in known), ""]
            (folder / "anchors.tsv").write_text("\n".join(lines), "utf-8")
        return {"pages": self.total, "links": len(pairs)}


def _files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name[0] != "." and name not in _SKIPPED_FOLDERS]
        yield from (Path(folder, name) for name in files if name.lower().endswith(ENDINGS))


def _path_of(address: str) -> str:
    parts = urlsplit(address)
    return posixpath.join(parts.netloc, unquote(parts.path).strip("/"))


def _without(path: str, leading: int) -> str:
    return "/".join(path.split("/")[leading:]) or "."


def _names(id: str) -> Iterable[str]:
    """Yield the paths that may stand in links to a page: with its ending, without, as HTML, its folder."""
    stem = posixpath.splitext(id)[0]
    yield from (id, stem, f"{stem}.html", f"{stem}.md")
    if posixpath.basename(stem).lower() in _INDEXES:
        yield posixpath.dirname(stem) or "."


def _read_sitemap(path: Path, *, is_listed: bool = False) -> list[tuple[str, str, str]]:
    """Return the place, address and date of each page; also of the sitemaps beside this one that it names.

    Raises:
        FullrankError: A sitemap is damaged or missing, or one that another lists is a list of sitemaps itself.
    """
    found: list[tuple[int, str, dict[str, str]]] = []
    parser = expat.ParserCreate(namespace_separator=" ")
    words: list[str] = []

    def start(tag: str, _: object) -> None:
        words.clear()
        if (kind := tag.rpartition(" ")[2]) in ("url", "sitemap"):
            found.append((parser.CurrentLineNumber, kind, {}))

    def end(tag: str) -> None:
        if (name := tag.rpartition(" ")[2]) in ("loc", "lastmod") and found:
            found[-1][2].setdefault(name, "".join(words).strip())

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = words.append
    try:
        with opened(path, None) as text:
            parser.Parse(text.read(), True)
    except expat.ExpatError as error:
        raise FullrankError(f"{path}:{error.lineno}: no sitemap: {error}") from error
    pages: list[tuple[str, str, str]] = []
    for line, kind, values in found:
        address = values.get("loc", "")
        try:
            name = _path_of(address).split("/")[-1]
        except ValueError:
            address = name = ""
        if not address or (kind == "sitemap" and not name):
            raise FullrankError(f"{path}:{line}: no address in <loc>: {values.get('loc', '')!r}")
        if kind == "url":
            pages.append((f"{path}:{line}", address, values.get("lastmod", "")))
        elif is_listed:
            raise FullrankError(f"{path}:{line}: a sitemap that another lists may list pages alone")
        else:
            pages += _read_sitemap(path.with_name(name), is_listed=True)
    return pages


def read_markdown(content: str) -> Page:
    """Read a page of CommonMark with tables, and front matter in YAML or TOML.

    Raises:
        YAMLError: The front matter is damaged; as TOML, ValueError.
    """
    title, fields = "", {}
    if front := _FRONT.match(content):
        content = content[front.end() :]
        given = yaml.safe_load(front[2]) if front[1] == "---" else tomllib.loads(front[2])
        if isinstance(given, dict):
            title = str(given.pop("title", None) or "")
            # Dates become text, as JSON has none.
            fields = orjson.loads(orjson.dumps(given, option=orjson.OPT_NON_STR_KEYS))
    page = read_html(MarkdownIt("commonmark").enable("table").render(content), makes_anchors=True)
    return Page(title, page.headings, page.passages, fields)


def read_html(content: str, *, makes_anchors: bool = False) -> Page:
    """Read a page of HTML: what is in <main> or <article>, if it has one.

    Args:
        makes_anchors: Headings without an anchor get that of most renderers of Markdown; else they begin no passage.
    """
    reader = _Reader(makes_anchors)
    reader.feed(content)
    reader.close()
    return reader.page()


class _Reader(HTMLParser):
    def __init__(self, makes_anchors: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self._depth: Counter[str] = Counter()  # how often a tag is in _open
        self._title: list[str] = []
        self._description = ""
        # The whole page, and its main part.
        self._parts = (_Part(makes_anchors), _Part(makes_anchors))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "meta" and given.get("name", "").lower() == "description":
            self._description = given.get("content", "").strip()
        if tag not in _EMPTY:
            self._open.append(tag)
            self._depth[tag] += 1
        for part in self._here():
            part.begin(tag, given)

    def handle_endtag(self, tag: str) -> None:
        if self._depth[tag]:
            for part in self._here():
                part.end(tag)
            closed = ""
            while closed != tag:
                closed = self._open.pop()
                self._depth[closed] -= 1

    def handle_data(self, data: str) -> None:
        if self._depth["title"] and not self._depth["svg"]:
            self._title.append(data)
            return
        for part in self._here():
            part.add(data)

    def _here(self) -> Iterable[_Part]:
        if any(self._depth[tag] for tag in _OUTSIDE):
            return ()
        is_main = self._depth["main"] or self._depth["article"]
        return self._parts if is_main else self._parts[:1]

    def page(self) -> Page:
        part = next((part for part in reversed(self._parts) if part.close()), self._parts[0])
        fields = {"description": self._description} if self._description else {}
        title = _line(self._title)
        # Generators add the name of the site: "Install - Manual", "Manual | Install".
        heading = next(iter(part.headings), "")
        if heading and (title.startswith(f"{heading} ") or title.endswith(f" {heading}")):
            title = heading
        return Page(title, part.headings, part.passages, fields)


class _Part:
    """Cuts what it is given into passages."""

    def __init__(self, makes_anchors: bool) -> None:
        self._makes_anchors = makes_anchors
        self.headings: list[str] = []
        self.passages = [Passage()]
        self._anchors = {""}
        self._pieces: list[str] = []
        self._heading: list[str] | None = None
        self._level = self._anchor = ""
        self._link: tuple[str, list[str]] | None = None

    def begin(self, tag: str, given: dict[str, str]) -> None:
        if tag in _BLOCKS:
            self._end_heading()
            self._pieces.append("\n")
        anchor = given.get("id") or (given.get("name", "") if tag == "a" else "")
        href = given.get("href") if tag == "a" else None
        if tag in _HEADINGS:
            self._heading, self._level = [], tag
            self._anchor = anchor or self._anchor
        elif self._heading is not None:
            is_own = href is not None and href.startswith("#")
            self._anchor = self._anchor or anchor or (href[1:] if is_own and href else "")
        elif anchor:
            # A section has it around its heading, or an empty link before it.
            self._anchor = anchor
        if href is not None:
            self._link = (href, [])

    def end(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._end_heading()
            self._pieces.append("\n")
        if tag == "a" and self._link is not None:
            href, words = self._link
            text = _line(words)
            if self._heading is not None and not any(map(str.isalnum, text)):
                # Generators of sites end a heading with a link to itself, such as "¶".
                del self._heading[len(self._heading) - len(words) :]
            elif text:
                self.passages[-1].links.append((href, text))
            self._link = None

    def add(self, data: str) -> None:
        if self._heading is not None:
            self._heading.append(data)
        else:
            self._pieces.append(data)
            if data.strip():
                self._anchor = ""
        if self._link is not None:
            self._link[1].append(data)

    def close(self) -> bool:
        """End the last passage; return whether the part says anything."""
        self._end_heading()
        self._end_passage()
        return bool(self.headings or self.passages[0].text)

    def _end_passage(self) -> None:
        lines = (" ".join(line.split()) for line in "".join(self._pieces).split("\n"))
        self.passages[-1].text = "\n".join(filter(None, lines))
        self._pieces = []

    def _end_heading(self) -> None:
        if self._heading is None:
            return
        heading = _line(self._heading)
        anchor, self._heading, self._anchor = self._anchor, None, ""
        if self._makes_anchors and (own := _ATTRIBUTES.search(heading)):
            heading = heading[: own.start()]
            anchor = next((name[1:] for name in own[1].split() if name[0] == "#"), anchor)
        if not heading:
            return
        is_first = not self.headings
        self.headings.append(heading)
        if self._makes_anchors and not anchor:
            anchor = self._made(heading)
        if (is_first and self._level == "h1") or anchor in self._anchors:
            # The title of the page, or nothing that a url can lead to.
            self._pieces.append("" if is_first else heading)
            return
        self._anchors.add(anchor)
        self._end_passage()
        self.passages.append(Passage(heading, anchor))

    def _made(self, heading: str) -> str:
        """Return the anchor of a Markdown heading: in lower case, without signs, with hyphens for spaces."""
        anchor = made = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        n = 0
        while made in self._anchors:
            n += 1
            made = f"{anchor}-{n}"
        return made


def _line(pieces: Iterable[str]) -> str:
    return " ".join("".join(pieces).split())
