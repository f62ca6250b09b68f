"""Compounds: words that some writers join and others part, wi-fi and wifi, 500 ml and 500ml.

The segmentation parts words at every character that is no letter or digit, so a compound is written as its parts and
spaces, like a 2-gram.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import pairwise

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
    # No chain holds a space. Few words have anything but letters and digits inside, and telling so is quick.
    joined = [part for part in text.split() if not part.isalnum()]
    joined = [part for part in joined if not part.strip(_AROUND).isalnum()]
    for chain, count in Counter(_CHAIN.findall(" ".join(joined))).items():
        for compound in _in_chain(chain):
            counts[compound] = counts.get(compound, 0) + count
    return counts


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
