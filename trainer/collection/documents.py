"""Documents of a corpus file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document
from trainer.collection.lines import Lines, find_file, id_field, read_objects, string_field
from trainer.collection.report import ReadReport

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
    """Turn the object of a corpus line into a document, which keeps ``item`` as its fields."""
    id = item.pop("_id")
    return Document(id, item)
