"""Read a corpus that is larger than memory: check it in one pass, then read it in id order.

The first pass reads every line as strictly as a collection is read and stores where each document's
line begins, 8 bytes a document. It has to refuse an id that comes twice: while ids ascend it needs
16 bytes and the id for that, else about 150 bytes a document. If all ids ascend, the second pass
reads the file from front to back; otherwise it seeks. Gzipped input and pipes cannot seek, so they
are copied to an anonymous temporary file, which disappears with the process.
"""

from __future__ import annotations

import html
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import orjson

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Int64
from fullrank_trainer.collection.pairs import falls_into
from fullrank_trainer.lines import (
    Lines,
    ReadReport,
    Seen,
    find_file,
    id_field,
    read_objects,
    string_field,
)

_TAG = r"</?(?:{})(?:\s[^<>]*)?/?>"
# Without an end of an element, <p> may be a key to press.
_MARKUP = re.compile(r"</[a-z][a-z0-9]*>|<br\s*/?>", re.I)
# Only tags of texts: anything else between < and > may be the text itself.
_HIDDEN = re.compile(r"<(script|style|svg|iframe)\b[^<>]*>.*?</\1>|<!--.*?-->", re.I | re.S)
_INLINE = re.compile(
    _TAG.format(
        "a|abbr|b|big|code|del|em|font|i|ins|kbd|mark|s|small|span|strike|strong|sub|sup|tt|u"
    ),
    re.I,
)
_BLOCK = re.compile(
    _TAG.format(
        "article|blockquote|br|caption|center|dd|div|dl|dt|figcaption|figure|h[1-6]|hr|img|li|ol|p|pre|section"
        "|table|tbody|td|tfoot|th|thead|tr|ul"
    ),
    re.I,
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,31});", re.I)

_LAYOUT = (
    "A collection is a folder of these files (docs/guides/search/fields.md):",
    'corpus.jsonl      a document a line: {"_id": "a1", "title": "…", "text": "…"}',
    'queries.jsonl     a query a line: {"_id": "q1", "text": "…"}',
    "qrels/train.tsv   what was clicked: query-id<TAB>corpus-id<TAB>score, with that header",
)


def no_collection(message: str) -> CollectionError:
    """Return an error whose notes say what a collection is."""
    error = CollectionError(message)
    for line in _LAYOUT:
        error.add_note(line)
    return error


def find_corpus(folder: Path) -> Path:
    """Find the corpus file of a collection, in its folder or one folder up. Raises CollectionError."""
    found = find_file(folder, "corpus.jsonl") or find_file(folder / "..", "corpus.jsonl")
    if found is None:
        raise no_collection(f"{folder}: no corpus.jsonl or corpus.jsonl.gz, here or one folder up")
    # Error messages with ".." inside a path are hard to read.
    return found.parent.resolve() / found.name if ".." in found.parts else found


def iter_documents(lines: Lines, report: ReadReport) -> Iterator[tuple[int, Document]]:
    """Yield (line number, document) in the order of the file. Raises CollectionError."""
    for number, item in _checked(lines, report, {}):
        yield number, to_document(item)


def _checked(lines: Lines, report: ReadReport, seen: Seen) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object of a document); note its id in ``seen``. Raises CollectionError."""
    for number, item in read_objects(lines, report):
        try:
            id_field(lines, number, item, seen)
            for name in ("title", "text"):
                if name in item:
                    string_field(lines, number, item, name)
        except CollectionError as error:
            lines.refuse(error)
            continue
        if not item.get("text", "").strip():
            report.empty_documents += 1
        report.documents += 1
        yield number, item
    if not report.documents:
        raise CollectionError(f"{lines.path}: no documents")


def to_document(item: dict[str, Any]) -> Document:
    """Turn the object of a corpus line into a document, which keeps ``item`` as its fields.

    Markup of HTML in text and in lists of texts becomes plain text, and blank text is left out.
    """
    id = item.pop("_id")
    for name, value in list(item.items()):
        if isinstance(value, str):
            if "<" in value or "&" in value:
                item[name] = value = _plain(value)
            if not value or value.isspace():
                del item[name]
        elif isinstance(value, list):
            item[name] = [_plain(one) if isinstance(one, str) else one for one in value]
    return Document(id, item)


def _plain(text: str) -> str:
    """Return text without tags of HTML, and with the characters that its entities name.

    Example:
        >>> _plain("Fish &amp; <b>chips</b><br>H<sub>2</sub>O, a &lt; b, vector<int>")
        'Fish & chips H2O, a < b, vector<int>'
    """
    if _MARKUP.search(text):
        text = _BLOCK.sub(" ", _INLINE.sub("", _HIDDEN.sub(" ", text)))
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)


class CorpusFile:
    """An open corpus.jsonl[.gz]; a context manager that closes it.

    Attributes:
        fingerprint: sha256 of its content; compression does not change it.
    """

    def __init__(self, path: str | Path, *, scratch: Path | None = None) -> None:
        """Read and check the file.

        Args:
            scratch: folder for the copy of gzipped input and pipes; by default the system's
                folder of temporary files.

        Raises:
            CollectionError: a line is malformed; the message names file, line and field.
        """
        given = Path(path)
        self.path = find_corpus(given) if given.is_dir() else given
        self.report = ReadReport()
        lines = _PositionedLines(self.path)
        if self.path.suffix == ".gz" or self.path.is_fifo():
            lines.copy = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
        self._file = lines.copy
        try:
            self._line_starts = _line_starts(lines, self.report)
            self.fingerprint = lines.digest()
            if self._file is None:
                self._file = self.path.open("rb")
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._line_starts)

    def document(self, row: int) -> Document:
        """Return the document of a row, by id. Raises CollectionError if the file has changed since."""
        assert self._file is not None
        self._file.seek(int(self._line_starts[row]))
        try:
            return to_document(orjson.loads(self._file.readline()))
        except (orjson.JSONDecodeError, AttributeError, KeyError) as error:
            raise CollectionError(f"{self.path}: changed while it was read") from error

    def documents(self, start: int = 0) -> Iterator[Document]:
        """Iterate over the documents from a row on, in ascending id order."""
        return map(self.document, range(start, len(self)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> CorpusFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _PositionedLines(Lines):
    """Lines of a file, with the offset of the last one; optionally copy all bytes read."""

    copy: IO[bytes] | None = None
    line_start = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        end = 0
        for number, line in super().__iter__():
            self.line_start, end = end, end + len(line)
            if self.copy is not None:
                self.copy.write(line)
            yield number, line


class _Ids:
    """Ids and their line numbers, as a dict; packed while they ascend, because an equal one would not."""

    def __init__(self) -> None:
        self._text, self._ends, self._numbers = bytearray(), array("q"), array("q")
        self._last: str | None = None
        self._known: dict[str, int] | None = None

    def __contains__(self, id: str) -> bool:
        if self._known is None and (self._last is None or id > self._last):
            return False
        return id in self.known

    def __getitem__(self, id: str) -> int:
        return self.known[id]

    def __setitem__(self, id: str, number: int) -> None:
        if self._known is not None:
            self._known[id] = number
            return
        self._text += id.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._text))
        self._numbers.append(number)
        self._last = id

    @property
    def ascend(self) -> bool:
        return self._known is None

    @property
    def known(self) -> dict[str, int]:
        """The line number of each id, in the order of the file."""
        if self._known is None:
            text, start, self._known = bytes(self._text), 0, {}
            for end, number in zip(self._ends, self._numbers, strict=True):
                self._known[text[start:end].decode("utf-8", "surrogatepass")] = number
                start = end
            self._text, self._ends, self._numbers = bytearray(), array("q"), array("q")
        return self._known


def _line_starts(lines: _PositionedLines, report: ReadReport) -> Int64:
    ids, starts = _Ids(), array("q")
    for _ in _checked(lines, report, ids):
        starts.append(lines.line_start)
    found = np.array(starts, np.int64)
    if ids.ascend:
        return found
    in_file = list(ids.known)
    return found[sorted(range(len(in_file)), key=in_file.__getitem__)]


# Texts of links between documents.
#
#     anchors.tsv[.gz]    anchor<TAB>corpus-id, with that header: what a link says, and where it leads
#
# Documents get the texts that lead to them as a field "anchors", the most frequent first. One text in ten, by a hash
# that never changes, is left out, so that validation can ask for it.


FIELD = "anchors"
_HEADER = ["anchor", "corpus-id"]
_HELD_OUT = 26 / 256
_MOST = 50  # texts of a document


@dataclass(frozen=True)
class Anchors:
    """What links say: texts by document and how often, and texts that training does not read with where they lead."""

    learned: Mapping[str, Counter[str]] = field(default_factory=dict)
    held_out: Mapping[str, list[str]] = field(default_factory=dict)

    def add_to(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield documents with their anchors, unless they have a field of that name."""
        for document in documents:
            texts = self.learned.get(document.id)
            if texts and FIELD not in document.fields:
                joined = "\n".join(text for text, _ in texts.most_common(_MOST))
                document = replace(document, fields={**document.fields, FIELD: joined})
            yield document


def read_anchors(folder: Path, digests: list[tuple[str, str]]) -> Anchors:
    """Read the anchors of a folder that may have some. Raises CollectionError."""
    path = find_file(folder, "anchors.tsv")
    if path is None:
        return Anchors()
    lines = Lines(path)
    learned: dict[str, Counter[str]] = {}
    held_out: dict[str, list[str]] = {}
    for number, line in lines:
        try:
            cells = line.decode("utf-8-sig").rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise lines.error(number, "not utf-8") from None
        if number == 1:
            if cells != _HEADER:
                raise lines.error(1, "expected the header anchor<TAB>corpus-id")
        elif len(cells) != len(_HEADER):
            lines.refuse(lines.error(number, "expected anchor<TAB>corpus-id"))
        elif text := " ".join(cells[0].split()):
            if falls_into(text.casefold(), _HELD_OUT, b"anchors", size=1):
                ids = held_out.setdefault(text, [])
                if cells[1] not in ids:
                    ids.append(cells[1])
            else:
                learned.setdefault(cells[1], Counter())[text] += 1
    lines.check()
    digests.append((FIELD, lines.digest()))
    return Anchors(learned, held_out)
