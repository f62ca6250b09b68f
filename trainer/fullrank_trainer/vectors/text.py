"""Read the text format of word2vec, GloVe and fastText: one word and its numbers a line, separated by spaces.

word2vec and fastText write a first line with the number of words and of numbers; GloVe does not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fullrank.errors import CollectionError, TrainingError
from fullrank_trainer.collection.lines import Lines
from fullrank_trainer.vectors.collector import Collector

_LARGEST = float(np.finfo(np.float32).max)


def read_text(path: Path, collector: Collector) -> str:
    """Read a text file, plain or gzipped, into the collector.

    Returns:
        The sha256 of the uncompressed content, hexadecimal.

    Raises:
        TrainingError: the file cannot be read; the message names the line.
    """
    lines = Lines(path)
    try:
        _read(lines, collector)
    except CollectionError as error:
        raise TrainingError(f"train.vectors: {error}") from error
    return lines.digest()


def _read(lines: Lines, collector: Collector) -> None:
    """Read all lines. Raises CollectionError."""
    width, expected, seen, number = 0, None, 0, 0
    for number, line in lines:
        fields = line.rstrip(b" \r\n").split(b" ") if number == 1 else []
        if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
            expected, width = int(fields[0]), int(fields[1])
            continue
        width = width or len(fields) - 1
        if width < 1:
            raise lines.error(number, "expected a word and its numbers, separated by spaces")
        _read_line(lines, number, line, width, collector)
        seen += 1
    if expected is not None and seen != expected:
        raise lines.error(
            number, f"the file has {seen:,} vectors, its first line announces {expected:,}"
        )


def _read_line(lines: Lines, number: int, line: bytes, width: int, collector: Collector) -> None:
    """Read one vector. A word may have spaces in some files; such a word is no word here."""
    line = line.rstrip(b" \r\n")
    if line.count(b" ") < width:
        found = line.count(b" ")
        raise lines.error(number, f"expected a word and {width} numbers, got {found} numbers")
    try:
        token = line[: line.index(b" ")].decode("utf-8")
    except UnicodeDecodeError:
        raise lines.error(
            number, "is not UTF-8; binary files of word2vec and fastText must be saved as text"
        ) from None
    word = collector.word_of(token)
    if word is None:
        return
    fields = line.split(b" ")[1:]
    if len(fields) > width:
        return
    try:
        vector = np.array([float(text) for text in fields])
    except ValueError as error:
        raise lines.error(number, f"the vector of {token!r}: {error}") from None
    if not (np.abs(vector) <= _LARGEST).all():
        raise lines.error(number, f"the vector of {token!r} has a number that is not finite")
    collector.add(word, token, vector.astype(np.float32))
