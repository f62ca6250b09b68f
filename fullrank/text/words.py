"""From text to words: the one segmentation that training and serving share.

A text is normalised (NFKC), lowercased and cut into words. A word is a maximal run of letters, marks and digits, not
of marks alone (a simplification of UAX #29: apostrophes, hyphens and underscores separate, so ``apt_get`` meets
``apt-get``; variation selectors are left out). Runs of scripts written without spaces, or whose words carry endings no
space shows (Han, Kana, Hangul, Thai, Lao, Khmer, Myanmar), become overlapping character bigrams, a run of one character
that character.

ASCII text never leaves C: one table lookup, one split, one count. Only distinct words with other characters are seen
one character at a time, and those are remembered.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import groupby

_ASCII = bytes(ord(chr(c).lower()) if chr(c).isalnum() else 32 for c in range(128))
_TABLE = _ASCII + bytes(range(128, 256))

# First and last code point of the blocks cut into bigrams.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul jamo
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # Han iteration mark, closing mark, zero
    (0x302E, 0x302F),  # Hangul tone marks
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA960, 0xA97F),  # Hangul jamo extended
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAA7F),  # Myanmar extended A
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),  # Han compatibility
    (0x1AFF0, 0x1B16F),  # Kana extended B, supplement, extended A, small
    (0x20000, 0x3FFFF),  # Han extensions B and on
)

# Variation selectors choose a glyph, of an emoji or of a Han character, and say nothing else.
_VARIATIONS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")

_BREAK, _SPACED, _BIGRAMS = range(3)
# Words remembered with their parts, at most 1 KB each: what a service sees once must not look like a leak for long.
_REMEMBERED = 1 << 14


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> int:
    """Whether a character breaks words, belongs to a spaced word, or to a run cut into bigrams."""
    if unicodedata.category(character)[0] not in "LMN":
        return _BREAK
    code = ord(character)
    if code >= 0x0E00 and any(first <= code <= last for first, last in _UNSPACED):
        return _BIGRAMS
    return _SPACED


@lru_cache(maxsize=_REMEMBERED)
def _segment(token: str) -> tuple[str, ...]:
    """The words of a token that holds characters beyond ASCII."""
    found: list[str] = []
    # Selectors first: one between a letter and its accent would keep them apart.
    plain = unicodedata.normalize("NFKC", _VARIATIONS.sub("", token)).lower()
    # Lowercasing can leave marks in another order than theirs: İ becomes i and a dot of its own.
    plain = unicodedata.normalize("NFKC", plain)
    for kind, characters in groupby(plain, _kind):
        run = "".join(characters)
        if kind == _SPACED:
            if not all(unicodedata.category(character)[0] == "M" for character in run):
                found.append(run)
        elif kind == _BIGRAMS:
            found.extend([run[i : i + 2] for i in range(len(run) - 1)] or [run])
    return tuple(found)


def _tokens(text: str) -> list[str]:
    """Runs of ASCII letters and digits, lowercased, and of anything beyond ASCII, as it is."""
    raw = text.encode("utf-8", "surrogatepass").translate(_TABLE)
    return raw.decode("utf-8", "surrogatepass").split()


def words(text: str) -> list[str]:
    """The words of a text in order."""
    found: list[str] = []
    for token in _tokens(text):
        if token.isascii():
            found.append(token)
        else:
            found.extend(_segment(token))
    return found


def count_words(text: str) -> dict[str, int]:
    """How often each word stands in a text: ``Counter(words(text))``, made faster by counting before segmenting."""
    counts: dict[str, int] = Counter(_tokens(text))
    if text.isascii():
        return counts
    for token in [token for token in counts if not token.isascii()]:
        times = counts.pop(token)
        for word in _segment(token):
            counts[word] = counts.get(word, 0) + times
    return counts


@lru_cache(maxsize=_REMEMBERED)
def trigrams(word: str) -> tuple[str, ...]:
    """Letter trigrams of ``#word#`` (DSSM's word hashing), repeats kept: "cat" gives #ca, cat, at#."""
    marked = f"#{word}#"
    return tuple(marked[i : i + 3] for i in range(len(marked) - 2))
