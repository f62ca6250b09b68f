"""The window of a text whose marked words weigh most together, its spans, and tags around them.

A word that occurs twice in a window counts once. Of equal windows the one with more marked words wins, then the first.
It is then moved so that its marked words have as many words before as after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from math import fsum
from typing import Literal, NamedTuple

from fullrank.highlight.fields import Field

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
        field: The text and its words.
        marked: The words to mark.
        words: Number of words of the window, at least 1.
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

    Args:
        found: Place and number of each marked word of the text, at least one, by place.
        marked: Their weights.
        words: Number of words of the window.

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
    """Merge the overlapping spans of one kind."""
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
