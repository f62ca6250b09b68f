"""Counts of what a collection holds and of what is odd about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

_MAX_EXAMPLES = 3

_REMARKS = {
    "empty_documents": "documents with an empty text, kept",
    "empty_queries": "queries with an empty text, kept",
    "repeated_judgements": "judgements given more than once, kept once",
    "other_queries": "judgements of documents without a query here, left out",
    "self_links": "links from a document to itself, left out",
    "zero_grades": "judgements with a grade of zero or below, kept as not relevant",
    "values_without_judgement": "weights of pairs that are not judged relevant, left out",
    "queries_without_judgements": "queries that no split judges",
    "blank_lines": "blank lines, skipped",
}


@dataclass
class ReadReport:
    """Counts of one read collection.

    Attributes:
        judgements: judgements kept, by split.
        unknown_ids: judgements skipped because the corpus or the queries file lacks their id.
        unknown_examples: the first few of them, as "'id' (file:line)".
        empty_documents: documents with an empty text; they are kept.
        empty_queries: queries with an empty text; they are kept.
        repeated_judgements: judgements given more than once; one is kept.
        other_queries: inherited judgements of queries that this folder lacks; they are left out.
        self_links: links from a document to itself; they are left out.
        zero_grades: grades of zero or below; they are kept as "judged, not relevant".
        values_without_judgement: weights and counts of people of pairs that are not judged relevant; left out.
        queries_without_judgements: queries that no split judges; they are kept.
        blank_lines: blank lines; they are skipped.
    """

    documents: int = 0
    queries: int = 0
    judgements: dict[str, int] = field(default_factory=dict)
    unknown_ids: int = 0
    unknown_examples: list[str] = field(default_factory=list)
    empty_documents: int = 0
    empty_queries: int = 0
    repeated_judgements: int = 0
    other_queries: int = 0
    self_links: int = 0
    zero_grades: int = 0
    values_without_judgement: int = 0
    queries_without_judgements: int = 0
    blank_lines: int = 0

    def count_unknown(self, id: str, place: str) -> None:
        """Count a judgement of an unknown id; ``place`` is its file and line."""
        self.unknown_ids += 1
        if len(self.unknown_examples) < _MAX_EXAMPLES:
            self.unknown_examples.append(f"{id!r} ({place})")

    def as_dict(self) -> dict[str, Any]:
        """Return the counts under their names."""
        return asdict(self)

    def counts(self) -> dict[str, int]:
        """Return the counts that are not zero; those by split are left out."""
        return {name: n for name, n in vars(self).items() if isinstance(n, int) and n}

    def unknown_remark(self) -> str | None:
        """Return one sentence about judgements of unknown ids, or None if there are none."""
        if not self.unknown_ids:
            return None
        examples = ", ".join(self.unknown_examples)
        more = ", …" if self.unknown_ids > len(self.unknown_examples) else ""
        noun = "judgement" if self.unknown_ids == 1 else "judgements"
        return f"{self.unknown_ids:,} {noun} of unknown ids, skipped: {examples}{more}"

    def remarks(self) -> list[str]:
        """Return one sentence for each oddity that occurred."""
        unknown = self.unknown_remark()
        others = [
            f"{getattr(self, name):,} {text}"
            for name, text in _REMARKS.items()
            if getattr(self, name)
        ]
        return others if unknown is None else [unknown, *others]
