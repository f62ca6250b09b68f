"""Read judged collections of other formats: folders of BEIR, and documents, topics and qrels of TREC."""

from __future__ import annotations

import html
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank_trainer.importing.tables import (
    Bad,
    Object,
    Table,
    json_rows,
    open_file,
    open_table,
    opened,
    undecoded,
)
from fullrank_trainer.lines import QRELS_HEADER, find_file, open_bytes

_UNENDED = "no </DOC> ends this document"
_SPLITS = {"train": "train", "dev": "valid", "valid": "valid", "test": "test"}
_FIELD = re.compile(r"<([a-z][\w-]*)\b[^>]*>(.*?)</\1\s*>", re.DOTALL | re.IGNORECASE)
_BORDER = re.compile(r"(</?DOC>)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_TOPIC = re.compile(r"<top>(.*?)</top>|(<topic\b.*?)</topic>", re.DOTALL | re.IGNORECASE)
_NUMBER = re.compile(r"<num>\s*(?:Number:)?\s*(\S+?)\s*<|\bnumber=[\"']([^\"']+)", re.IGNORECASE)
_ASKED = re.compile(r"<(?:title|query)>\s*(?:Topic:)?([^<]*)", re.IGNORECASE)


def is_beir(source: Path) -> bool:
    return source.is_dir() and find_file(source, "corpus.jsonl") is not None


def open_judged(source: Path, encoding: str | None, mapping: Mapping[str, str | None]) -> Table:
    """Open a folder of BEIR; or a file or folder of TREC, whose content tells documents, topics and qrels apart.

    Raises:
        FullrankError: It has no documents.
    """
    if is_beir(source):
        corpus, queries = (find_file(source, f"{name}.jsonl") for name in ("corpus", "queries"))
        assert corpus is not None
        beside = _Beside(encoding, [queries] if queries else [], [*source.glob("qrels/*.tsv*")])
        return replace(open_file(corpus, encoding, mapping), write_more=beside.write)
    found: dict[str | None, list[Path]] = {"documents": [], "topics": [], "qrels": []}
    for path in filter(Path.is_file, sorted(source.rglob("*")) if source.is_dir() else [source]):
        found.setdefault(_kind_of(path), []).append(path)
    documents = found["documents"]
    if found["qrels"] and not found["topics"]:
        raise FullrankError(f"{found['qrels'][0]}: judgements, but there are no topics here")
    if not documents:
        raise FullrankError(f"{source}: no page, no table, no corpus.jsonl and no <DOC> of TREC")
    table = open_table(
        source, lambda: (d for path in documents for d in _documents(path, encoding)), mapping
    )
    beside = _Beside(encoding, found["topics"], found["qrels"])
    return replace(table, write_more=beside.write)


class _Beside:
    """Queries and judgements beside documents."""

    def __init__(self, encoding: str | None, topics: list[Path], qrels: list[Path]) -> None:
        self._encoding, self._topics, self._qrels = encoding, topics, sorted(qrels)

    def write(self, folder: Path) -> dict[str, Any]:
        """Write them into a collection; return their numbers. Raises FullrankError for a wrong line."""
        queries: dict[str, str] = {}
        for path in self._topics:
            for place, id, text in self._read_queries(path):
                if not id or not text:
                    raise FullrankError(f"{place}: a query needs an id and a text")
                queries[id] = text
        if queries:  # else the documents are the queries
            with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
                for id, text in queries.items():
                    file.write(json.dumps({"_id": id, "text": text}, ensure_ascii=False) + "\n")
        counts: Counter[str] = Counter()
        for path in self._qrels:
            words = re.split(r"\W+", path.name.lower())
            split = next((_SPLITS[word] for word in words if word in _SPLITS), "test")
            target = folder / "qrels" / f"{split}.tsv"
            target.parent.mkdir(exist_ok=True)
            is_new = not target.exists()
            with target.open("a", encoding="utf-8") as file:
                file.write("\t".join(QRELS_HEADER) + "\n" if is_new else "")
                for query, document, grade in self._read_qrels(path):
                    file.write(f"{query}\t{document}\t{grade}\n")
                    counts[split] += 1
        return {"queries": len(queries), "judgements": dict(counts)}

    def _read_queries(self, path: Path) -> Iterator[tuple[str, str, str]]:
        with opened(path, self._encoding) as text:
            if ".jsonl" in path.suffixes:
                for place, given in json_rows(path, text):
                    found: dict[str, Any] = {} if isinstance(given, Bad) else given
                    yield place, str(found.get("_id", "")), str(found.get("text", "")).strip()
                return
            content = text.read()
        for topic in _TOPIC.finditer(content):
            inside = topic[1] or topic[2]
            number, asked = _NUMBER.search(inside), _ASKED.search(inside)
            line = content.count("\n", 0, topic.start()) + 1
            yield (
                f"{path}:{line}",
                (number[1] or number[2]) if number else "",
                " ".join(asked[1].split()) if asked else "",
            )

    def _read_qrels(self, path: Path) -> Iterator[tuple[str, str, int]]:
        with opened(path, self._encoding) as text:
            for number, line in enumerate(text, 1):
                cells = line.split("\t") if ".tsv" in path.suffixes else line.split()
                if not line.strip() or (number == 1 and cells[0] == QRELS_HEADER[0]):
                    continue
                try:
                    query, *_, document, grade = cells
                    yield query.strip(), document.strip(), int(grade)
                except ValueError:
                    raise FullrankError(
                        f"{path}:{number}: expected a query, a document and a grade: {line.strip()!r}"
                    ) from None


def _kind_of(path: Path) -> str | None:
    """Tell what a file of TREC has by its first characters; None: nothing of TREC."""
    try:
        with open_bytes(path) as file:
            head = file.read(4096).decode("utf-8", "replace")
    except (EOFError, zlib.error) as error:
        raise FullrankError(f"{path}: cannot be read: {error}") from error
    if re.search(r"<DOC>", head, re.IGNORECASE):
        return "documents"
    if re.search(r"<top>|<topic\b", head, re.IGNORECASE):
        return "topics"
    return "qrels" if re.match(r"\S+\s+\S+\s+\S+\s+-?\d+\s*\n", head) else None


def _documents(path: Path, encoding: str | None) -> Iterator[Object]:
    lines: list[str] = []
    first = 0
    with opened(path, encoding) as text:
        for number, line in enumerate(text, 1):
            for piece in _BORDER.split(line):
                if piece.upper() == "<DOC>":
                    if first:
                        yield f"{path}:{first}", Bad(_UNENDED)
                    lines, first = [], number
                elif not first:
                    continue
                elif piece.upper() == "</DOC>":
                    yield f"{path}:{first}", _document("".join(lines))
                    first = 0
                else:
                    lines.append(piece)
    if first:
        yield f"{path}:{first}", Bad(_UNENDED)


def _document(content: str) -> dict[str, Any] | Bad:
    """Return the elements of a document by their names in lower case; several of a name are joined."""
    if problem := undecoded(content):
        return Bad(problem, content)
    found: dict[str, list[str]] = {}
    for name, inside in _FIELD.findall(content):
        text = html.unescape(_TAG.sub(" ", inside))
        lines = (" ".join(line.split()) for line in text.split("\n"))
        found.setdefault(name.lower(), []).extend(filter(None, lines))
    return {name: "\n".join(lines) for name, lines in found.items()}
