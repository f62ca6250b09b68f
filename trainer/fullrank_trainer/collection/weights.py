"""Values of judgements, one file for each split, as clicks give them.

weights/<split>.tsv[.gz]   header "query-id corpus-id weight": takes the place of |P|^−½ in the loss; above zero
people/<split>.tsv[.gz]    header "query-id corpus-id people": how many people clicked, 1 or more

A judgement without a weight has weight 1 if the split has weights. A query becomes clicked text of a document if at
least two people clicked, or if the file does not say how many: else one person could write text into documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableSequence
from functools import lru_cache
from math import isfinite
from pathlib import Path

from fullrank_trainer.collection.judgements import QRELS_HEADER, Qrels, find_splits
from fullrank_trainer.collection.lines import Lines, read_pairs
from fullrank_trainer.collection.report import ReadReport
from fullrank_trainer.collection.table import Ids, PairReader

Values = Mapping[str, Mapping[str, float]]
"""query id → document id → value."""

WEIGHTS, PEOPLE = "weights", "people"
"""Folders of the files."""
COLUMNS = {WEIGHTS: "weight", PEOPLE: "people"}
MIN_PEOPLE = 2
"""So many people must click before a query becomes clicked text."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[0-9]{1,9}")
_CACHED_QUERIES = 1 << 10


def read_values(
    folder: Path,
    judgements: Mapping[str, Qrels],
    query_ids: Ids,
    document_ids: Ids,
    strict: bool,
    report: ReadReport,
    digests: MutableSequence[tuple[str, str]],
) -> dict[str, Values]:
    """Read the values of all splits of a collection.

    Args:
        folder: ``weights`` or ``people``, which need not exist.
        judgements: qrels by split.
        query_ids, document_ids: of the collection.
        strict: refuse values of pairs without a judgement; otherwise count and skip them, as the judgement of a
            document that was deleted since is skipped.
        report: its counts are updated.
        digests: gets the hash of each file.

    Raises:
        CollectionError: a line is malformed, a value is not above zero, a pair has two values, or a split has no qrels.
    """
    found: dict[str, Values] = {}
    for split, file in find_splits(folder):
        lines = Lines(file)
        if split not in judgements:
            raise lines.error(1, f"there is no qrels/{split}.tsv whose judgements it could weigh")
        pairs = PairReader(query_ids, document_ids, float)
        column = COLUMNS[folder.name]
        for line, query, document, value in _read(lines, column, judgements[split], strict, report):
            pairs.add(line, query_ids.rows[query], document_ids.rows[document], value)
        found[split], repeats = pairs.table()
        for again in repeats:
            if again.value != again.first:
                query, document = query_ids[again.query], document_ids[again.document]
                message = f"{query!r} {document!r} had {again.first:g} above"
                lines.refuse(lines.error(again.line, f"field {column!r}: {message}"))
        lines.check()
        digests.append((f"{folder.name}/{split}", lines.digest()))
    return found


def _read(
    lines: Lines, column: str, qrels: Qrels, strict: bool, report: ReadReport
) -> Iterator[tuple[int, str, str, float]]:
    """Yield the line, query, document and value of each pair that is judged to be relevant."""
    form = _NUMBER if column == COLUMNS[WEIGHTS] else _INTEGER
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
