"""The last word of a query as the beginning of words that only live documents have.

No model knows how often these words occur, so the shortest come first: those with the least left to type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice

from fullrank.complete.prefixes import (
    LEAST_LETTERS,
    MOST,
    additions,
    has,
    last_word,
    places_beginning,
)
from fullrank.live.part import Part
from fullrank.models.contract import Model
from fullrank.models.unseen import OpenModel
from fullrank.models.widening import NO_ADDITIONS, Additions

_CACHED = 1 << 8
# Words with one beginning that are looked at.
_MOST_READ = 1000


class NewPrefixes:
    """Completes the last words of queries.

    Args:
        model: Encodes the queries.
        is_known: Whether the model was trained on a word.
        parts: The documents.
    """

    def __init__(
        self, model: Model, is_known: Callable[[str], bool], parts: Sequence[Part]
    ) -> None:
        self._model, self._is_known = model, is_known
        self._base, *added = parts
        self._parts = [part for part in (self._base, *added) if part.new_words]
        self._of_word = lru_cache(_CACHED)(self._find)

    def of(self, query: str) -> Additions:
        """Return the features that completions of its last word add to a query."""
        word = last_word(query) if self._parts else ""
        return self._of_word(word) if len(word) >= LEAST_LETTERS else NO_ADDITIONS

    def completions(self, word: str) -> list[str]:
        """Return the shortest new words that begin with a word and are longer, the shortest first."""
        found: dict[str, list[Part]] = {}
        for part in self._parts:
            places = places_beginning(part.new_words, word)
            for place in islice(places, _MOST_READ):
                found.setdefault(part.new_words[place], []).append(part)
        shortest = sorted(found, key=lambda other: (len(other), other))
        left = (other for other in shortest if self._is_in_any(other, found[other]))
        return list(islice(left, MOST))

    def _is_in_any(self, word: str, parts: Sequence[Part]) -> bool:
        """Return whether a document of these parts still has the word; words of the bundle always count."""
        model = self._model
        if self._base in parts or not isinstance(model, OpenModel):
            return bool(parts)
        features = model.features_of([word])
        return any(part.has_features(features).any() for part in parts)

    def _find(self, word: str) -> Additions:
        having = [part for part in self._parts if has(part.new_words, word)]
        is_known = self._is_known(word) or self._is_in_any(word, having)
        return additions(self._model, self.completions(word), is_known=is_known)
