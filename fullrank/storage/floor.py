"""Which documents count as found: those that have a word of the query, or whose u·v or s·t reaches a floor.

A bias is the same for every query, so a high score alone does not say that a document has anything to do with the
query. No s·t suffices for a query of which the model knows no word well enough (fullrank.models.words).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # a manifest is read without kernels
    from fullrank.storage.encoding import Float64, Mask

# A part of a score; documents that share nothing with a query have 0.
_ANY = 1e-6
_STORED = ("dense", "lexical", "unseen")
# Absent in bundles of earlier releases.
_OF_QUERIES = ("share", "odds", "unfamiliar")
_OF_WORDS = ("per_word", "common")


@dataclass(frozen=True, slots=True)
class Floor:
    """What a document must reach to be found: a part of its score its floor, or the score `score` where that is given.

    Attributes:
        dense: of u·v; infinite where no u·v suffices.
        lexical: of s·t; infinite where no s·t suffices.
        unseen: of s·t among live documents, whose words may be unknown to some models of a blend and so weigh less.
        share: a query is familiar if some word has this share of its letters in known pieces; 0: every query is.
        odds: of a known typing error in such a word.
        unfamiliar: of u·v for an unfamiliar query, for which no s·t suffices.
        score: of the score, bias included, in place of both; None: they decide.
        per_word: how much more s·t a document without a word of the query needs for each further word of the query, as
            a share of ``lexical``; None: words are no evidence of their own, as in bundles of earlier releases.
        common: words with a larger ``Words.document_frequency`` are evidence only where the query has no other.
        words: the features of the words of one query, ascending; a document that has one of them is found.
    """

    dense: float = math.inf
    lexical: float = math.inf
    unseen: float = math.inf
    share: float = 0.0
    odds: float = 0.0
    unfamiliar: float = math.inf
    score: float | None = None
    per_word: float | None = None
    common: float = math.inf
    words: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Floor:
        """Read what ``json`` returned. Raises ValueError or TypeError where it is damaged."""
        keys = {*stored}
        if {*_OF_WORDS} <= keys:
            keys -= {*_OF_WORDS}
        if keys not in ({*_STORED}, {*_STORED, *_OF_QUERIES}):
            raise ValueError(
                f"expected {', '.join(_STORED)}, and {', '.join(_OF_QUERIES)} or none of these, "
                f"and {', '.join(_OF_WORDS)} or none of these"
            )
        values: dict[str, Any] = {n: math.inf if v is None else float(v) for n, v in stored.items()}
        return cls(**values)

    def json(self) -> dict[str, float | None]:
        """Return what bundles store; None for an infinite floor."""
        names = [*_STORED]
        names += _OF_QUERIES if self.share else ()
        names += _OF_WORDS if self.per_word is not None else ()
        parts = ((name, getattr(self, name)) for name in names)
        return {name: value if math.isfinite(value) else None for name, value in parts}

    def of_live(self, is_live: bool = True) -> Floor:
        """Return the floor of live documents, or this one for others."""
        return replace(self, lexical=min(self.lexical, self.unseen)) if is_live else self

    def of_share(self, share: float) -> Floor:
        """Return the floor where words of the query count a share of their weight."""
        if share == 1:
            return self
        return replace(self, lexical=share * self.lexical, unseen=share * self.unseen)

    def of_any_word(self) -> Floor:
        """Return the floor of documents that have any word of a familiar query, however little it weighs."""
        return replace(
            self, lexical=min(self.lexical, _ANY) if math.isfinite(self.lexical) else self.lexical
        )

    @property
    def can_be_any_word(self) -> bool:
        """Whether ``of_any_word`` asks for less."""
        return self.score is None and _ANY < self.lexical < math.inf

    def of_words(self, known: int, features: Iterable[int]) -> Floor:
        """Return the floor for a query of a number of known words, each of which adds to s·t and has some features."""
        more = 0.0 if self.per_word is None else self.per_word * max(0, known - 1)
        # One copy: `of_share` and `having` would make two.
        return Floor(
            self.dense, (1.0 + more) * self.lexical, (1.0 + more) * self.unseen,
            self.share, self.odds, self.unfamiliar, self.score, self.per_word, self.common,
            self.words if self.per_word is None else _ascending({*self.words, *features}),
        )  # fmt: skip

    def having(self, features: Iterable[int]) -> Floor:
        """Return the floor where features of words are evidence too, if words are."""
        if self.per_word is None:
            return self
        words = {*self.words, *features}
        return self if len(words) == len(self.words) else replace(self, words=_ascending(words))

    def or_having(self, feature: int) -> Floor:
        """Return the floor that documents with a feature reach, too."""
        return replace(self, words=_ascending({*self.words, feature}))

    def reached(self, dense: Float64, lexical: Float64, bias: Float64) -> Mask:
        """Return which documents reach the floor without a look at their words."""
        if self.score is not None:
            return np.asarray(dense + lexical + bias >= self.score)
        return (dense >= self.dense) | (lexical >= self.lexical)


def _ascending(words: set[int]) -> tuple[int, ...]:
    return tuple(sorted(words))


def least_of(floor: Floor) -> tuple[float, float, float]:
    """Return the least u·v, s·t and score that are evidence; ∞ where that part never is."""
    if floor.score is not None:
        return math.inf, math.inf, float(floor.score)
    return float(floor.dense), float(floor.lexical), math.inf
