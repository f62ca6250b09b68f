"""How much likelier a string is a typing error of a known word than letters at random.

    odds(t) = Σ_w P(w) P(t | w) / Π_i (1 / A_i)        w: the known words one edit away from t

P(w) is the share of w among the words, P(t | w) that of the edit among all edits of w, and A_i the number of letters of
the script of the i-th letter. Of random strings at most one in c has odds of c or more (Markov's inequality). A short
string is one edit away from some rare word by chance, a long one hardly ever.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import mul

from fullrank.text.spelling import EDIT_WEIGHTS, Edit, Neighbour, Spelling


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
