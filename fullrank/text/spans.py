"""Words of a text with their places, by the segmentation of fullrank.text.words."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.text.words import BYTES, kind_of, tokens, words

Int64 = npt.NDArray[np.int64]

# White space beyond ASCII, at which `words` also splits.
_SPACES = np.array([code for code in range(128, 0x3001) if chr(code).isspace()], np.uint32)


class WordSpans(NamedTuple):
    """The words of a text in order, and the characters that each stands for.

    Attributes:
        starts: int64 (words,), the first character of each, in code points from the beginning of the text.
        stops: int64 (words,), the character after the last one.
        words: The words, as `fullrank.text.words.words` returns them.
    """

    starts: Int64
    stops: Int64
    words: list[str]


def word_spans(text: str) -> WordSpans:
    """Return the words of a text in order, as `words` does, each with its place.

    Bigrams of scripts without spaces overlap. Where normalisation makes several words of one character, all of them
    have the place of their token.

    Example:
        >>> starts, stops, found = word_spans("Café, 東京都")
        >>> starts.tolist(), stops.tolist(), found
        ([0, 6, 7], [4, 8, 9], ['café', '東京', '京都'])
    """
    found = tokens(text)
    if text.isascii():
        return WordSpans(*_runs(BYTES[np.frombuffer(text.encode(), np.uint8)] != 32), found)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    is_letter = BYTES[np.minimum(codes, 128)] != 32
    is_letter &= ~np.isin(codes, _SPACES)
    first, after = map(np.ndarray.tolist, _runs(is_letter))
    starts, stops, split = list[int](), list[int](), list[str]()
    done = 0
    for i in [*(i for i, token in enumerate(found) if not token.isascii()), len(found)]:
        starts += first[done:i]
        stops += after[done:i]
        split += found[done:i]
        if i < len(found):
            for start, stop, word in _within(text[first[i] : after[i]]):
                starts.append(first[i] + start)
                stops.append(first[i] + stop)
                split.append(word)
        done = i + 1
    return WordSpans(np.array(starts, np.int64), np.array(stops, np.int64), split)


def _runs(inside: npt.NDArray[np.bool_]) -> tuple[Int64, Int64]:
    """Return the first place of each run of True, and the place after its last."""
    padded = np.zeros(len(inside) + 2, np.bool_)
    padded[1:-1] = inside
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return edges[::2], edges[1::2]


def _within(token: str) -> list[tuple[int, int, str]]:
    """Return (start, stop, word) of the words of a token with characters beyond ASCII."""
    found: list[tuple[int, int, str]] = []
    for _, characters in groupby(enumerate(token), lambda item: kind_of(item[1])):
        places, letters = zip(*characters, strict=True)
        own = words("".join(letters))
        pairs = list(zip(pairwise(places), own, strict=False))
        is_bigrams = len(own) == len(places) - 1 and all(
            words(token[first : last + 1]) == [word] for (first, last), word in pairs
        )
        if is_bigrams:
            found += [(first, last + 1, word) for (first, last), word in pairs]
        else:
            found += [(places[0], places[-1] + 1, word) for word in own]
    expected = words(token)
    if [word for _, _, word in found] == expected:
        return found
    return [(0, len(token), word) for word in expected]
