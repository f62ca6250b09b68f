"""Split a text into words; training and serving share this one segmentation.

A text is normalised (NFKC), lowercased and cut into words. A word is a maximal run of letters, marks and digits that
are not all marks. This simplifies UAX #29: apostrophes, hyphens and underscores separate words, so `apt_get` matches
`apt-get`, and variation selectors are dropped. Runs of scripts without spaces between words (Han, Kana, Thai, Lao,
Khmer, Myanmar) become overlapping character bigrams; a single character stays one word. Hangul words lose their
particles (`fullrank.text.words`).

ASCII text is handled by three C functions: translate, split, count. Only distinct words with other characters are split
character by character in Python, and cached.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby, pairwise

import numpy as np

# Korean words without particles and endings: 파일을, 파일의 and 파일에서 are the word 파일.
#
# Korean puts spaces between words but writes particles and the forms of 하다 (to do) and 되다 (to become) onto them. A
# part of them depends on whether the syllable before it ends in a consonant, which tells 와이파이 (Wi-Fi) from a word
# with the particle 이.

_AFTER_CONSONANT = "은 을 이 과 이나 이라는 이란 이며 으로 으로부터 으로서 으로써"
_AFTER_VOWEL = "는 를 가 와 나 라는 란 며"
_AFTER_VOWEL_OR_L = "로 로부터 로서 로써"
_AFTER_ANY = (
    "의 에 에서 에게 에게서 까지 부터 처럼 보다 마다 만 도 들 하 하기 하는 하여 하고 하며 하면 "
    "하려면 한 한다 할 함 합니다 해 해서 되는 되어 되지 된 된다 될 됨 됩니다"
)
_LEAST = 2  # syllables of a word that stay
_FIRST, _LAST = "가", "힣"
_L = 8  # the final consonant ㄹ


def _endings() -> dict[str, str]:
    found = {}
    for text, before in (
        (_AFTER_CONSONANT, "consonant"),
        (_AFTER_VOWEL, "vowel"),
        (_AFTER_VOWEL_OR_L, "vowel or ㄹ"),
        (_AFTER_ANY, "any"),
    ):
        found.update(dict.fromkeys(text.split(), before))
    return found


_ENDINGS = _endings()
_LONGEST = max(map(len, _ENDINGS))


def stem(word: str) -> str:
    """Take particles and endings off a word of Hangul, the longest first, while two syllables are left.

    Example:
        >>> stem("디렉터리에서는"), stem("와이파이"), stem("설치합니다")
        ('디렉터리', '와이파이', '설치')
    """
    while True:
        for size in range(min(_LONGEST, len(word) - _LEAST), 0, -1):
            before = _ENDINGS.get(word[-size:])
            if before is not None and _fits(before, word[-size - 1]):
                word = word[:-size]
                break
        else:
            return word


def _fits(before: str, syllable: str) -> bool:
    if before == "any" or not _FIRST <= syllable <= _LAST:
        return True
    final = (ord(syllable) - ord(_FIRST)) % 28
    if before == "consonant":
        return final != 0
    return final == 0 or (before == "vowel or ㄹ" and final == _L)


_ASCII = bytes(ord(chr(c).lower()) if chr(c).isalnum() else 32 for c in range(128))
_TABLE = _ASCII + bytes(range(128, 256))
BYTES = np.frombuffer(_TABLE, np.uint8)
"""uint8 (256,), what replaces each byte of a text before it is split at spaces: letters in lower case, spaces."""

EVERY_BYTE = np.arange(256, dtype=np.uint8)
"""The same for texts that only spaces separate."""

# First and last code points of the blocks that become bigrams.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # Han iteration mark, closing mark, zero
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAA7F),  # Myanmar extended A
    (0xF900, 0xFAFF),  # Han compatibility
    (0x1AFF0, 0x1B16F),  # Kana extended B, supplement, extended A, small
    (0x20000, 0x3FFFF),  # Han extensions B and on
)

_HANGUL_BLOCKS = (
    (0x1100, 0x11FF),  # jamo
    (0x302E, 0x302F),  # tone marks
    (0xA960, 0xA97F),  # jamo extended A
    (0xAC00, 0xD7FF),  # syllables, jamo extended B
)

# Variation selectors choose the glyph of an emoji or a Han character and carry no meaning.
_VARIATIONS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")

_BREAK, _SPACED, _BIGRAMS, _HANGUL = range(4)
# Cached words, and letters of the longest one: without limits a service would keep every text that it has seen.
_CACHED, _LONGEST_CACHED = 1 << 14, 64
_QUERIES = 1 << 4  # whole texts, which may be pages
_LONG = (
    1 << 2
)  # longer tokens: a page in Chinese may be one, and several steps of one search read it
_STEP = 1 << 10


@lru_cache(maxsize=1 << 16)
def kind_of(character: str) -> int:
    """Tell whether a character separates words, or is part of a word, of a run of bigrams or of a Korean word."""
    if unicodedata.category(character)[0] not in "LMN":
        return _BREAK
    code = ord(character)
    if code >= 0x0E00:
        for blocks, kind in ((_UNSPACED, _BIGRAMS), (_HANGUL_BLOCKS, _HANGUL)):
            if any(first <= code <= last for first, last in blocks):
                return kind
    return _SPACED


def normalised_length(text: str, most: int) -> int:
    """Return the number of characters after NFKC, which makes 18 of one "ﷺ"; it stops counting above `most`."""
    if text.isascii():
        return len(text)
    length = start = 0
    # In steps, because one call holds the interpreter for its whole text.
    while start < len(text) and length <= most:
        length += len(unicodedata.normalize("NFKC", text[start : start + _STEP]))
        start += _STEP
    return length


def _segment(token: str) -> tuple[str, ...]:
    return (_cached_split if len(token) <= _LONGEST_CACHED else _long_split)(token)


def _split(token: str) -> tuple[str, ...]:
    found: list[str] = []
    # Drop selectors before NFKC: one between a letter and its accent keeps them from composing.
    plain = unicodedata.normalize("NFKC", _VARIATIONS.sub("", token)).lower()
    # Normalise again because lowercasing can change the order of marks: İ becomes i and a combining dot.
    plain = unicodedata.normalize("NFKC", plain)
    for kind, characters in groupby(plain, kind_of):
        run = "".join(characters)
        if kind == _SPACED:
            if not all(unicodedata.category(character)[0] == "M" for character in run):
                found.append(run)
        elif kind == _HANGUL:
            found.append(stem(run))
        elif kind == _BIGRAMS:
            found.extend([run[i : i + 2] for i in range(len(run) - 1)] or [run])
    return tuple(found)


_cached_split, _long_split = lru_cache(_CACHED)(_split), lru_cache(_LONG)(_split)


def tokens(text: str) -> list[str]:
    """Split into runs of ASCII letters and digits, lowercased, together with any character beyond ASCII, unchanged."""
    raw = text.encode("utf-8", "surrogatepass").translate(_TABLE)
    return raw.decode("utf-8", "surrogatepass").split()


def words(text: str) -> list[str]:
    """Split a text into words, in order."""
    found: list[str] = []
    for token in tokens(text):
        if token.isascii():
            found.append(token)
        else:
            found.extend(_segment(token))
    return found


@lru_cache(maxsize=_QUERIES)
def query_words(text: str) -> tuple[str, ...]:
    """Split a query into words, in order; several steps of one search read the same query."""
    return tuple(words(text))


def count_words(text: str) -> dict[str, int]:
    """Count the words of a text: `Counter(words(text))`, but faster because it counts before it splits tokens."""
    counts: dict[str, int] = Counter(tokens(text))
    if text.isascii():
        return counts
    for token in [token for token in counts if not token.isascii()]:
        count = counts.pop(token)
        for word in _segment(token):
            counts[word] = counts.get(word, 0) + count
    return counts


def trigrams(word: str) -> tuple[str, ...]:
    """Return the letter trigrams of `#word#` (DSSM's word hashing), with repeats: "cat" gives #ca, cat, at#."""
    return _cached_trigrams(word) if len(word) <= _LONGEST_CACHED else _trigrams(word)


def _trigrams(word: str) -> tuple[str, ...]:
    marked = f"#{word}#"
    return tuple(marked[i : i + 3] for i in range(len(marked) - 2))


_cached_trigrams = lru_cache(_CACHED)(_trigrams)


# Known 2-grams, two consecutive words, as features of the dense part.
#
# A 2-gram is written as its two words and a space, which no word contains, so words and 2-grams share one vocabulary. A
# line end separates words: fields joined by newlines give the same counts as the fields alone.


def is_bigram(feature: str) -> bool:
    return " " in feature


class Bigrams:
    """Known 2-grams; counts them along with the words of a text."""

    def __init__(self, bigrams: Iterable[str]) -> None:
        self._known = {tuple(bigram.split(" ")): bigram for bigram in bigrams}

    def __len__(self) -> int:
        return len(self._known)

    def count(self, text: str) -> dict[str, int]:
        """Count each word and each known 2-gram of a text, overlapping ones too."""
        counts: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for line in text.split("\n"):
            sequence = words(line)
            counts.update(sequence)
            pairs.update(pairwise(sequence))
        known = self._known
        for pair, count in pairs.items():
            bigram = known.get(pair)
            if bigram is not None:
                counts[bigram] = count
        return counts
