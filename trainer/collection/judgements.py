"""Judgements: qrels files, one for each split.

qrels/<split>.tsv[.gz]     tab-separated, header "query-id corpus-id score", integer scores
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fullrank.errors import CollectionError
from trainer.collection.lines import Lines, find_file, read_pairs
from trainer.collection.report import ReadReport

Qrels = dict[str, dict[str, int]]
"""query id → document id → grade; a grade above zero means relevant."""

QRELS_HEADER = ("query-id", "corpus-id", "score")

_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_KNOWN_SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class QrelsReader:
    """Read the qrels files of one collection.

    Attributes:
        query_ids: ids of the collection's queries.
        document_ids: ids of its documents.
        has_mates: a query is, or describes, the document of the same id, which is never its answer.
        strict: refuse unknown ids; otherwise count and skip their judgements.
        report: its counts are updated.
    """

    query_ids: set[str]
    document_ids: set[str]
    has_mates: bool
    strict: bool
    report: ReadReport

    def read(self, lines: Lines, split: str) -> Qrels:
        """Read the judgements of one split.

        Raises:
            CollectionError: a line is malformed, a pair has two different grades, or, if strict,
                an id is unknown.
        """
        report = self.report
        qrels: Qrels = {}
        for number, query, document, score in read_pairs(lines, QRELS_HEADER, report):
            if not _INTEGER.fullmatch(score):
                raise lines.error(number, f"field 'score': expected an integer, got {score!r}")
            grade = int(score)
            if self._is_unknown(lines, number, query, document):
                continue
            if query not in self.query_ids:
                report.other_queries += 1
                continue
            if self.has_mates and query == document:
                report.self_links += 1
                continue
            grades = qrels.setdefault(query, {})
            document = sys.intern(document)  # one string for all of its judgements
            if document in grades:
                if grades[document] != grade:
                    raise lines.error(
                        number,
                        f"field 'score': {query!r} {document!r} was judged {grades[document]} above,"
                        f" now {grade}",
                    )
                report.repeated_judgements += 1
                continue
            if grade <= 0:
                report.zero_grades += 1
            grades[document] = grade
        report.judgements[split] = sum(len(grades) for grades in qrels.values())
        return qrels

    def _is_unknown(self, lines: Lines, number: int, query: str, document: str) -> bool:
        """Return whether an id of a line is unknown, and count it. Raises if strict."""
        known_queries = self.document_ids if self.has_mates else self.query_ids
        if query not in known_queries:
            name, id = "query-id", query
        elif document not in self.document_ids:
            name, id = "corpus-id", document
        else:
            return False
        if self.strict:
            raise lines.error(number, f"field {name!r}: unknown id {id!r}")
        self.report.count_unknown(id, f"{lines.path.name}:{number}")
        return True


def find_splits(folder: Path) -> list[tuple[str, Path]]:
    """Find the files of splits in a folder.

    Returns:
        (split, file): train, valid, test, then other splits by name.

    Raises:
        CollectionError: a split has a plain file and a gzipped one.
    """
    names = {
        file.name.removesuffix(".gz").removesuffix(".tsv")
        for pattern in ("*.tsv", "*.tsv.gz")
        for file in folder.glob(pattern)
    }
    ordered = [name for name in _KNOWN_SPLITS if name in names]
    ordered += sorted(names.difference(_KNOWN_SPLITS))
    files = []
    for name in ordered:
        file = find_file(folder, f"{name}.tsv")
        if file is not None:
            files.append((name, file))
    return files


def find_inherited_qrels(
    queries: Path, parent: Path, query_ids: set[str], document_ids: set[str]
) -> list[tuple[str, Path]]:
    """Find the parent folder's qrels for queries that describe its documents.

    Args:
        queries: queries file of a folder without its own qrels.
        parent: folder of the corpus.
        query_ids: ids in ``queries``.
        document_ids: ids in the corpus.

    Returns:
        (split, file); empty if the parent's qrels judge queries or no query id is a document's.

    Raises:
        CollectionError: some queries have the id of a document and some do not.
    """
    is_above = queries.parent.resolve() != parent.resolve()
    if not is_above or find_file(parent, "queries.jsonl") or query_ids.isdisjoint(document_ids):
        return []
    files = find_splits(parent / "qrels")
    unknown = query_ids - document_ids
    if files and unknown:
        raise CollectionError(
            f"{queries}: field '_id': {min(unknown)!r} is no document. The folder has no qrels of its"
            f" own, so those of {parent / 'qrels'} count, and they judge documents: give every query"
            f" the id of the document it describes ({len(unknown):,} of {len(query_ids):,} have none),"
            " or the folder its own qrels"
        )
    return files


def relevant(grades: Mapping[str, int]) -> Iterable[str]:
    """Iterate over the document ids with a grade above zero."""
    return (document for document, grade in grades.items() if grade > 0)
