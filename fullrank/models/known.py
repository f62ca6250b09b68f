"""The words that a model knows, and what it takes an unknown word for.

frequency(w) = exp(largest idf − idf_w)     relative to the rarest words, of the first table that has w
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cached_property, lru_cache
from operator import mul

import numpy as np

from fullrank.encoding import Float64
from fullrank.models.contract import Model
from fullrank.models.expansion import ExpansionModel
from fullrank.models.language import LanguageModel
from fullrank.models.linear import LinearModel
from fullrank.models.pairs import PairModel
from fullrank.storage.strings import Names
from fullrank.text.features import Vocabulary
from fullrank.text.spelling import EDIT_WEIGHTS, Edit, Neighbour, Spelling, Variants, variants_of
from fullrank.text.words import query_words, words

# How much likelier a string is a typing error of a known word than letters at random.
#
#     odds(t) = Σ_w P(w) P(t | w) / Π_i (1 / A_i)        w: the known words one edit away from t
#
# P(w) is the share of w among the words, P(t | w) that of the edit among all edits of w, and A_i the number of
# letters of the script of the i-th letter. Of random strings at most one in c has odds of c or more (Markov's
# inequality). A short string is one edit away from some rare word by chance, a long one hardly ever.


@lru_cache(maxsize=1 << 16)
def script_of(letter: str) -> str:
    """Return the script of a letter as Unicode's names begin, such as "LATIN"; "" for an unnamed character."""
    return unicodedata.name(letter, "").split(" ")[0]


class TypingOdds:
    """Weighs typing errors against random letters.

    Args:
        words: The known words.
        frequencies: Returns how often each of some known words occurs, in any unit.
        total: That of all words together.
        spelling: Finds the known words one edit away.
    """

    def __init__(
        self,
        words: Iterable[str],
        frequencies: Callable[[Sequence[str]], Sequence[float]],
        total: float,
        spelling: Spelling,
    ) -> None:
        letters = {letter for word in words for letter in word}
        self._letters = Counter(map(script_of, letters))
        self._frequencies, self._total, self._spelling = frequencies, total, spelling

    def of(self, typed: str) -> float:
        """Return the odds of a string; 0 if it is one edit away from no known word."""
        near = self._spelling.neighbours(typed)
        if not near:
            return 0.0
        frequencies = self._frequencies([one.word for one in near])
        found: float = sum(map(mul, frequencies, map(self._chance, near))) / self._total
        for letter in typed:
            found *= self._count(letter)
        return found

    def _count(self, letter: str) -> int:
        return max(1, self._letters[script_of(letter)])

    def _chance(self, near: Neighbour) -> float:
        """Return P(t | w): the share of a kind of edit, over the number of such edits of the word."""
        size, letters = len(near.word), self._count(near.word[0])
        ways = {
            Edit.MISSING: size,
            Edit.HALVED: size,
            Edit.EXTRA: (size + 1) * letters,
            Edit.DOUBLED: size,
            Edit.REPLACED: size * letters,
            Edit.SWAPPED: max(1, size - 1),
        }
        return EDIT_WEIGHTS[near.edit] / sum(EDIT_WEIGHTS.values()) / ways[near.edit]


MAX_WORDS = 32
"""Most words of a query that is read for typing errors; longer ones are documents."""
_CACHED = 1 << 14


class KnownWords:
    """The words that a model knows.

    Args:
        model: Any model. Of one whose words are stems, or that translates its queries, no word is known.

    Attributes:
        has: Returns whether the model knows a word as it is written.
        is_known: Returns whether the model knows a word, or another form of it.

    Example:
        >>> KnownWords(open_bundle(path).model).corrected("red aple")
        'red apple'
    """

    def __init__(self, model: Model) -> None:
        self.tables: list[tuple[Vocabulary, Float64]] = []
        self._lexical: list[tuple[Vocabulary, Float64]] = []
        self._sources: list[Variants] = []
        self.has = lru_cache(_CACHED)(self._has)
        self.is_known = lru_cache(_CACHED)(self._is_known)
        for _, leaf in model.leaves():
            part = leaf.model if isinstance(leaf, ExpansionModel) else leaf
            if isinstance(part, LinearModel):
                for vocabulary, idf in part.vocabularies:
                    found = np.exp(idf.max(initial=0.0) - idf.astype(np.float64))
                    self._add(vocabulary, found)
                self._lexical.append((part.sparse.words, found))
                self._sources += part.sparse.sources
            elif isinstance(part, PairModel):
                idf = part.texts.idf[: len(part.texts.words)].astype(np.float64)
                self._add(part.texts.words, np.exp(idf.max(initial=0.0) - idf))
            elif isinstance(part, LanguageModel) and not part.settings.get("stem"):
                shares = part.background.astype(np.float64)
                least = shares[shares > 0].min(initial=1.0)
                self._add(part.words, np.maximum(shares / least, 1.0))

    def _add(self, vocabulary: Vocabulary, frequency: Float64) -> None:
        if len(vocabulary.words) and all(vocabulary is not known for known, _ in self.tables):
            self.tables.append((vocabulary, frequency))

    def frequencies(self, words: Sequence[str]) -> list[float]:
        """Return how often words occur, relative to the rarest ones; 0 for unknown words."""
        names, found = Names(words), [0.0] * len(words)
        for vocabulary, frequency in self.tables:
            for i, row in enumerate(vocabulary.known.rows(names).tolist()):
                if row >= 0 and not found[i]:
                    found[i] = float(frequency[row])
        return found

    def document_frequency(self, word: str) -> float:
        """Return how often a word occurs in documents, relative to the rarest ones, as far as the model knows."""
        for vocabulary, frequency in self._lexical:
            row = vocabulary.known.find(word)
            if row >= 0:
                return float(frequency[row])
        return self.frequencies([word])[0]

    def _is_known(self, word: str) -> bool:
        """Return whether the model knows a word, or another form of it."""
        return self.has(word) or bool(variants_of(word, self._sources))

    def _has(self, word: str) -> bool:
        """Return whether the model knows a word as it is written."""
        return any(word in vocabulary.known for vocabulary, _ in self.tables)

    def warm(self) -> None:
        """Build what the first unknown word would build."""
        assert self.odds is not None

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(
            (word for vocabulary, _ in self.tables for word in vocabulary.words), self.frequencies
        )

    @cached_property
    def odds(self) -> TypingOdds:
        """How much likelier a string is a typing error of one of these words than random letters."""
        words = (word for vocabulary, _ in self.tables for word in vocabulary.words)
        total = max((float(frequency.sum()) for _, frequency in self.tables), default=1.0)
        return TypingOdds(words, self.frequencies, total, self._spelling)

    @cached_property
    def _near(self) -> Callable[[str], list[str]]:
        def near(word: str) -> list[str]:
            return [correction.word for correction in self._spelling.corrections(word)]

        return lru_cache(maxsize=_CACHED)(near)

    def correction(self, word: str, found: Callable[[], Container[str]] = tuple) -> str | None:
        """Return the known word one edit away that was most likely meant; None for a known word.

        Args:
            word: As it was typed.
            found: Returns words of the document that the query found: one of these was meant if it may be.
        """
        near = [] if self.is_known(word) else self._near(word)
        if len(near) < 2:
            return near[0] if near else None
        words = found()
        return next((other for other in near if other in words), near[0])

    def corrected(
        self,
        text: str,
        is_known: Callable[[str], bool] = lambda word: False,
        found: Callable[[], Container[str]] = tuple,
    ) -> str | None:
        """Return a query with each unknown word replaced by what was likely meant.

        Args:
            text: As it was typed.
            is_known: Whether an unknown word is known elsewhere, and stays.
            found: As for ``correction``.

        Returns:
            The query, which keeps its other words as they were typed; None if no word was replaced.
        """
        if all(map(self.has, query_words(text))):  # most queries
            return None
        tokens = text.split()
        parts = [words(token) for token in tokens]
        if sum(map(len, parts)) > MAX_WORDS:
            return None
        is_changed = False
        for place, own in enumerate(parts):
            near = [self.correction(word, found) for word in own]
            best = [
                word if other is None or is_known(word) else other
                for word, other in zip(own, near, strict=True)
            ]
            if best != own:
                tokens[place] = " ".join(best)
                is_changed = True
        return " ".join(tokens) if is_changed else None
