"""Counting the words of many texts, on several cores.

Kept apart from features.py so that a worker process starts without scipy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Thread
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.errors import FullrankError
from fullrank.text.words import count_words
from fullrank.workers import Worker


class Counted(NamedTuple):
    """Counts of the texts of one chunk; a word stands as its number in the Tally that counted it.

    sizes    int64 (texts,): number of distinct words of each text
    indices  int32 (entries,), in no order inside a text
    counts   int32 (entries,)
    """

    sizes: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]


TextCounter = Callable[[str], dict[str, int]]
"""What counts one text; it is pickled on its way to a worker."""


class Tally:
    """What one process has counted: its words, numbered as they were met, and its chunks."""

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
        # Text by text: its words are still in the processor's cache when they are numbered.
        for i, text in enumerate(texts):
            counted = self.counter(text)
            sizes[i] = len(counted)
            indices.extend([number.setdefault(word, len(number)) for word in counted])
            counts.extend(counted.values())
        self.chunks[chunk] = Counted(sizes, np.array(indices, np.int32), np.array(counts, np.int32))


_Chunks = deque[tuple[int, Sequence[str]]]


def count_chunks(
    chunks: Sequence[Sequence[str]],
    processes: int,
    progress: Callable[[int], object],
    counter: TextCounter = count_words,
) -> list[Tally]:
    """Count every chunk, in this process and in processes - 1 others; one Tally for each.

    Workers take chunks from the front, this process from the back until they meet, so nobody waits
    while the workers start (anew: a fork after OpenMP has run may hang). Raises FullrankError when
    a worker dies.
    """
    waiting: _Chunks = deque(enumerate(chunks))
    own = Tally(counter)
    workers = [_Worker.start(waiting, counter) for _ in range(processes - 1)]
    try:
        while (chunk := _take(waiting.pop)) is not None:
            own.count(*chunk)
            progress(len(chunk[1]))
        tallies = [own]
        for worker in workers:
            tally = worker.result()
            progress(sum(len(counted.sizes) for counted in tally.chunks.values()))
            tallies.append(tally)
        return tallies
    finally:
        for worker in workers:
            worker.stop()


def _take(
    take: Callable[[], tuple[int, Sequence[str]]],
) -> tuple[int, Sequence[str]] | None:
    try:
        return take()
    except IndexError:
        return None


@dataclass
class _Worker:
    """A process that counts what it is sent, and the thread that sends it."""

    worker: Worker
    feeder: Thread

    @classmethod
    def start(cls, waiting: _Chunks, counter: TextCounter) -> _Worker:
        worker = Worker.start("fullrank.text.counting")
        feeder = Thread(target=_feed, args=(worker.connection, waiting, counter), daemon=True)
        feeder.start()
        return cls(worker, feeder)

    def result(self) -> Tally:
        # Nothing is read before this process has finished its own part: reading in small pieces
        # would wait for the interpreter lock at each.
        try:
            tally = self.worker.connection.recv()
        except (EOFError, OSError) as error:
            raise FullrankError(
                "a process that counts words died; is there memory left?"
            ) from error
        assert isinstance(tally, Tally)
        return tally

    def stop(self) -> None:
        self.worker.kill()
        self.feeder.join()
        self.worker.connection.close()


def _feed(connection: Connection, waiting: _Chunks, counter: TextCounter) -> None:
    # A socket holds less than a chunk, so a send returns when the worker has begun to take it in: at
    # most one chunk waits for a worker.
    try:
        connection.send(counter)
        while (chunk := _take(waiting.popleft)) is not None:
            connection.send(chunk)
        connection.send(None)
    except OSError:
        return  # the worker is gone; result() says so


def work(descriptor: int) -> None:
    """What a worker process does with its end of the pipe; it ends with its parent."""
    connection = Connection(descriptor)
    try:
        tally = Tally(connection.recv())
        while (chunk := connection.recv()) is not None:
            tally.count(*chunk)
        # Its counter stays: the parent has one.
        tally.counter = count_words
        connection.send(tally)
    except (EOFError, OSError):
        return
