"""Compounds: words that some writers join and others part, wi-fi and wifi, 500 ml and 500ml.

The segmentation parts words at every character that is no letter or digit, so a compound is written as its parts and
spaces, like a 2-gram.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from fullrank.kernels.arrays import Int64
from fullrank.kernels.tokens import BETWEEN, EITHER, JOIN, LETTER
from fullrank.text.words import words

MAX_PARTS = 4
_MAX_LETTERS = 40
_LEAST_JOINED = 5
_READ_TITLES, _READ_WORDS = 20_000, 12
_INCHES = re.compile(r"""(?<![\w.,])(\d+) ?(?:"|\u2033|\u201d|(?:in|inch|inches)\b)""", re.I)
# Not those of one letter, which are letters.
_ROMAN = {
    "ii": "2", "iii": "3", "iv": "4", "vi": "6", "vii": "7", "viii": "8", "ix": "9", "xi": "11", "xii": "12",
    "xiii": "13", "xiv": "14", "xv": "15", "xvi": "16",
}  # fmt: skip
_NUMERALS = {**_ROMAN, **{number: roman for roman, number in _ROMAN.items()}}
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
    return compound.partition("=")[2].split(" ") if "=" in compound else compound.split(" ")


def key_of(compound: str) -> str:
    """Return what is written in place of the parts of a compound, before folding."""
    own, is_short, _ = compound.partition("=")
    return own if is_short else compound.replace(" ", "")


def count_compounds(text: str) -> dict[str, int]:
    """Count the compounds of a text that are joined by a character: whole ones and their neighbouring parts."""
    counts: dict[str, int] = {}
    # No chain holds a space. Few tokens have anything but letters and digits inside, and telling so is quick.
    tokens = [token for token in text.split() if not token.isalnum()]
    tokens = [token for token in tokens if not token.strip(_AROUND).isalnum()]
    for compound in compounds_of(tokens)[1]:
        counts[compound] = counts.get(compound, 0) + 1
    return counts


def compounds_of(tokens: Sequence[str]) -> tuple[Int64, list[str]]:
    """Return how many compounds each token has, int64 (T,), and those of all in order, repeats too.

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


def title_forms(titles: Iterable[str], is_known: Callable[[str], bool]) -> list[str]:
    """Return what people write in place of words of titles, as compounds, ascending.

    Two neighbouring words are joined (cellphone). Three or four in at least two titles are also written as the letters
    that they begin with, and a number as it is (dos 2, dos2). Numerals of two letters are numbers (ii, 2), and inches
    are (50", 50in). All but joined words are written before their parts and "=". A word that `is_known` is neither
    joined nor first letters.

    Example:
        >>> title_forms(["Dawn of Sails II", "Dawn of Sails", "Cell Phone"], lambda word: False)
        ['2=ii', 'cell phone', 'dawn of', 'dos=dawn of sails', 'of sails', 'sails ii']
    """
    distinct = list(dict.fromkeys(titles))
    counts: Counter[str] = Counter()
    written: set[str] = set()
    for title in distinct[:: -(-len(distinct) // _READ_TITLES) or 1]:
        own = words(title)[:_READ_WORDS]
        starts = range(len(own))
        counts.update(
            {" ".join(own[i:j]) for i in starts for j in range(i + 2, i + 5) if j <= len(own)}
        )
        written.update(f"{_NUMERALS[word]}={word}" for word in _NUMERALS.keys() & {*own})
        for number in _INCHES.findall(title):
            written |= {f"{number}in={number}", f"{number}inch={number}"}
    for run, count in counts.items():
        parts = parts_of(run)
        if len(parts) == 2:
            key, form = "".join(parts), run
            fits = len(key) >= _LEAST_JOINED and not any(map(str.isdigit, parts))
        else:
            key = "".join(part if part.isdigit() else part[0] for part in parts)
            form, fits = f"{key}={run}", count > 1 and sum(map(str.isalpha, key)) > 1
        if fits and key[0].isalpha() and len(run) <= _MAX_LETTERS and not is_known(key):
            written.add(form)
    return sorted(written)


def split_digits(word: str) -> list[str]:
    """Split a word between digits and letters: 500ml into 500, ml; [] if it has no such place or many."""
    if word.isalpha() or word.isdigit():
        return []
    parts = _ALTERNATION.findall(word)
    return parts if 2 <= len(parts) <= 3 and sum(map(len, parts)) == len(word) else []
