"""Split many texts into words at once; `fullrank.text.words` says what a word is.

A kernel splits the texts and numbers their tokens, so that only different tokens become Python strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import numpy as np

from fullrank.kernels.arrays import Int32, Int64, UInt8
from fullrank.kernels.tokens import count_numbers, replace_tokens, split_tokens
from fullrank.text.counting import Chunk, Counted, Tally
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
    return _number(*_split(texts), number)


def _split(texts: Sequence[str]) -> tuple[Int64, Int32, UInt8]:
    """Return the tokens of texts, as `split_tokens` does."""
    encoded = [text.encode("utf-8", "surrogatepass") + b" " for text in texts]
    ends = np.fromiter(accumulate(map(len, encoded)), np.int64, len(encoded))
    blob = np.frombuffer(bytearray().join(encoded), np.uint8)
    return split_tokens(blob, ends, BYTES)


def _number(
    indptr: Int64, tokens: Int32, names: UInt8, number: dict[str, int]
) -> tuple[Int64, Int32]:
    """Replace tokens by the numbers of their words."""
    distinct = names.tobytes().decode("utf-8", "surrogatepass").split(" ")[:-1]
    if len(names) and names.max() < 128:
        place = [number.setdefault(token, len(number)) for token in distinct]
        return indptr, np.array(place, np.int32)[tokens]
    parts: list[Sequence[str]] = [
        (token,) if token.isascii() else words(token) for token in distinct
    ]
    bounds = np.array([0, *accumulate(map(len, parts))], np.int64)
    place = [number.setdefault(word, len(number)) for part in parts for word in part]
    return replace_tokens(indptr, tokens, bounds, np.array(place, np.int32))


def tally_words(chunks: Sequence[Chunk], progress: Callable[[int], object], cores: int) -> Tally:
    """Count the words of every text of every chunk, as `count_words` does.

    Args:
        chunks: Of texts.
        progress: Called with the number of texts of each finished chunk.
        cores: With more than one, a thread splits the next chunk meanwhile.
    """
    tally = Tally(count_words)
    split = map(_read, chunks) if cores == 1 or len(chunks) < 2 else _read_ahead(chunks)
    for chunk, tokens in enumerate(split):
        sequences = _number(*tokens, tally.number)
        tally.chunks[chunk] = Counted(*count_numbers(*sequences, len(tally.number)))
        progress(chunks[chunk].size)
    return tally


def _read(chunk: Chunk) -> tuple[Int64, Int32, UInt8]:
    return _split(chunk.read())


def _read_ahead(chunks: Sequence[Chunk]) -> Iterator[tuple[Int64, Int32, UInt8]]:
    """Yield the tokens of each chunk; a thread splits the next chunk, without the interpreter lock."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_read, chunks[0])
        for following in chunks[1:]:
            done, waiting = waiting, pool.submit(_read, following)
            yield done.result()
        yield waiting.result()
