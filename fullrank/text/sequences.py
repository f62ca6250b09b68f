"""Count many texts: split into words, or compounds, at once; `fullrank.text.words` and `.compounds` say what these are.

A kernel splits the texts and numbers their tokens, so that only different tokens become Python strings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from fullrank.kernels.arrays import Int32, Int64, UInt8
from fullrank.kernels.tokens import count_numbers, keep_joined, replace_tokens, split_tokens
from fullrank.text import compounds, words


class Counted(NamedTuple):
    """Counts of the texts of one chunk: their sizes, and entries in no order; a word is its number in the Tally."""

    sizes: Int64
    indices: Int32
    counts: Int32


TextCounter = Callable[[str], dict[str, int]]
"""Counts one text."""

_CHUNK_CHARACTERS = 1_000_000


class StoredTexts(Sequence[str], ABC):
    @property
    @abstractmethod
    def characters(self) -> Sequence[int]:
        """About how many characters each text has."""


class Chunk(NamedTuple):
    """Texts from `start` to `stop` of a column, of about so many characters; none is read before ``read``."""

    texts: Sequence[str]
    start: int
    stop: int
    characters: int

    def read(self) -> Sequence[str]:
        return self.texts[self.start : self.stop]

    @property
    def size(self) -> int:
        return self.stop - self.start


def chunks_of(texts: Sequence[str]) -> Iterator[Chunk]:
    """Cut texts into chunks of about a million characters; without a text, into one empty chunk."""
    sizes = texts.characters if isinstance(texts, StoredTexts) else map(len, texts)
    start = size = 0
    for i, characters in enumerate(sizes):
        size += characters
        if size >= _CHUNK_CHARACTERS:
            yield Chunk(texts, start, i + 1, size)
            start, size = i + 1, 0
    yield Chunk(texts, start, len(texts), size)


class Tally:
    """The counts of a corpus: its words, numbered in the order of their first use, and its chunks."""

    def __init__(self, counter: TextCounter) -> None:
        self.counter = counter
        self.number: dict[str, int] = {}
        self.chunks: dict[int, Counted] = {}

    def count(self, chunk: int, texts: Sequence[str]) -> None:
        number = self.number
        sizes = np.zeros(len(texts), np.int64)
        indices: list[int] = []
        counts: list[int] = []
        # Number the words text by text, while they are still in the processor's cache.
        for i, text in enumerate(texts):
            counted = self.counter(text)
            sizes[i] = len(counted)
            indices.extend([number.setdefault(word, len(number)) for word in counted])
            counts.extend(counted.values())
        self.chunks[chunk] = Counted(sizes, np.array(indices, np.int32), np.array(counts, np.int32))


Tokens = tuple[Int64, Int32, UInt8]
"""What `split_tokens` returns."""
# Chunks of fewer characters are split together: most of their tokens are the same.
_TOGETHER = 1_000_000


class Splitter(NamedTuple):
    """How texts are split.

    Attributes:
        tokens: Splits the bytes of texts into tokens, given where each ends, as `split_tokens` does.
        split: Splits tokens into words: how many each has, int64, and the words of all in order.
        counter: Counts the words of one text.
    """

    tokens: Callable[[UInt8, Int64], Tokens]
    split: Callable[[Sequence[str]], tuple[Int64, list[str]]]
    counter: TextCounter


def _words_of(tokens: Sequence[str]) -> tuple[Int64, list[str]]:
    sizes, found, start = np.ones(len(tokens), np.int64), list[str](), 0
    for place in [place for place, token in enumerate(tokens) if not token.isascii()]:
        own = words.words(tokens[place])
        found += tokens[start:place]
        found += own
        sizes[place], start = len(own), place + 1
    found += tokens[start:]
    return sizes, found


def _joined_tokens(blob: UInt8, ends: Int64) -> Tokens:
    """Split texts into tokens, without those that hold no compound."""
    keep_joined(blob, compounds.KINDS)
    return split_tokens(blob, ends, words.EVERY_BYTE)


_WORDS = Splitter(partial(split_tokens, table=words.BYTES), _words_of, words.count_words)
_COMPOUNDS = Splitter(_joined_tokens, compounds.compounds_of, compounds.count_compounds)
SPLITTERS = {splitter.counter: splitter for splitter in (_WORDS, _COMPOUNDS)}
"""By the function that counts the same words in one text."""


def number_words(texts: Sequence[str], number: dict[str, int]) -> tuple[Int64, Int32]:
    """Split B texts into words, and each word into its number; words that `number` lacks get the next numbers.

    Returns:
        indptr, int64 (B + 1,), and the numbers of the words of all texts in order, int32.

    Example:
        >>> number = {}
        >>> number_words(["Red apple", "red"], number)[1].tolist(), number
        ([0, 1, 0], {'red': 0, 'apple': 1})
    """
    return _number(*_split(texts, _WORDS), _WORDS, number)


def _split(texts: Sequence[str], splitter: Splitter) -> Tokens:
    encoded = [text.encode("utf-8", "surrogatepass") + b" " for text in texts]
    ends = np.fromiter(accumulate(map(len, encoded)), np.int64, len(encoded))
    blob = np.frombuffer(bytearray().join(encoded), np.uint8)
    return splitter.tokens(blob, ends)


def _number(
    indptr: Int64, tokens: Int32, names: UInt8, splitter: Splitter, number: dict[str, int]
) -> tuple[Int64, Int32]:
    distinct = names.tobytes().decode("utf-8", "surrogatepass").split(" ")[:-1]
    sizes, found = splitter.split(distinct)
    place = np.array([number.setdefault(word, len(number)) for word in found], np.int32)
    if (sizes == 1).all():
        return indptr, place[tokens]
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return replace_tokens(indptr, tokens, bounds, place)


def tally_words(chunks: Sequence[Chunk], cores: int, splitter: Splitter = _WORDS) -> Tally:
    """Count the words of every text; with more than one core, a thread splits the next chunk meanwhile."""
    tally = Tally(splitter.counter)
    groups = _grouped(chunks)

    def read(group: Sequence[int]) -> Tokens:
        return _split([text for i in group for text in chunks[i].read()], splitter)

    tokens = map(read, groups) if cores == 1 or len(groups) < 2 else _read_ahead(groups, read)
    for group, found in zip(groups, tokens, strict=True):
        sequences = _number(*found, splitter, tally.number)
        sizes, numbers, counts = count_numbers(*sequences, len(tally.number))
        first = start = 0
        for i in group:
            own = sizes[first : first + chunks[i].size]
            stop = start + int(own.sum())
            tally.chunks[i] = Counted(own, numbers[start:stop], counts[start:stop])
            first, start = first + len(own), stop
    return tally


def _grouped(chunks: Sequence[Chunk]) -> list[list[int]]:
    groups: list[list[int]] = []
    size = _TOGETHER
    for i, chunk in enumerate(chunks):
        if size + chunk.characters < _TOGETHER:
            groups[-1].append(i)
            size += chunk.characters
        else:
            groups.append([i])
            size = chunk.characters
    return groups


def _read_ahead(
    groups: Sequence[Sequence[int]], read: Callable[[Sequence[int]], Tokens]
) -> Iterator[Tokens]:
    """Yield the tokens of each group; a thread splits the next one, without the interpreter lock."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, groups[0])
        for following in groups[1:]:
            done, waiting = waiting, pool.submit(read, following)
            yield done.result()
        yield waiting.result()
