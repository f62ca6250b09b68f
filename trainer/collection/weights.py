"""Values of judgements, one file for each split, as clicks give them.

weights/<split>.tsv[.gz]   header "query-id corpus-id weight": takes the place of |P|^−½ in the loss; above zero
people/<split>.tsv[.gz]    header "query-id corpus-id people": how many people clicked, 1 or more

A judgement without a weight has weight 1 if the split has weights. A query becomes clicked text of a document if at
least two people clicked, or if the file does not say how many: else one person could write text into documents.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableSequence
from math import isfinite
from pathlib import Path

from trainer.collection.judgements import QRELS_HEADER, Qrels, find_splits
from trainer.collection.lines import Lines, read_pairs
from trainer.collection.report import ReadReport

Values = dict[str, dict[str, float]]
"""query id → document id → value."""

WEIGHTS, PEOPLE = "weights", "people"
"""Folders of the files."""
COLUMNS = {WEIGHTS: "weight", PEOPLE: "people"}
MIN_PEOPLE = 2
"""So many people must click before a query becomes clicked text."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[0-9]{1,9}")


def read_values(
    folder: Path,
    judgements: Mapping[str, Qrels],
    strict: bool,
    report: ReadReport,
    digests: MutableSequence[tuple[str, str]],
) -> dict[str, Values]:
    """Read the values of all splits of a collection.

    Args:
        folder: ``weights`` or ``people``, which need not exist.
        judgements: qrels by split.
        strict: refuse values of pairs without a judgement; otherwise count and skip them, as the judgement of a
            document that was deleted since is skipped.
        report: its counts are updated.
        digests: gets the hash of each file.

    Raises:
        CollectionError: a line is malformed, a value is not above zero, a pair has two values, or a split has no qrels.
    """
    found = {}
    for split, file in find_splits(folder):
        lines = Lines(file)
        if split not in judgements:
            raise lines.error(1, f"there is no qrels/{split}.tsv whose judgements it could weigh")
        found[split] = _read(lines, COLUMNS[folder.name], judgements[split], strict, report)
        digests.append((f"{folder.name}/{split}", lines.digest()))
    return found


def _read(lines: Lines, column: str, qrels: Qrels, strict: bool, report: ReadReport) -> Values:
    form = _NUMBER if column == COLUMNS[WEIGHTS] else _INTEGER
    values: Values = {}
    for number, query, document, text in read_pairs(lines, (*QRELS_HEADER[:2], column), report):
        value = float(text) if form.fullmatch(text) else 0.0
        if not (value > 0 and isfinite(value)):
            raise lines.error(number, f"field {column!r}: expected a number above 0, got {text!r}")
        if qrels.get(query, {}).get(document, 0) <= 0:
            if strict:
                raise lines.error(number, f"{query!r} {document!r} is not judged to be relevant")
            report.values_without_judgement += 1
            continue
        of_query = values.setdefault(query, {})
        if of_query.setdefault(sys.intern(document), value) != value:
            raise lines.error(
                number, f"field {column!r}: {query!r} {document!r} had {of_query[document]:g} above"
            )
    return values
