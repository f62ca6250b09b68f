"""Documents of a corpus file."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document
from fullrank_trainer.collection.lines import Lines, find_file, id_field, read_objects, string_field
from fullrank_trainer.collection.report import ReadReport

_TAG = r"</?(?:{})(?:\s[^<>]*)?/?>"
# Without an end of an element, <p> may be a key to press.
_MARKUP = re.compile(r"</[a-z][a-z0-9]*>|<br\s*/?>", re.I)
# Only tags of texts: anything else between < and > may be the text itself.
_INLINE = re.compile(
    _TAG.format("a|abbr|b|big|code|em|font|i|s|small|span|strong|sub|sup|tt|u"), re.I
)
_BLOCK = re.compile(
    _TAG.format(
        "blockquote|br|center|dd|div|dl|dt|h[1-6]|hr|img|li|ol|p|pre|table|tbody|td|th|thead|tr|ul"
    ),
    re.I,
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,31});", re.I)

_LAYOUT = (
    "A collection is a folder of these files (README.md#your-data):",
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
    """Find the corpus file of a collection, in its folder or one folder up.

    Raises:
        CollectionError: there is none, or a plain one and a gzipped one.
    """
    found = find_file(folder, "corpus.jsonl") or find_file(folder / "..", "corpus.jsonl")
    if found is None:
        raise no_collection(f"{folder}: no corpus.jsonl or corpus.jsonl.gz, here or one folder up")
    # Error messages with ".." inside a path are hard to read.
    return found.parent.resolve() / found.name if ".." in found.parts else found


def iter_documents(lines: Lines, report: ReadReport) -> Iterator[tuple[int, Document]]:
    """Read the documents of a corpus in the order of the file.

    Args:
        lines: the corpus file.
        report: its counts are updated.

    Returns:
        An iterator over (line number, document).

    Raises:
        CollectionError: lines are no valid documents, or the file has none.
    """
    seen: dict[str, int] = {}
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
        yield number, to_document(item)
    if not report.documents:
        raise CollectionError(f"{lines.path}: no documents")


def to_document(item: dict[str, Any]) -> Document:
    """Turn the object of a corpus line into a document, which keeps ``item`` as its fields.

    Markup of HTML in text becomes plain text, and blank text is left out.
    """
    id = item.pop("_id")
    for name, value in list(item.items()):
        if isinstance(value, str):
            if "<" in value or "&" in value:
                item[name] = value = _plain(value)
            if not value or value.isspace():
                del item[name]
    return Document(id, item)


def _plain(text: str) -> str:
    """Return text without tags of HTML, and with the characters that its entities name.

    Example:
        >>> _plain("Fish &amp; <b>chips</b><br>H<sub>2</sub>O, a &lt; b, vector<int>")
        'Fish & chips H2O, a < b, vector<int>'
    """
    if _MARKUP.search(text):
        text = _BLOCK.sub(" ", _INLINE.sub("", text))
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
