"""Count the texts of a collection: in this process, or wherever a ``Counting`` counts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int64, Rows
from fullrank.models.contract import field_text
from fullrank.text.compounds import count_compounds
from fullrank.text.features import Counts, count_corpus
from fullrank.text.phrases import Phrases, phrases_of
from trainer.collection import Collection

Zeros = Callable[[Sequence[int], npt.DTypeLike], npt.NDArray[Any]]
"""Makes an array of zeros of a shape and dtype, as ``numpy.zeros`` does, but perhaps in a file."""


class Counting(Protocol):
    """Counts the texts of a collection; every one returns what ``InThisProcess`` returns, bit for bit."""

    def words(
        self, collection: Collection, fields: Sequence[str], zeros: Zeros = np.zeros
    ) -> tuple[Counts, Int64 | None]:
        """Count words.

        Args:
            collection: the collection.
            fields: of its documents.
            zeros: makes the arrays of the counts, if they are put together here.

        Returns:
            One matrix for each field, then one of the queries if they are not the documents; and in how many
            documents each word occurs, in any field, int64 (words,), if that is known already.
        """

    def compounds(self, collection: Collection, fields: Sequence[str]) -> list[str]:
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
        return count_corpus(columns_of(collection, fields), processes=self._processes), None

    def compounds(self, collection: Collection, fields: Sequence[str]) -> list[str]:
        """See Counting.compounds."""
        columns = columns_of(collection, fields)[: len(fields)]
        return count_corpus(columns, processes=self._processes, counter=count_compounds).words

    def phrases(self, collection: Collection, field: str) -> tuple[Phrases, Rows]:
        """See Counting.phrases."""
        texts = [field_text(document.fields, [field]) for document in collection.documents]
        return phrases_in(texts)


def phrases_in(texts: Sequence[str]) -> tuple[Phrases, Rows]:
    """Return the distinct phrases of some texts, and which one each text is: (texts, phrases)."""
    found = Phrases(sorted({*phrases_of(texts)} - {""}))
    return found, found.own(texts)


def columns_of(collection: Collection, fields: Sequence[str]) -> list[list[str]]:
    """Return the texts of each field of the documents, then those of the queries if they are not the documents."""
    columns: list[list[str]] = [[] for _ in fields]
    for document in collection.documents:
        for column, name in zip(columns, fields, strict=True):
            column.append(field_text(document.fields, [name]))
    if collection.queries is not None:
        columns.append([query.text for query in collection.queries])
    return columns
