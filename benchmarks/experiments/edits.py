"""Typing errors: one random edit in one word of a text.

drop     a letter is left out
double   a letter is typed twice
swap     two different neighbours change places
replace  another letter in place of one: in half of the cases a neighbour on the keyboard (QWERTY), else any of a-z
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable

import numpy as np

MIN_LETTERS = 4
_WORD = re.compile(rf"(?<![^\W_])[^\W\d_]{{{MIN_LETTERS},}}(?![^\W_])")
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _near_keys() -> dict[str, str]:
    """Map each key to those next to it; each row of keys is half a key to the right of the one above."""
    place = {key: (x + y / 2, y) for y, keys in enumerate(_KEYS) for x, key in enumerate(keys)}
    return {
        key: "".join(
            other
            for other, (x2, y2) in place.items()
            if other != key and abs(x - x2) <= 1 and abs(y - y2) <= 1
        )
        for key, (x, y) in place.items()
    }


NEAR_KEYS = _near_keys()


def _drop(word: str, i: int, rng: np.random.Generator) -> str:
    return word[:i] + word[i + 1 :]


def _double(word: str, i: int, rng: np.random.Generator) -> str:
    return word[: i + 1] + word[i:]


def _swap(word: str, i: int, rng: np.random.Generator) -> str:
    return word[:i] + word[i : i + 2][::-1] + word[i + 2 :]


def _replace(word: str, i: int, rng: np.random.Generator) -> str:
    near = NEAR_KEYS.get(word[i].lower(), "") if rng.random() < 0.5 else ""
    letters = near or string.ascii_lowercase
    return word[:i] + letters[int(rng.integers(len(letters)))] + word[i + 1 :]


EDITS: dict[str, Callable[[str, int, np.random.Generator], str]] = {
    "drop": _drop,
    "double": _double,
    "swap": _swap,
    "replace": _replace,
}


def mistype(word: str, rng: np.random.Generator) -> str:
    """Return a word with one random edit, of a random kind at a random letter; never the same word."""
    kinds = list(EDITS.values())
    while True:
        edit = kinds[int(rng.integers(len(kinds)))]
        found = edit(word, int(rng.integers(len(word))), rng)
        if found.lower() != word.lower():
            return found


def has_word(text: str) -> bool:
    """Tell whether a text has a word that can be edited: at least `MIN_LETTERS` letters and no digit."""
    return _WORD.search(text) is not None


def mistyped(text: str, rng: np.random.Generator) -> str:
    """Return a text with one random edit in one random word; unchanged if it has no such word."""
    found = list(_WORD.finditer(text))
    if not found:
        return text
    word = found[int(rng.integers(len(found)))]
    return text[: word.start()] + mistype(word[0], rng) + text[word.end() :]
