"""Whether a model knows a word of a query well enough that a match of it is evidence.

A word is what stands between spaces and punctuation. Where scripts meet, and in scripts without spaces, it has several
pieces, which are features of their own: "급f벗" is 급, f and 벗. A document that shares one piece with a word of which
the model knows nothing else has nothing to do with it. So

    a piece is known     if the model knows the word or another form of it; if it is near a known word, then if the
                         odds of a typing error are large enough (fullrank.text.odds)
    a word is familiar   if its known pieces have a large enough share of its letters
    a query is familiar  if a word is, or if neighbouring words are known as one

The share and the odds are calibrated on random words (trainer/evaluation/familiar.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from fullrank.models.contract import Model
from fullrank.models.known import MAX_WORDS, KnownWords
from fullrank.models.unseen import OpenModel
from fullrank.text.words import tokens, words

_CACHED = 1 << 14


@dataclass(frozen=True, slots=True)
class Piece:
    """What a model knows about a piece of a word.

    Attributes:
        features: Its lexical features.
        odds: Infinite for a known word or another form of one, 0 for an unknown word, else those of the typing error.
    """

    features: frozenset[int]
    odds: float


class Familiar:
    """What a model knows about the words of queries.

    Args:
        model: Any model; its features of unknown words do not count.
        known: Its words.
    """

    def __init__(self, model: Model, known: KnownWords) -> None:
        self._model = model.model if isinstance(model, OpenModel) else model
        self._known = known
        self._piece = lru_cache(_CACHED)(self._find)

    def knows(
        self,
        text: str,
        share: float,
        odds: float,
        is_known: Callable[[str], bool] = lambda piece: False,
    ) -> bool:
        """Return whether a query is familiar; one of more than `MAX_WORDS` unfamiliar pieces is a document, and is.

        Args:
            text: The query.
            share: The least share of known letters of a familiar word.
            odds: The least odds of a known typing error.
            is_known: Whether a piece that the model does not know is known elsewhere.
        """
        found, whole, looked = set[int](), list[str](), 0
        for token in tokens(text):
            pieces = words(token)
            looked += len(pieces)
            if looked > MAX_WORDS:
                return True
            if pieces and self.share(pieces, odds, is_known) >= share:
                return True
            found.update(*(self._piece(piece).features for piece in pieces))
            whole += pieces if len(pieces) == 1 else ()
        # What no single word has is of joined neighbours; those of several pieces are not words.
        return len(whole) > 1 and not found.issuperset(self._features(" ".join(whole)))

    def share(
        self, pieces: list[str], odds: float, is_known: Callable[[str], bool] = lambda piece: False
    ) -> float:
        """Return the share of letters in known pieces of a word; arguments as for ``knows``."""
        known = sum(
            len(piece) for piece in pieces if self._is_known(piece, odds) or is_known(piece)
        )
        return known / max(1, sum(map(len, pieces)))

    def odds(self, piece: str) -> float:
        """Return the odds of a piece: infinite for a known word, 0 for an unknown one."""
        return self._piece(piece).odds

    def _is_known(self, piece: str, odds: float) -> bool:
        found = self.odds(piece)
        return found > 0 and found >= odds

    def _features(self, text: str) -> list[int]:
        found: list[int] = self._model.encode_queries([text]).sparse.indices.tolist()
        return found

    def _find(self, piece: str) -> Piece:
        features = frozenset(self._features(piece))
        if self._known.is_known(piece):
            return Piece(features, math.inf)
        if not features:
            return Piece(features, 0.0)
        if (
            self._known.correction(piece) is None
        ):  # the model knows words by other means, such as stems
            return Piece(features, math.inf)
        return Piece(features, self._known.odds.of(piece))
