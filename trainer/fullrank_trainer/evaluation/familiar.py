"""What random words do not reach, but real queries do: the standard of a familiar query (fullrank.models.familiar).

    odds     the 99.8th percentile of random words of `SHORTEST` letters: nearly all random words that are near a known
             one by chance stay below it, in every script
    share    midway between 1 and the 99th percentile of random words of several pieces, at least a half

Both are lowered to what the real queries need that have a known piece. Shorter words than `SHORTEST` are not looked at:
most strings of one to three letters are words, or parts of words, of some document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.models.familiar import Familiar
from fullrank.models.known import script_of
from fullrank.text.spelling import MIN_LETTERS
from fullrank.text.words import tokens, words

SHORTEST = MIN_LETTERS
_WORDS = 2_000
_ODDS, _SHARE = 0.998, 0.99
_LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Standard:
    """What makes a query familiar.

    Attributes:
        share: The least share of known letters of one of its words.
        odds: The least odds of a typing error that counts as known.
    """

    share: float
    odds: float


def random_words(texts: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """Return words like those of texts with each letter drawn at random, half of them within its script."""
    found = sorted({word for text in texts for word in text.split() if len(word) >= SHORTEST})
    letters = sorted({letter for text in texts for letter in text if letter.isalpha()})
    if not found or not letters:
        return []
    of_script: dict[str, list[str]] = {}
    for letter in letters:
        of_script.setdefault(script_of(letter), []).append(letter)

    def drawn(letter: str, is_within: bool) -> str:
        among = of_script.get(script_of(letter), letters) if is_within else letters
        return among[rng.integers(len(among))]

    return [
        "".join(drawn(letter, bool(place % 2)) for letter in found[rng.integers(len(found))])
        for place in range(count)
    ]


def calibrate_standard(
    familiar: Familiar, texts: Sequence[str], rng: np.random.Generator
) -> Standard:
    """Choose the standard of a model by random words and real queries."""
    made_up = [words(token) for word in random_words(texts, _WORDS, rng) for token in tokens(word)]
    odds: dict[str, list[float]] = {}
    for piece in (piece for several in made_up for piece in several if len(piece) >= SHORTEST):
        odds.setdefault(script_of(piece[0]), []).append(_odds(familiar, piece[:SHORTEST]))
    chance = max((float(np.quantile(several, _ODDS)) for several in odds.values()), default=0.0)
    real = [[words(token) for token in tokens(text)] for text in texts]
    needed = [
        max((familiar.odds(piece) for pieces in several for piece in pieces), default=0.0)
        for several in real
    ]
    chance = min([chance, *(odds for odds in needed if odds)])

    several = [pieces for pieces in made_up if len(pieces) > 1]
    shares = [familiar.share(pieces, chance) for pieces in several]
    noise = float(np.quantile(shares, _SHARE)) if shares else 0.0
    share = max(_LEAST_SHARE, (1 + noise) / 2)
    reached = [
        max((familiar.share(p, chance) for p in pieces if p), default=0.0) for pieces in real
    ]
    return Standard(min([share, *(value for value in reached if value)]), chance)


def _odds(familiar: Familiar, piece: str) -> float:
    """Return the odds of a typing error; 0 for a known word and for what no known word is near to."""
    odds = familiar.odds(piece)
    return odds if np.isfinite(odds) else 0.0
