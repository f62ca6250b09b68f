"""Compounds: words that some writers join and others part, wi-fi and wifi, 500 ml and 500ml.

The segmentation parts words at every character that is no letter or digit, so a compound is written as its parts and
spaces, like a 2-gram.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from fullrank.kernels.arrays import Int64
from fullrank.kernels.tokens import BETWEEN, EITHER, JOIN, LETTER
from fullrank.text.words import words

MAX_PARTS = 4
_MAX_LETTERS = 40
_CACHED = 1 << 14

# What joins the parts: hyphens, apostrophes, full stops, low lines, middle dots, ampersands, quotation marks (Hebrew
# acronyms), soft hyphens and non-joiners (Persian).
_JOINS = "-\u2010\u2011'\u2019._\u00b7&\"\u05f4\u00ad\u200c\u200d"
# Only from the beginning of a word, and without going back: most words are joined to no other.
_CHAIN = re.compile(rf"(?<![^\W_])[^\W_]++(?:[{_JOINS}][^\W_]++)+")
# What often stands before or after a word.
_AROUND = ".,;:()!?\"'"
# The genitive is no compound: reader's.
_GENITIVE = re.compile("['\u2019]s$")
_ALTERNATION = re.compile(r"[0-9]+|[^\W\d_]+")

KINDS = np.array(
    [
        EITHER if c > 127 else LETTER if chr(c).isalnum() else JOIN if chr(c) in _JOINS else BETWEEN
        for c in range(256)
    ],
    np.uint8,
)
"""uint8 (256,), what each byte of a text may be in a chain."""


def parts_of(compound: str) -> list[str]:
    """Return the parts of a compound."""
    return compound.split(" ")


def count_compounds(text: str) -> dict[str, int]:
    """Count the compounds of a text that are joined by a character: whole ones and their neighbouring parts.

    Example:
        >>> count_compounds("A wi-fi-only e-book")
        {'wi fi': 1, 'fi only': 1, 'wi fi only': 1, 'e book': 1}
    """
    counts: dict[str, int] = {}
    # No chain holds a space. Few tokens have anything but letters and digits inside, and telling so is quick.
    tokens = [token for token in text.split() if not token.isalnum()]
    tokens = [token for token in tokens if not token.strip(_AROUND).isalnum()]
    for compound in compounds_of(tokens)[1]:
        counts[compound] = counts.get(compound, 0) + 1
    return counts


def compounds_of(tokens: Sequence[str]) -> tuple[Int64, list[str]]:
    """Return the compounds of tokens, which no chain goes beyond.

    Args:
        tokens: T tokens without spaces.

    Returns:
        int64 (T,), how many compounds each has, and the compounds of all in order; one that occurs twice is there
        twice.

    Example:
        >>> sizes, found = compounds_of(["(wi-fi)", "is", "rock'n'roll"])
        >>> sizes.tolist(), found
        ([1, 0, 3], ['wi fi', 'rock n', 'n roll', 'rock n roll'])
    """
    chains = [(chain.start(), _in_chain(chain[0])) for chain in _CHAIN.finditer(" ".join(tokens))]
    ends = np.fromiter(accumulate(len(token) + 1 for token in tokens), np.int64, len(tokens))
    owner = np.searchsorted(ends, [start for start, _ in chains], side="right")
    sizes = np.zeros(len(tokens), np.int64)
    np.add.at(sizes, owner, [len(own) for _, own in chains])
    return sizes, [compound for _, own in chains for compound in own]


@lru_cache(maxsize=_CACHED)
def _in_chain(chain: str) -> list[str]:
    """Return the compounds of a chain. Do not change them: chains are remembered."""
    parts = words(_GENITIVE.sub("", chain))
    found = [" ".join(pair) for pair in pairwise(parts)]
    if 2 < len(parts) <= MAX_PARTS:
        found.append(" ".join(parts))
    # Digits with digits are dates and versions.
    return [c for c in found if len(c) <= _MAX_LETTERS and not c.replace(" ", "").isdigit()]


def split_digits(word: str) -> list[str]:
    """Split a word between digits and letters: 500ml into 500, ml; [] if it has no such place or many."""
    if word.isalpha() or word.isdigit():
        return []
    parts = _ALTERNATION.findall(word)
    return parts if 2 <= len(parts) <= 3 and sum(map(len, parts)) == len(word) else []
