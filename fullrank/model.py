"""The contract of a model: two encoders, ``score = u·v + s·t + b``; the service knows nothing else.

A model that is no inner product brings a Scorer, which takes the place of that sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from fullrank.encoding import Encoded, Float32, Float64, Int32, Int64


@dataclass(frozen=True)
class Parts:
    """What a bundle stores of a model: JSON settings, arrays and lists of strings, each under a name."""

    config: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    strings: dict[str, Sequence[str]]


class TermShare(NamedTuple):
    """One word or phrase of a query: its share of u, and its sparse feature (-1 when it has none) and weight.

    A word that stands for several features has ascending int32 arrays of them, and float32 weights.
    """

    term: str
    dense: Float32
    feature: int | Int32
    weight: float | Float32


class WordScore(NamedTuple):
    """What one word (or “phrase”) of the query added to the score."""

    word: str
    learned: float
    exact: float


class Scorer(Protocol):
    """Scores of a model that is no inner product, for the documents it was made with.

    score = learned + exact + bias; a document's bits depend on the query and on that document alone.
    """

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """(learned, exact) of one encoded query for the given rows, float64 (rows,) each."""

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """What each word brought to one document's score; they add up to learned and to exact."""


class Model(Protocol):
    """Two encoders over one dense width N and one sparse width F."""

    @property
    def config(self) -> dict[str, Any]:
        """JSON settings, ``kind`` among them."""

    @property
    def n_dense(self) -> int:
        """N."""

    @property
    def n_sparse(self) -> int:
        """F."""

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """u and s of each text; bias 0. A batch gives the same bits as its texts one by one."""

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """v, t and the default bias of each document, given as field → text."""

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """A document used as a query: its fields joined in the model's order."""

    def query_terms(self, text: str) -> list[TermShare]:
        """The parts a query's encoding is made of, for explanations."""

    def scorer(self, documents: Encoded) -> Scorer | None:
        """How these documents are scored where that is not u·v + s·t + b; None where it is."""

    def parts(self) -> Parts:
        """What a bundle has to store."""


def field_text(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    """The named text fields joined by newlines; what is absent or no text is left out."""
    return "\n".join(value for name in names if isinstance(value := fields.get(name), str))
