"""From the files of a public source to the files of a collection.

A parser gets the downloaded files by name and returns the files to write: rows of JSON for `….jsonl.gz`, rows of cells
with their header for `….tsv` and `….tsv.gz`.

Splits are drawn by a hash of the pair, or of the query where it has one answer (``split_of``). A tenth of the pairs is
in no split, and queries of that tenth are left out.
"""

from __future__ import annotations

import bz2
import lzma
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fullrank.errors import FullrankError
from fullrank_trainer.collection.pairs import hashed
from fullrank_trainer.lines import QRELS_HEADER

Files = dict[str, list[Any]]
"""Path in the collection → its rows."""

Shares = tuple[tuple[str, float], ...]
OF_QUERIES: Shares = (("test", 0.15), ("valid", 0.05), ("train", 0.70))
OF_LINKS: Shares = (("test", 0.25), ("valid", 0.05), ("train", 0.60))


class SourceError(FullrankError):
    """A downloaded file is not what the parser reads."""


def split_of(key: str, shares: Shares) -> str | None:
    """Return the split of a pair or query by a hash of its key; None for the tenth that has none."""
    place, end = hashed(key, b"split", 8) / 2.0**64, 0.0
    for name, share in shares:
        end += share
        if place < end:
            return name
    return None


def qrels(pairs: Iterable[tuple[str, str]], keys: Iterable[str], shares: Shares) -> Files:
    """Return the judgements of pairs, each in the split of its key."""
    found: Files = {f"qrels/{name}.tsv": [QRELS_HEADER] for name in ("train", "valid", "test")}
    for (query, document), key in zip(pairs, keys, strict=True):
        split = split_of(key, shares)
        if split is not None:
            found[f"qrels/{split}.tsv"].append((query, document, "1"))
    return found


def link_qrels(links: Iterable[tuple[str, str]]) -> Files:
    """Return the judgements of links between documents."""
    pairs = sorted(set(links))
    return qrels(pairs, ["\t".join(pair) for pair in pairs], OF_LINKS)


# tldr: pages of commands, and the tasks that they describe in several languages.

_LANGUAGES = {"en": "pages", "ko": "pages.ko", "ja": "pages.ja"}


def tldr(files: Mapping[str, Path]) -> Files:
    """English pages are the documents, the sentences above their commands in each language the queries."""
    pages = _read_pages(files["tldr.tar.gz"])
    english = {id: text for (folder, id), text in sorted(pages.items()) if folder == "pages"}
    found: Files = {"corpus.jsonl.gz": [_page(id, text) for id, text in english.items()]}
    for language, folder in _LANGUAGES.items():
        tasks = {
            f"{language}/{id}#{number}": (id, task)
            for id in english
            for number, task in enumerate(_tasks(pages.get((folder, id), "")))
        }
        pairs = [(query, id) for query, (id, _) in tasks.items()]
        judged = qrels(pairs, tasks, OF_QUERIES)
        kept = {row[0] for rows in judged.values() for row in rows[1:]}
        found |= {f"{language}/{path}": rows for path, rows in judged.items()}
        found[f"{language}/queries.jsonl.gz"] = [
            {"_id": query, "text": text} for query, (_, text) in tasks.items() if query in kept
        ]
    return found


def _read_pages(archive: Path) -> dict[tuple[str, str], str]:
    """Return (folder of the language, platform/name) → the text of the page."""
    pages = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = member.name.split("/")
            if len(parts) != 4 or not member.isfile() or not parts[3].endswith(".md"):
                continue
            if parts[1] in _LANGUAGES.values() and (file := tar.extractfile(member)) is not None:
                pages[parts[1], f"{parts[2]}/{parts[3][:-3]}"] = file.read().decode()
    if not pages:
        raise SourceError(f"{archive}: no pages/PLATFORM/NAME.md in it")
    return pages


def _page(id: str, text: str) -> dict[str, str]:
    described, commands = [], []
    for line in text.split("\n"):
        if line.startswith(">") and "ore information: <" not in line:
            described.append(re.sub(r"<[^>]*>", "", line[1:]))
        elif line.startswith("`") and line.endswith("`"):
            commands.append(_command(line[1:-1]))
    return {
        "_id": id,
        "title": id.partition("/")[2],
        "text": _one_line(" ".join(described)),
        "commands": _one_line(" ; ".join(commands)),
    }


def _command(text: str) -> str:
    """Write `tar {{[-x|--extract]}}` as `tar -x --extract`."""
    return re.sub(r"\{\{(.*?)\}\}(?!\})", lambda m: re.sub(r"[\[\]|]", " ", m[1]), text)


def _tasks(text: str) -> list[str]:
    """Return the sentences above the commands, without marks: `[c]reate a `tar`:` is `create a tar`."""
    lines = [line[2:] for line in text.split("\n") if line.startswith("- ")]
    return [re.sub(r"[\[\]`]", "", line).strip().rstrip(":").strip() for line in lines]


# debian: descriptions of packages, and what they depend on.

_FIELDS = ("Depends", "Recommends", "Suggests", "Enhances")
_NAME = re.compile(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)")
MOST_NAMED = 100
"""So many of the most named targets are left out: everything depends on them."""


def debian(files: Mapping[str, Path], most_named: int = MOST_NAMED) -> Files:
    """Packages are the documents and the queries; relations between them are the links."""
    described = _descriptions(files["Translation-en.xz"], "Description-en")
    packages: dict[str, dict[str, str]] = {}
    for stanza in _stanzas(files["Packages.xz"]):
        packages.setdefault(stanza["Package"], stanza)
    corpus, kept = [], {}
    for name, stanza in packages.items():
        digest = stanza.get("Description-md5", "")
        title, text = _described(described.get((name, digest)) or stanza["Description"])
        if text:
            kept[name] = stanza
            section = stanza["Section"]
            corpus.append(
                {"_id": name, "title": f"{name}: {title}", "text": text, "section": section}
            )
    named = {name: _related(stanza) - {name} for name, stanza in kept.items()}
    counts = Counter(target for targets in named.values() for target in sorted(targets))
    most = {target for target, _ in counts.most_common(most_named)}
    links = [
        (name, target)
        for name, targets in named.items()
        for target in targets
        if target in kept and target not in most
    ]
    # A translation may be of an earlier description; it still describes the package.
    japanese = {
        name: _described(text)
        for (name, _), text in _descriptions(files["Translation-ja.bz2"], "Description-ja").items()
        if name in kept
    }
    return {
        "corpus.jsonl.gz": corpus,
        "ja/queries.jsonl.gz": [
            {"_id": name, "title": title, "text": text} for name, (title, text) in japanese.items()
        ],
        **link_qrels(links),
    }


def _stanzas(path: Path) -> Iterator[dict[str, str]]:
    """Yield the stanzas of an index of Debian: field → value, with its continuation lines."""
    unpack = bz2.decompress if path.suffix == ".bz2" else lzma.decompress
    for block in unpack(path.read_bytes()).decode().split("\n\n"):
        stanza: dict[str, str] = {}
        field = ""
        for line in block.strip("\n").split("\n"):
            if line.startswith((" ", "\t")):
                stanza[field] += "\n" + line
            elif line:
                field, _, value = line.partition(":")
                stanza[field] = value.strip()
        if stanza:
            yield stanza


def _descriptions(path: Path, field: str) -> dict[tuple[str, str], str]:
    """Return (package, MD5 of its English description) → the description in the language of the file."""
    return {(s["Package"], s["Description-md5"]): s[field] for s in _stanzas(path)}


def _described(description: str) -> tuple[str, str]:
    """Split a description into its first line and the rest as one line."""
    title, _, rest = description.partition("\n")
    lines = (line.strip() for line in rest.split("\n"))
    return title, _one_line(" ".join(line for line in lines if line != "."))


def _related(stanza: Mapping[str, str]) -> set[str]:
    """Return the names that a package names, alternatives and virtual packages included."""
    texts = (stanza.get(field, "").replace("\n", " ") for field in _FIELDS)
    return {name for text in texts for name in _NAME.findall(text)}


# wikispeedia: articles of a selection of Wikipedia, their links, and a game of finding a way along them.

GRAPH = "wikispeedia_paths-and-graph.tar.gz"
TEXTS = "wikispeedia_articles_plaintext.tar.gz"


def wikispeedia(files: Mapping[str, Path]) -> Files:
    """Articles are the documents and the queries; links between them are relevant."""
    tables = _read_members(files[GRAPH], ".tsv")
    texts = {unquote(name): text for name, text in _read_members(files[TEXTS], ".txt").items()}
    try:
        articles = [unquote(row[0]) for row in _rows(tables["articles"])]
        links = [(unquote(row[0]), unquote(row[1])) for row in _rows(tables["links"])]
        paths = [unquote(row[3]).split(";") for row in _rows(tables["paths_finished"])]
        categories = [
            (unquote(row[0]), row[1].removeprefix("subject."))
            for row in _rows(tables["categories"])
        ]
    except (KeyError, IndexError) as error:
        raise SourceError(f"{files[GRAPH]}: a table or column is missing ({error})") from error
    known = {name for name in articles if name in texts}
    found: Files = {
        "corpus.jsonl.gz": [
            {"_id": name, "title": name.replace("_", " "), "text": _article(texts[name])}
            for name in articles
            if name in known
        ],
        "categories.tsv": [("corpus-id", "category-path"), *categories],
        **link_qrels((a, b) for a, b in links if a != b and {a, b} <= known),
    }
    header = ("page-id", "clicked-id", "clicks")
    found |= {f"clicks/{name}.tsv.gz": [header] for name, _ in OF_LINKS}
    for (page, clicked), count in sorted(_clicks(paths).items()):
        split = split_of(page, OF_LINKS)
        if split is not None and {page, clicked} <= known:
            found[f"clicks/{split}.tsv.gz"].append((page, clicked, str(count)))
    return found


def _read_members(archive: Path, suffix: str) -> dict[str, str]:
    """Return the files of an archive by their name without folder and suffix."""
    with tarfile.open(archive) as tar:
        return {
            member.name.rpartition("/")[2].removesuffix(suffix): file.read().decode()
            for member in tar
            if member.name.endswith(suffix) and (file := tar.extractfile(member)) is not None
        }


def _rows(table: str) -> list[list[str]]:
    """Return the cells of a table, without its comments."""
    lines = (line for line in table.split("\n") if line and not line.startswith("#"))
    return [line.split("\t") for line in lines]


def _article(text: str) -> str:
    """Return an article, a paragraph or heading a line, without its frame."""
    paragraphs = [_one_line(each) for each in re.split(r"\n\s*\n", text)]
    kept = []
    # The first two are a mark of copyright and the title.
    for paragraph in paragraphs[2:]:
        if paragraph.startswith("Retrieved from"):
            break
        if paragraph and not paragraph.startswith("2007 Schools Wikipedia Selection"):
            kept.append(paragraph)
    return "\n".join(kept)


def _clicks(paths: Iterable[list[str]]) -> Counter[tuple[str, str]]:
    """Count the clicks of the games; `<` in a path returns to the page before."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in paths:
        back = [path[0]]
        for page in path[1:]:
            if page == "<":
                back = back[:-1] or back
            else:
                counts[back[-1], page] += 1
                back.append(page)
    return counts


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
