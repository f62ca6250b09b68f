"""Highlights: the part of a field that answers a query best, and the words in it to mark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from math import fsum
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.errors import FilterError
from fullrank.filters.columns import Columns
from fullrank.filters.query import listed
from fullrank.kernels.arrays import Int64
from fullrank.models.contract import Model
from fullrank.models.reading import SplitDocuments
from fullrank.storage.documents import text_of
from fullrank.storage.encoding import Encoded
from fullrank.text.words import BYTES, kind_of, tokens, words

# Words of a text with their places, by the segmentation of fullrank.text.words.


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


# The words of fields of documents.
#
# All texts are split in one pass. Places are lists, because an array has a fixed cost and most texts are short.


class Field(NamedTuple):
    """A text inside a longer one, `whole[start:stop]`.

    Attributes:
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
    """Split fields of documents into words."""
    texts = [
        (i, name, value)
        for i, document in enumerate(documents)
        for name in names
        if (value := text_of(document.get(name))) is not None
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


# Which words of documents a highlight marks, and the weight of each.
#
#     word      a word of the query as the model reads it: in any form, corrected, joined with or split from others
#     meaning   one of the MAX_MEANING other words of the document with the largest share in its score, at least
#               LEAST_MEANING of the largest share of any of its words
#
# The weight of a marked word is its share in the score, at least 0.

MAX_MEANING = 8
LEAST_MEANING = 0.1
MAX_CHARS = 20_000
"""Characters of a field that are read; the answer to a query is rarely further down."""


@dataclass(frozen=True, slots=True)
class Highlight:
    """What to mark.

    Attributes:
        tags: What to put before and after each span of an HTML snippet; None: the snippet is plain text.
    """

    fields: Sequence[str]
    words: int = 30
    tags: Tags | None = None


def check_highlight(columns: Columns, fields: Sequence[str], path: str) -> None:
    """Check the fields to highlight. Raises FilterError for one that is unknown or holds no text."""
    for place, name in enumerate(fields):
        if name in columns.refused:  # text too long for a column is text
            continue
        if name not in columns:
            known = listed({*columns.by_name, *columns.refused})
            raise FilterError(f"{path}.{place}", f"unknown field; known fields: {known}")
        kinds = columns[name].kinds
        if kinds and "keyword" not in kinds:
            raise FilterError(f"{path}.{place}", "this field holds no text")


def highlights(
    model: Model,
    text: str,
    query: Encoded,
    documents: Sequence[Mapping[str, Any]],
    encoded: Encoded,
    asked: Highlight,
) -> list[dict[str, Snippet]]:
    """Return the snippets of documents for a query.

    Returns:
        For each document a snippet of each of the fields that it has as text.
    """
    split = split_fields(documents, asked.fields, MAX_CHARS)
    reading = SplitDocuments(documents, split.words, split.complete)
    matched = model.matching_words(text, split.words).tolist()
    shares = model.word_shares(query, reading, encoded, split.words).tolist()
    found: list[dict[str, Snippet]] = []
    for fields, own_shares in zip(split.fields, shares, strict=True):
        own = sorted({number for field in fields.values() for number in field.numbers})
        marked = _marked(own, matched, own_shares)
        found.append(
            {
                name: snippet(field, marked, asked.words, asked.tags)
                for name, field in fields.items()
            }
        )
    return found


def _marked(own: Sequence[int], matched: Sequence[bool], shares: Sequence[float]) -> Marked:
    """Return the kind and the weight of each word of a document that is marked, by number."""
    marked: Marked = {i: ("meaning", shares[i]) for i in meaning_words(own, matched, shares)}
    for i in own:
        if matched[i]:
            marked[i] = "word", max(0.0, shares[i])
    return marked


def meaning_words(
    own: Sequence[int], matched: Sequence[bool], shares: Sequence[float]
) -> list[int]:
    """Choose the words of a document to mark for their meaning.

    Args:
        shares: Of W words, the share in the score.
    """
    least = LEAST_MEANING * max([shares[i] for i in own], default=0.0)
    others = [i for i in own if shares[i] > 0 and shares[i] >= least and not matched[i]]
    others.sort(key=lambda i: -shares[i])
    return others[:MAX_MEANING]


# The window of a text whose marked words weigh most together, its spans, and tags around them.
#
# A word that occurs twice in a window counts once. Of equal windows the one with more marked words wins, then the
# first. It is then moved so that its marked words have as many words before as after them.

Kind = Literal["word", "meaning"]
KINDS: tuple[Kind, Kind] = ("word", "meaning")
Span = tuple[int, int, Kind]


class Tags(NamedTuple):
    """What stands before and after each span of an HTML snippet."""

    pre: str
    post: str


Marked = dict[int, tuple[Kind, float]]
"""Kind and weight of each marked word by number; no weight is below zero."""


class Snippet(NamedTuple):
    """A part of a text, and the spans (from, to, kind) in it, in code points of `text`, ascending and apart."""

    text: str
    spans: list[Span]


def snippet(field: Field, marked: Marked, words: int, tags: Tags | None = None) -> Snippet:
    """Cut the best window out of a text.

    Args:
        tags: Put around each span; everything else is then escaped for HTML.

    Returns:
        The window and its spans. A window at an end of the text goes to that end, so it has the punctuation there.
    """
    places = [place for place, number in enumerate(field.numbers) if number in marked]
    count = len(field.numbers)
    first = 0
    if places and count > words:
        first = best_window([(place, field.numbers[place]) for place in places], marked, words)
        first = min(first, count - words)
    last = min(first + words, count)
    start = field.start if first == 0 else field.starts[first]
    # Words of one token may share its place, so the last one need not end last.
    stop = field.stop if last == count else max(field.stops[first:last])
    inside = [
        (field.starts[place] - start, field.stops[place] - start, marked[field.numbers[place]][0])
        for place in places
        if first <= place < last
    ]
    found = Snippet(field.whole[start:stop], apart(inside))
    return found if tags is None else _tagged(found, tags)


def best_window(found: Sequence[tuple[int, int]], marked: Marked, words: int) -> int:
    """Return the first place of the best window.

    Returns:
        A place, at least 0; the window may end after the text.
    """
    best, chosen = (-1.0, 0), (0, 0)
    after = 0
    # Moving a window to the right up to its first marked word loses none of them.
    for first, (place, _) in enumerate(found):
        before = after
        while after < len(found) and found[after][0] < place + words:
            after += 1
        if after == before:  # part of the window before it
            continue
        distinct = {number for _, number in found[first:after]}
        value = fsum([marked[number][1] for number in distinct]), len(distinct)
        if value > best:
            best, chosen = value, (place, found[after - 1][0])
    start, last = chosen
    return max(0, start - (words - (last - start + 1)) // 2)


def apart(spans: Sequence[Span]) -> list[Span]:
    """Merge overlapping spans of one kind, and leave out those of a meaning that overlap words of the query."""
    if all(one[1] <= other[0] for one, other in pairwise(spans)):
        return list(spans)
    words, meanings = (_merged(spans, kind) for kind in KINDS)
    meanings = [
        (start, stop, kind)
        for start, stop, kind in meanings
        if not any(start < after and first < stop for first, after, _ in words)
    ]
    return sorted(words + meanings)


def _merged(spans: Sequence[Span], kind: Kind) -> list[Span]:
    found: list[Span] = []
    for start, stop, own in sorted(spans):
        if own != kind:
            continue
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]), own)
        else:
            found.append((start, stop, own))
    return found


def _tagged(plain: Snippet, tags: Tags) -> Snippet:
    """Escape a snippet for HTML and put tags around its spans, which then have their new places."""
    parts: list[str] = []
    spans: list[Span] = []
    done = length = 0
    for start, stop, kind in plain.spans:
        before = escape(plain.text[done:start]) + tags.pre
        inside = escape(plain.text[start:stop])
        first = length + len(before)
        parts += [before, inside, tags.post]
        length = first + len(inside) + len(tags.post)
        spans.append((first, first + len(inside), kind))
        done = stop
    return Snippet("".join([*parts, escape(plain.text[done:])]), spans)
