"""Documents that the same people clicked in one session, by lift.

    lift(a, b) = P(a and b) / (P(a) P(b)) = n_ab N / (n_a n_b)

n_ab is the number of people who clicked both documents in one session, n_a and n_b of those who clicked each, N of
all who clicked. A pair of fewer than `MIN_PEOPLE` is left out: it could reveal what one person did, and its lift is
unreliable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import NamedTuple

MIN_PEOPLE = 3
MAX_KEPT = 50
"""Most documents kept for each document."""
SESSION_S = 1_800
"""Longest pause inside a session of a person whose clicks name no session."""
_MAX_SESSION = 50
"""Most documents of a session, because the number of pairs grows with its square."""
_PEOPLE_PER_PAUSE = 50


class Click(NamedTuple):
    """A click on a document.

    Attributes:
        at: In seconds since 1970.
    """

    person: str
    session: str | None
    document: str
    at: float


class Together(NamedTuple):
    """A document that was clicked together with another one, the number of people, and the lift."""

    document: str
    people: int
    lift: float


def together(
    clicks: Iterable[Click], pause: Callable[[], object] = lambda: None
) -> dict[str, list[Together]]:
    """Return for each document those clicked together with it, by lift, then by number of people and id.

    Example:
        >>> clicks = [Click(f"u{i}", "s", document, 0.0) for i in range(3) for document in "ab"]
        >>> together(clicks)["a"]
        [Together(document='b', people=3, lift=1.0)]
    """
    by_person = defaultdict[str, list[Click]](list)
    for click in clicks:
        by_person[click.person].append(click)
    people, pairs = defaultdict[str, int](int), defaultdict[tuple[str, str], int](int)
    for number, own in enumerate(by_person.values()):
        if number % _PEOPLE_PER_PAUSE == 0:
            pause()
        found: set[tuple[str, str]] = set()
        for session in _sessions(own):
            found.update(combinations(sorted(session)[:_MAX_SESSION], 2))
        for document in {click.document for click in own}:
            people[document] += 1
        for pair in found:
            pairs[pair] += 1
    kept = defaultdict[str, list[Together]](list)
    for (a, b), count in pairs.items():
        if count >= MIN_PEOPLE:
            lift = count * len(by_person) / (people[a] * people[b])
            kept[a].append(Together(b, count, lift))
            kept[b].append(Together(a, count, lift))
    return {document: sorted(several, key=_rank)[:MAX_KEPT] for document, several in kept.items()}


def _sessions(clicks: list[Click]) -> Iterable[set[str]]:
    found = defaultdict[tuple[str | None, int], set[str]](set)
    number, last = 0, None
    for click in sorted(clicks, key=lambda click: click.at):
        if click.session is None:
            if last is not None and click.at - last > SESSION_S:
                number += 1
            last = click.at
            found[None, number].add(click.document)
        else:
            found[click.session, 0].add(click.document)
    return found.values()


def _rank(found: Together) -> tuple[float, int, str]:
    return -found.lift, -found.people, found.document
