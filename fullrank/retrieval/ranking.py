"""Which words a document must have, and the result of one query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fullrank.kernels.arrays import Mask
from fullrank.kernels.evidence import choose_words, lack_words
from fullrank.kernels.select import places_left
from fullrank.storage.encoding import Float64, Int64

# Which words of a query a document must have.
#
#     all    every word that some document has
#     auto   the same but common words if that leaves a document; else words that weigh at least half of those of the
#            best document
#
# A word weighs ln(1 + n / f), so common words are given up before rare ones, and one rare word alone decides nothing.
# Parts of the documents choose together: which words occur at all, and which words the best document of all has.

Match = Literal["all", "any", "auto"]
MATCHES: tuple[Match, ...] = get_args(Match)

# Chosen on queries of a shop and on task descriptions: .4 to .6 rank alike, a word fewer at a time ranks worse.
_SHARE = 0.5


class Choice(NamedTuple):
    """Words as bits, the first one lowest.

    Attributes:
        present: Those that some document has, whatever a filter leaves out.
        best: Those of the document whose words weigh most.
    """

    present: int
    best: int


class Required(NamedTuple):
    """The words that documents must have.

    Attributes:
        words: The features of each word, ascending; a document that has one of them has the word.
        is_auto: Whether fewer words are required where no document has all.
        kept: The features of documents that need no word, ascending.
        is_strict: Whether every word is required, even one that no document has.
    """

    words: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    is_auto: bool
    kept: tuple[int, ...] = ()
    is_strict: bool = False

    def choice(self, bits: Int64, removed: Mask | None, deleted: Mask | None) -> Choice:
        """Return the choice of one part of the documents.

        Args:
            removed: bool (n,), documents that are gone; None: no document is.
            deleted: bool (n,), these and documents that the search may not return; None: it may return all.
        """
        weights = np.array(self.weights)
        return Choice(*choose_words(bits, weights, mask_of(removed), mask_of(deleted)))

    def together(self, choices: Iterable[Choice]) -> Choice:
        """Return the choice of all documents, given those of their parts."""
        present, best = zip(*choices, strict=True)
        return Choice(reduce(or_, present), max(best, key=self._weigh))

    def lacking(self, bits: Int64, choice: Choice, deleted: Mask | None) -> Mask | None:
        """Return ``deleted``, bool (n,), with all documents that lack words by a choice."""
        is_all = self.is_strict or not self.is_auto or choice.best == choice.present
        every = (1 << len(self.words)) - 1 if self.is_strict else choice.present
        if not (every if is_all else choice.best):
            return deleted
        wanted = every if is_all else 0
        least = _SHARE * self._weigh(choice.best)
        return lack_words(bits, np.array(self.weights), wanted, least, mask_of(deleted))

    def _weigh(self, bits: int) -> float:
        return sum(weight for place, weight in enumerate(self.weights) if bits >> place & 1)


_NONE_DELETED: Mask = np.zeros(0, np.bool_)
# Where at most one document in so many is left, most groups of 32 have none, and a kernel finds them sooner than numpy.
_FEW_LEFT = 20


def mask_of(deleted: Mask | None) -> Mask:
    """Return a mask for kernels, which take no None and may check no types."""
    return _NONE_DELETED if deleted is None else np.ascontiguousarray(deleted, np.bool_)


def remaining(count: int, deleted: Mask | None) -> Int64:
    """Return the rows of ``count`` documents that are not left out, ascending."""
    if deleted is None:
        return np.arange(count)
    n_left = count - int(np.count_nonzero(deleted))
    words = deleted[: count // 8 * 8].view(np.uint64)
    if n_left > count // _FEW_LEFT or not words.flags.aligned:
        return np.flatnonzero(~deleted)
    return places_left(words, deleted, n_left)


@dataclass(slots=True, eq=False)
class Ranking:
    """The result of one query, best first: score = dense + lexical + bias, all float64 (k,).

    Attributes:
        rows: int64 (k,), document rows.
        dense: u·v.
        lexical: s·t.
        bias: b.
        certified: The ranking is proven equal to that of the float64 scores of all documents.
        total: How many documents the search could have returned; a floor is not asked.
        found: How many documents reach the floor, if they were counted.
    """

    rows: Int64
    scores: Float64
    dense: Float64
    lexical: Float64
    bias: Float64
    certified: bool
    total: int
    found: int | None = None

    def take(self, places: Int64) -> Ranking:
        """Return the ranking of the documents at the given places, in the given order."""
        return replace(
            self,
            rows=self.rows[places],
            scores=self.scores[places],
            dense=self.dense[places],
            lexical=self.lexical[places],
            bias=self.bias[places],
        )

    def raised(self, lexical: Float64, bias: Float64) -> Ranking:
        """Return these documents in the same order with more added to the parts of their scores, float64 (k,) each."""
        lexical, bias = self.lexical + lexical, self.bias + bias
        return replace(self, scores=self.dense + lexical + bias, lexical=lexical, bias=bias)

    def with_others(self, others: Ranking) -> Ranking:
        """Return the ranking with documents of another one behind its own."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(others, name)])
            for name in ("rows", "scores", "dense", "lexical", "bias")
        }
        return replace(self, **columns)
