"""Count the texts of a collection: in this process, or wherever a ``Counting`` counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fullrank.encoding import Int64, Rows
from fullrank.text.compounds import count_compounds
from fullrank.text.features import Counts, Zeros, count_corpus
from fullrank.text.phrases import Phrases, phrases_of
from fullrank_trainer.collection import Collection


class Counting(Protocol):
    """Counts the texts of a collection; every one returns what ``InThisProcess`` returns, bit for bit."""

    def words(
        self, collection: Collection, fields: Sequence[str], zeros: Zeros = np.zeros
    ) -> tuple[Counts, Int64 | None]:
        """Count words.

        Args:
            collection: the collection.
            fields: of its documents.
            zeros: makes the arrays of the counts.

        Returns:
            One matrix for each field, then one of the queries if they are not the documents; and in how many
            documents each word occurs, in any field, int64 (words,), if that is known already.
        """

    def compounds(self, collection: Collection, fields: Sequence[str]) -> Sequence[str]:
        """Return the compounds of some fields of the documents, ascending."""

    def phrases(self, collection: Collection, field: str) -> tuple[Phrases, Rows]:
        """Return the distinct phrases of a field, and which one each document has: (documents, phrases)."""


class InThisProcess:
    """Counts in this process and in helpers that it starts.

    Args:
        processes: their number, this one among them.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def words(
        self, collection: Collection, fields: Sequence[str], zeros: Zeros = np.zeros
    ) -> tuple[Counts, Int64 | None]:
        """See Counting.words."""
        columns = columns_of(collection, fields)
        return count_corpus(columns, processes=self._processes, zeros=zeros), None

    def compounds(self, collection: Collection, fields: Sequence[str]) -> Sequence[str]:
        """See Counting.compounds."""
        columns = [collection.field_texts(name) for name in fields]
        return count_corpus(columns, processes=self._processes, counter=count_compounds).words

    def phrases(self, collection: Collection, field: str) -> tuple[Phrases, Rows]:
        """See Counting.phrases."""
        return phrases_in(collection.field_texts(field))


def phrases_in(texts: Sequence[str]) -> tuple[Phrases, Rows]:
    """Return the distinct phrases of some texts, and which one each text is: (texts, phrases)."""
    found = Phrases(sorted({*phrases_of(texts)} - {""}))
    return found, found.own(texts)


def columns_of(collection: Collection, fields: Sequence[str]) -> list[Sequence[str]]:
    """Return the texts of each field of the documents, then those of the queries if they are not the documents."""
    columns = [collection.field_texts(name) for name in fields]
    if collection.queries is not None:
        columns.append(collection.query_texts)
    return columns
