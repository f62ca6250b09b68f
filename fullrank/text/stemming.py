"""Stems of words by Snowball (Porter 2001), so that listing, listed and lists are one word."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import snowballstemmer

LANGUAGES: tuple[str, ...] = tuple(snowballstemmer.algorithms())
"""Names of the languages that have a stemmer."""

# Cached stems of a language: a stem takes 20 µs.
_CACHED = 1 << 16
# The endings that the stemmer may change; words without one need no stemmer, such as most codes and names.
_ENDINGS = {
    "english": (
        "e", "s", "y", "ed", "ing", "ci", "li", "ti", "ogi", "al", "ful", "ll", "ism", "ion", "er", "ator", "ogist",
        "ic", "ant", "ent",
    ),
}  # fmt: skip


@lru_cache
def stemmer(language: str) -> Callable[[str], str]:
    """Return the function that stems a lowercase word of a language; it returns other words as they are.

    Raises:
        ValueError: No stemmer has that name.

    Example:
        >>> stemmer("english")("listing")
        'list'
    """
    if language not in LANGUAGES:
        raise ValueError(f"no stemmer {language!r}; there are: {', '.join(LANGUAGES)}")
    stem: Callable[[str], str] = snowballstemmer.stemmer(language).stemWord
    cached, endings = lru_cache(maxsize=_CACHED)(stem), _ENDINGS.get(language)
    if endings is None:
        return cached
    return lambda word: cached(word) if word.endswith(endings) else word
