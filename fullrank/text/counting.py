"""Count what a Python function finds in many texts (phrases, 2-grams), with several processes.

Apart from features.py so that a worker process starts without scipy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.errors import FullrankError
from fullrank.workers import Worker


class Counted(NamedTuple):
    """Counts of the texts of one chunk; a word is its number in the Tally that counted it.

    Attributes:
        sizes: int64 (texts,), the number of distinct words of each text.
        indices: int32 (entries,), in no order inside a text.
        counts: int32 (entries,).
    """

    sizes: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]


TextCounter = Callable[[str], dict[str, int]]
"""Counts one text; it must pickle, to be sent to a worker."""

_CHUNK_CHARACTERS = 1_000_000


class StoredTexts(Sequence[str], ABC):
    """Texts that are read from a file when they are asked for."""

    @property
    @abstractmethod
    def characters(self) -> Sequence[int]:
        """About how many characters each text has."""


class Chunk(NamedTuple):
    """Some of the texts of a column; none is read before ``read``.

    Attributes:
        texts: The column.
        start, stop: The places of its texts.
        characters: About how many these have.
    """

    texts: Sequence[str]
    start: int
    stop: int
    characters: int

    def read(self) -> Sequence[str]:
        """Return the texts."""
        return self.texts[self.start : self.stop]

    @property
    def size(self) -> int:
        """The number of texts."""
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
    """The counts of one process: its words, numbered in the order of their first use, and its chunks."""

    def __init__(self, counter: TextCounter) -> None:
        self.counter = counter
        self.number: dict[str, int] = {}
        self.chunks: dict[int, Counted] = {}

    def count(self, chunk: int, texts: Sequence[str]) -> None:
        """Count the words of the texts of one chunk."""
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


_Chunks = deque[tuple[int, Chunk]]


def count_chunks(
    chunks: Sequence[Chunk],
    processes: int,
    progress: Callable[[int], object],
    counter: TextCounter,
) -> list[Tally]:
    """Count every chunk, in this process and in processes - 1 workers.

    Workers take chunks from the front and this process takes them from the back, so it does not wait while the workers
    start. Workers are new processes, because a fork after OpenMP has run may hang.

    Returns:
        One Tally per process.

    Raises:
        FullrankError: A worker died.
    """
    waiting: _Chunks = deque(enumerate(chunks))
    own = Tally(counter)
    with ExitStack() as stack:
        workers = []
        for _ in range(processes - 1):
            worker = Worker("fullrank.text.counting:work", "counts words")
            stack.callback(worker.close)
            feeder = Thread(target=_feed, args=(worker, waiting, counter), daemon=True)
            feeder.start()
            # The feeder ends when the worker is dead, and the pipe is closed after that.
            stack.callback(feeder.join)
            stack.callback(worker.kill)
            workers.append(worker)
        while (taken := _take(waiting.pop)) is not None:
            number, chunk = taken
            own.count(number, chunk.read())
            progress(chunk.size)
        tallies = [own]
        for worker in workers:
            # Read after counting: each small piece read meanwhile would wait for the interpreter lock.
            tally = Tally(counter)
            tally.number, tally.chunks = worker.receive()
            progress(sum(len(counted.sizes) for counted in tally.chunks.values()))
            tallies.append(tally)
        return tallies


def _take(
    take: Callable[[], tuple[int, Chunk]],
) -> tuple[int, Chunk] | None:
    try:
        return take()
    except IndexError:
        return None


def _feed(worker: Worker, waiting: _Chunks, counter: TextCounter) -> None:
    # The pipe holds less than a chunk, so a send returns when the worker has begun to read it: at most one chunk waits
    # for a worker.
    with suppress(FullrankError):  # the worker died; receive() raises it in the main thread
        worker.send(counter)
        while (taken := _take(waiting.popleft)) is not None:
            number, chunk = taken
            worker.send((number, chunk.read()))
        worker.send(None)


def work(connection: Connection) -> None:
    """Count the chunks that arrive, then send the tally; runs in a worker process."""
    tally = Tally(connection.recv())
    while (chunk := connection.recv()) is not None:
        tally.count(*chunk)
    connection.send((tally.number, tally.chunks))
