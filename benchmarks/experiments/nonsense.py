"""Queries without a meaning, of several kinds, that contain no word of a collection.

    letters     random letters of the real queries
    keys        walks over a keyboard: "asdfgh jkl"
    syllables   random Hangul syllables, kana or Han characters
    shuffled    real queries, the letters of each word of four or more in another order, shorter words left out
    emoji       random emoji

A query that contains a word of the collection by chance, as it is or in the plural, is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.experiments.edits import NEAR_KEYS
from fullrank.text.folding import fold, singular
from fullrank.text.words import tokens, words

SEED = 7  # not that of the calibration
_LETTERS = (4, 12)  # of a word; the last number is not included
_SCRIPTS = ((0xAC00, 0xD7A3), (0x3041, 0x3096), (0x4E00, 0x9FA5))
_EMOJI = (0x1F300, 0x1F64F)

Draw = Callable[[np.random.Generator], str]


def keys_of(text: str) -> set[str]:
    """Return the words of a text, folded and in the singular; a word is what stands between spaces and punctuation."""
    return {singular(fold(" ".join(words(token)))) for token in tokens(text)} - {""}


def nonsense(kind: str, texts: Sequence[str], known: Iterable[str], count: int) -> list[str]:
    """Return queries of a kind without a known word.

    Args:
        kind: One of KINDS.
        texts: Real queries.
        known: The texts of the collection.
        count: How many.
    """
    rng, draw = np.random.default_rng(SEED), KINDS[kind](texts)
    meant = {key for text in known for key in keys_of(text)}
    found: list[str] = []
    while len(found) < count:
        query = draw(rng)
        if query and meant.isdisjoint(keys_of(query)):
            found.append(query)
    return found


def _letters(texts: Sequence[str]) -> Draw:
    letters = sorted({letter for text in texts for letter in text if letter.isalpha()})
    return _words(lambda rng: "".join(rng.choice(letters, rng.integers(*_LETTERS))))


def _keys(texts: Sequence[str]) -> Draw:
    def walk(rng: np.random.Generator) -> str:
        key = str(rng.choice(sorted(NEAR_KEYS)))
        found = key
        for _ in range(rng.integers(*_LETTERS) - 1):
            key = str(rng.choice(list(NEAR_KEYS[key])))
            found += key
        return found

    return _words(walk)


def _syllables(texts: Sequence[str]) -> Draw:
    def word(rng: np.random.Generator) -> str:
        first, last = _SCRIPTS[rng.integers(len(_SCRIPTS))]
        return "".join(map(chr, rng.integers(first, last + 1, rng.integers(2, 7)).tolist()))

    return _words(word)


def _shuffled(texts: Sequence[str]) -> Draw:
    def draw(rng: np.random.Generator) -> str:
        text = texts[int(rng.integers(len(texts)))]
        several = [word for word in text.split() if len(word) > 3]
        return " ".join("".join(rng.permutation(list(word))) for word in several)

    return draw


def _emoji(texts: Sequence[str]) -> Draw:
    return _words(lambda rng: chr(rng.integers(_EMOJI[0], _EMOJI[1] + 1)))


def _words(draw: Draw) -> Draw:
    """Return what draws one to three words."""
    return lambda rng: " ".join(draw(rng) for _ in range(rng.integers(1, 4)))


KINDS: dict[str, Callable[[Sequence[str]], Draw]] = {
    "letters": _letters,
    "keys": _keys,
    "syllables": _syllables,
    "shuffled": _shuffled,
    "emoji": _emoji,
}
