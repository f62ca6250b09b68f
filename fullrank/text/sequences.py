"""Split many texts into words at once; `fullrank.text.words` says what a word is.

A kernel splits the texts and numbers their tokens, so that only different tokens become Python strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from fullrank.kernels.arrays import Int32, Int64
from fullrank.kernels.tokens import count_numbers, replace_tokens, split_tokens
from fullrank.text.counting import Counted, Tally
from fullrank.text.words import BYTES, count_words, words


def number_words(texts: Sequence[str], number: dict[str, int]) -> tuple[Int64, Int32]:
    """Split texts into words, and each word into its number.

    Args:
        texts: B texts.
        number: Word → number; words that it lacks get the next numbers.

    Returns:
        indptr, int64 (B + 1,), and the numbers of the words of all texts in order, int32: those of text i are from
        indptr[i] to indptr[i + 1].

    Example:
        >>> number = {}
        >>> number_words(["Red apple", "red"], number)[1].tolist(), number
        ([0, 1, 0], {'red': 0, 'apple': 1})
    """
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.fromiter(accumulate(map(len, encoded)), np.int64, len(encoded))
    blob = np.frombuffer(bytearray().join(encoded), np.uint8)
    indptr, tokens, names = split_tokens(blob, ends, BYTES)
    found = names.tobytes().decode("utf-8", "surrogatepass").split(" ")[:-1]
    if len(names) and names.max() < 128:
        place = [number.setdefault(token, len(number)) for token in found]
        return indptr, np.array(place, np.int32)[tokens]
    several: list[Sequence[str]] = [
        (token,) if token.isascii() else words(token) for token in found
    ]
    bounds = np.array([0, *accumulate(map(len, several))], np.int64)
    place = [number.setdefault(word, len(number)) for found in several for word in found]
    return replace_tokens(indptr, tokens, bounds, np.array(place, np.int32))


def tally_words(
    chunks: Sequence[Sequence[str]], progress: Callable[[int], object] = lambda texts: None
) -> Tally:
    """Count the words of every text of every chunk, as `count_words` does.

    Args:
        chunks: Of texts.
        progress: Called with the number of texts of each finished chunk.
    """
    tally = Tally(count_words)
    for chunk, texts in enumerate(chunks):
        sequences = number_words(texts, tally.number)
        tally.chunks[chunk] = Counted(*count_numbers(*sequences, len(tally.number)))
        progress(len(texts))
    return tally
