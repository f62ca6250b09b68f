"""Which words of a query a document must have.

    all    every word that some document has
    auto   the same but common words if that leaves a document; else words that weigh at least half of those of the best
           document

A word weighs ln(1 + n / f), so common words are given up before rare ones, and one rare word alone decides nothing.
Parts of the documents choose together: which words occur at all, and which words the best document of all has.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Literal, NamedTuple, get_args

import numpy as np

from fullrank.encoding import Int64
from fullrank.kernels.required import choose_words, lack_words
from fullrank.retrieval.ranking import NONE_DELETED, Mask

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
        weights: Of the words.
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
            bits: int64 (n,), the words of each document, as ``Retriever.words_had`` returned them.
            removed: bool (n,), documents that are gone; None: no document is.
            deleted: bool (n,), these and documents that the search may not return; None: it may return all.
        """
        masks = (NONE_DELETED if mask is None else mask for mask in (removed, deleted))
        return Choice(*choose_words(bits, np.array(self.weights), *masks))

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
        mask = NONE_DELETED if deleted is None else deleted
        return lack_words(bits, np.array(self.weights), wanted, least, mask)

    def _weigh(self, bits: int) -> float:
        return sum(weight for place, weight in enumerate(self.weights) if bits >> place & 1)
