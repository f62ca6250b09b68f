"""Judgements: qrels files, one for each split.

qrels/<split>.tsv[.gz]     tab-separated, header "query-id corpus-id score", integer scores
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.errors import CollectionError
from fullrank_trainer.collection.pairs import ById, Ids, PairReader, Pairs
from fullrank_trainer.lines import QRELS_HEADER, Lines, ReadReport, find_file, read_pairs

Qrels = Mapping[str, Mapping[str, int]]
"""query id → document id → grade; a grade above zero means relevant."""


_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_KNOWN_SPLITS = ("train", "valid", "test")


def read_qrels(
    lines: Lines,
    split: str,
    query_ids: Ids,
    document_ids: Ids,
    has_mates: bool,
    strict: bool,
    report: ReadReport,
) -> Pairs:
    """Read the judgements of one split. Raises CollectionError.

    Args:
        has_mates: a query is, or describes, the document of the same id, which is never its answer.
        strict: refuse unknown ids; otherwise count and skip their judgements.
    """
    known = (document_ids if has_mates else query_ids).rows
    pairs = PairReader(query_ids, document_ids, np.int32)
    for number, query, document, score in read_pairs(lines, QRELS_HEADER, report):
        if not _INTEGER.fullmatch(score):
            message = f"expected an integer of at most 9 digits, got {score!r}"
            lines.refuse(lines.error(number, f"field 'score': {message}"))
        elif query not in known or document not in document_ids.rows:
            name, id = ("corpus-id", document) if query in known else ("query-id", query)
            if strict:
                lines.refuse(lines.error(number, f"field {name!r}: unknown id {id!r}"))
            report.count_unknown(id, f"{lines.path.name}:{number}")
        elif query not in query_ids.rows:
            report.other_queries += 1
        elif has_mates and query == document:
            report.self_links += 1
        else:
            pairs.add(number, query_ids.rows[query], document_ids.rows[document], int(score))
    form = "field 'score': {pair} was judged {again.first} above, now {again.value}"
    found, grades, repeats = pairs.checked(lines, form)
    report.repeated_judgements += repeats
    report.zero_grades += int(np.count_nonzero(grades <= 0))
    report.judgements[split] = len(found)
    return replace(found, grades=grades)


def find_splits(folder: Path) -> list[tuple[str, Path]]:
    """Return (split, file) of a folder: train, valid, test, then other splits by name. Raises CollectionError."""
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
    queries: Path, parent: Path, query_ids: Ids, document_ids: Ids
) -> list[tuple[str, Path]]:
    """Return (split, file) of the parent's qrels if the queries describe its documents; else nothing.

    Raises CollectionError if some queries have the id of a document and some do not.
    """
    is_above = queries.parent.resolve() != parent.resolve()
    if (
        not is_above
        or find_file(parent, "queries.jsonl")
        or not any(query in document_ids.rows for query in query_ids)
    ):
        return []
    files = find_splits(parent / "qrels")
    unknown = [query for query in query_ids if query not in document_ids.rows]
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


def count_answered(qrels: Mapping[str, Mapping[str, int]]) -> int:
    """Return how many queries have a relevant document."""
    return sum(any(grade > 0 for grade in grades.values()) for grades in qrels.values())


# Values of judgements, one file for each split, as clicks give them.
#
# weights/<split>.tsv[.gz]   header "query-id corpus-id weight": takes the place of |P|^−½ in the loss; above zero
# people/<split>.tsv[.gz]    header "query-id corpus-id people": how many people clicked, 1 or more
#
# A judgement without a weight has weight 1 if the split has weights. A query becomes clicked text of a document if at
# least two people clicked, or if the file does not say how many: else one person could write text into documents.

WEIGHTS, PEOPLE = "weights", "people"
"""Folders of the files, and columns of the pairs."""
COLUMNS = {WEIGHTS: "weight", PEOPLE: "people"}

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[0-9]{1,9}")
_CACHED_QUERIES = 1 << 10


def read_values(
    folder: Path,
    judgements: dict[str, Pairs],
    query_ids: Ids,
    document_ids: Ids,
    strict: bool,
    report: ReadReport,
    digests: MutableSequence[tuple[str, str]],
) -> None:
    """Add the weights or people of all splits to judgements; unless ``strict``, skip pairs without a judgement.

    A document that was deleted since has none. Raises CollectionError.
    """
    for split, file in find_splits(folder):
        lines = Lines(file)
        if split not in judgements:
            raise lines.error(1, f"there is no qrels/{split}.tsv whose judgements it could weigh")
        pairs, judged = PairReader(query_ids, document_ids, np.float64), judgements[split]
        column, qrels = COLUMNS[folder.name], ById(query_ids, document_ids, judged, "grades")
        for line, query, document, value in _read(lines, column, qrels, strict, report):
            pairs.add(line, query_ids.rows[query], document_ids.rows[document], value)
        form = f"field {column!r}: {{pair}} had {{again.first:g}} above"
        found, values, _ = pairs.checked(lines, form)
        given: dict[str, Any] = {folder.name: judged.aligned(found, values)}
        judgements[split] = replace(judged, **given)
        digests.append((f"{folder.name}/{split}", lines.digest()))


def _read(
    lines: Lines, column: str, qrels: Qrels, strict: bool, report: ReadReport
) -> Iterator[tuple[int, str, str, float]]:
    form = _NUMBER if column == COLUMNS[WEIGHTS] else _WHOLE
    # The pairs of a query are mostly one after another, and a table makes the grades of a query anew for each look-up.
    grades_of = lru_cache(_CACHED_QUERIES)(lambda query: qrels.get(query, {}))
    for number, query, document, text in read_pairs(lines, (*QRELS_HEADER[:2], column), report):
        value = float(text) if form.fullmatch(text) else 0.0
        if not (value > 0 and isfinite(value)):
            message = f"expected a number above 0, got {text!r}"
            lines.refuse(lines.error(number, f"field {column!r}: {message}"))
        elif grades_of(query).get(document, 0) > 0:
            yield number, query, document, value
        elif strict:
            message = f"{query!r} {document!r} is not judged to be relevant"
            lines.refuse(lines.error(number, message))
        else:
            report.values_without_judgement += 1
