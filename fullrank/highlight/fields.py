"""The words of fields of documents.

All texts are split in one pass. Places are lists, because an array has a fixed cost and most texts are short.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fullrank.encoding import Int64
from fullrank.text.spans import word_spans


class Field(NamedTuple):
    """A text inside a longer one, `whole[start:stop]`.

    Attributes:
        whole: The longer text.
        start: First character of the text, in code points.
        stop: The character after its last one.
        starts: First character in `whole` of each of its words, in order.
        stops: The character after the last one of each.
        numbers: The number of each, equal for equal words.
    """

    whole: str
    start: int
    stop: int
    starts: Sequence[int]
    stops: Sequence[int]
    numbers: Sequence[int]


class Split(NamedTuple):
    """The words of fields of documents.

    Attributes:
        words: All words, ascending; a number of a field is a place here.
        fields: For each document its fields by name.
        complete: For each document the numbers of the words of those of its fields that were split to their end,
            int64.
    """

    words: list[str]
    fields: list[dict[str, Field]]
    complete: list[dict[str, Int64]]


def split_fields(
    documents: Sequence[Mapping[str, Any]], names: Sequence[str], most_chars: int
) -> Split:
    """Split fields of documents into words.

    Args:
        documents: Stored fields.
        names: The fields to split. Absent fields and values other than text are skipped.
        most_chars: Number of characters of a field to read.
    """
    texts = [
        (i, name, value)
        for i, document in enumerate(documents)
        for name in names
        if isinstance(value := document.get(name), str)
    ]
    # No word crosses a line.
    whole = "\n".join([text[:most_chars] for _, _, text in texts])
    spans = word_spans(whole)
    words = sorted(set(spans.words))
    number = {word: i for i, word in enumerate(words)}
    numbers = list(map(number.__getitem__, spans.words))
    as_array = np.array(numbers, np.int64)
    starts, stops = spans.starts.tolist(), spans.stops.tolist()
    found = Split(words, [{} for _ in documents], [{} for _ in documents])
    start = first = 0
    for i, name, text in texts:
        stop = start + min(len(text), most_chars)
        after = bisect_left(starts, stop, first)
        here = slice(first, after)
        found.fields[i][name] = Field(whole, start, stop, starts[here], stops[here], numbers[here])
        if len(text) <= most_chars:
            found.complete[i][name] = as_array[here]
        start, first = stop + 1, after
    return found
