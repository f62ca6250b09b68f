"""Join events to the lists that people saw: votes.

A vote is a document that a list showed. Of one person, query, document and day one click counts, and what was shown
before it. A position never comes from the client: the served list has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.events.caps import MAX_COINS, find_programs, up_to_a_click, within_caps
from fullrank.events.records import Event, ServedList, normalised
from fullrank.storage.encoding import Float64, Int64

Bool = npt.NDArray[np.bool_]

_DAY_S = 86_400
_REPORTED = "reported"


@dataclass(frozen=True, eq=False)
class Coins:
    """Neighbours whose order a coin decided; a row is a list that was shown with a coin thrown.

    Attributes:
        place: int64, of the upper one; 0 is the first document of all.
        upper, lower: bool, whether they were clicked.
        person: int64.
    """

    place: Int64
    upper: Bool
    lower: Bool
    person: Int64


@dataclass(frozen=True, eq=False)
class Votes:
    """What people saw and clicked. All arrays but those of ``coins`` have one row a vote.

    Votes of lists without what else was shown are counts: they say nothing about places.

    Attributes:
        query, document: int64, places in ``queries`` and ``documents``.
        person: int64, without gaps or not; equal numbers are one person, numbers below zero one whom nobody names.
        place: int64, 0 is the first document of all: the offset of a list is added.
        time: float64, when the list was shown, in seconds since 1970.
        dwell_s: float64, how long the document was looked at, NaN if unknown.
        shown: int64, number of the list; two votes of one list have the same.
        is_listed: bool, whether the list has all that was shown; in a log of clicks alone no list has.
        counts: of what was joined and, by reason, of clicks that were left out.
        text_rank: int64, how many documents fit the query better by their text (`texts`), −1 where that is unknown;
            None: it is unknown everywhere.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    query: Int64
    document: Int64
    person: Int64
    place: Int64
    time: Float64
    clicked: Bool
    dwell_s: Float64
    shown: Int64
    is_listed: Bool
    coins: Coins
    counts: Mapping[str, int]
    text_rank: Int64 | None = None

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Bool | Int64) -> Votes:
        """Return some of the votes, with all coins."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        chosen: dict[str, Any] = {
            name: array[rows] for name, array in arrays.items() if isinstance(array, np.ndarray)
        }
        return replace(self, **chosen)


def join(lists: Iterable[ServedList], events: Iterable[Event], name: str | None = None) -> Votes:
    """Join events to served lists.

    Only lists of searches count, and those that a client reported if there is no list of ours with the same id. Who
    asked is the person of the list, else of its first click; without one, each list is by a person of its own.
    Programs are left out, and so are votes beyond the caps, and documents that a rule pinned.

    Args:
        name: only lists of versions of this model count, and those that name no version; None: all.

    Example:
        >>> votes = join(log.lists(), log.events())
        >>> votes.counts["clicks"], votes.counts["unknown_list"]
        (1204, 3)
    """
    counts: Counter[str] = Counter()
    shown = _choose(lists, counts)
    row_of = {served.query_id: row for row, served in enumerate(shown)}
    people = [served.person for served in shown]
    clicks: list[_Click] = []
    elsewhere: list[tuple[str, float]] = []  # person and time of clicks without a list
    for event in events:
        if not event.is_click:
            counts["other_actions"] += 1
            continue
        counts["clicks"] += 1
        row = row_of.get(event.texts.get("query_id", ""))
        if row is None:
            counts["unknown_list" if "query_id" in event.texts else "without_list"] += 1
            if event.person is not None:
                elsewhere.append((event.person, event.at))
            continue
        people[row] = people[row] or event.person
        clicks.append(_Click(row, event.at, event.object_id, event.dwell_ms, event.is_bot))
    codes: dict[str, int] = {}
    numbers = (
        codes.setdefault(name, len(codes)) if name else -1 - row for row, name in enumerate(people)
    )
    person = np.fromiter(numbers, np.int64, len(people))
    who = [person[click.row] for click in clicks]
    who += [codes.setdefault(name, len(codes)) for name, _ in elsewhere]
    at = [click.at for click in clicks] + [at for _, at in elsewhere]
    bots = find_programs(np.array(who, np.int64), np.array(at, np.float64))
    is_program = np.array([served.is_bot for served in shown], np.bool_) | np.isin(person, bots)
    counts["programs"] = len(bots)
    is_other = [name is not None and not _is_of(served, name) for served in shown]
    return _votes(shown, person, is_program, np.array(is_other, np.bool_), clicks, counts)


def _is_of(served: ServedList, name: str) -> bool:
    # A client may report the name of its own model. Only the service adds a generation, and then the model is ours.
    is_foreign = served.kind == _REPORTED and not served.generation
    return is_foreign or served.name in ("", name)


class _Click(NamedTuple):
    row: int
    at: float
    document: str | None
    dwell_ms: float | None
    is_bot: bool


def _choose(lists: Iterable[ServedList], counts: Counter[str]) -> list[ServedList]:
    """Return one list of each id; one of ours takes precedence over a reported one."""
    known: dict[str, ServedList] = {}
    for served in lists:
        other = known.setdefault(served.query_id, served)
        if other is not served:
            counts["repeated_lists"] += 1
            if other.kind == _REPORTED != served.kind:
                known[served.query_id] = served
    counts["lists"] = len(known)
    return list(known.values())


def _votes(
    shown: Sequence[ServedList],
    person: Int64,
    is_program: Bool,
    is_other: Bool,
    clicks: Sequence[_Click],
    counts: Counter[str],
) -> Votes:
    texts = _Codes()
    is_search = np.array([served.kind in ("search", _REPORTED) for served in shown], np.bool_)
    trains = is_search & ~is_other
    # Texts of pages and documents are no queries.
    codes_of = (
        texts[found.text] if is_query else -1 for found, is_query in zip(shown, trains, strict=True)
    )
    query = np.fromiter(codes_of, np.int64, len(shown))
    sizes = np.array([len(served.ids) for served in shown], np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    clicked = np.zeros(starts[-1], np.bool_)
    dwell_s = np.full(starts[-1], np.nan)
    for click in clicks:
        reason = None
        if click.document is None:
            reason = "without_document"
        elif click.is_bot or is_program[click.row]:
            reason = "by_programs"
        elif not is_search[click.row]:
            reason = "not_a_search"
        elif is_other[click.row]:
            reason = "of_another_model"
        elif click.document not in (ids := shown[click.row].ids):
            reason = "not_shown"
        elif (place := ids.index(click.document)) in shown[click.row].pinned:
            reason = "pinned"
        else:
            t = starts[click.row] + place
            clicked[t] = True
            if click.dwell_ms is not None:
                dwell_s[t] = np.fmax(dwell_s[t], click.dwell_ms / 1000)
        if reason:
            counts[reason] += 1
    documents: dict[str, int] = {}
    codes = (documents.setdefault(id, len(documents)) for served in shown for id in served.ids)
    document = np.fromiter(codes, np.int64, starts[-1])
    owner = np.repeat(np.arange(len(shown)), sizes)
    offset = np.array([served.offset for served in shown], np.int64)
    at = np.array([served.at for served in shown], np.float64)
    votes = Votes(
        queries=texts.names,
        documents=list(documents),
        query=query[owner],
        document=document,
        person=person[owner],
        place=np.arange(starts[-1]) - starts[owner] + offset[owner],
        time=at[owner],
        clicked=clicked,
        dwell_s=dwell_s,
        shown=owner,
        is_listed=~np.array([served.only_clicked for served in shown], np.bool_)[owner],
        coins=_coins(shown, person, query, at, starts, clicked, trains & ~is_program),
        counts=counts,
    )
    counts["lists_of_programs"] = int(is_program.sum())
    counts["lists_of_another_model"] = int(is_other.sum())
    is_ranked = np.ones(starts[-1], np.bool_)
    for row, served in enumerate(shown):
        for place in served.pinned:
            is_ranked[starts[row] + place] = False
    votes = votes.take((trains & ~is_program)[owner] & is_ranked)
    day = (votes.time // _DAY_S).astype(np.int64)
    same = votes.person, votes.query, votes.document, day
    votes = votes.take(up_to_a_click(same, votes.time, votes.place, votes.clicked))
    kept = votes.take(within_caps(votes.person, votes.document, votes.time, votes.clicked))
    if kept.clicked.all():
        kept = replace(kept, is_listed=np.zeros(len(kept), np.bool_))
    counts["beyond_caps"] = int(votes.clicked.sum() - kept.clicked.sum())
    counts["shown"] = int(kept.is_listed.sum())  # imported clicks do not say what was
    counts["votes"] = int(kept.clicked.sum())
    return kept


class _Codes(dict[str, int]):
    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self._known)

    def __missing__(self, text: str) -> int:
        code = self._known.setdefault(normalised(text), len(self._known))
        self[text] = code
        return code


def _coins(
    shown: Sequence[ServedList],
    person: Int64,
    query: Int64,
    at: Float64,
    starts: Int64,
    clicked: Bool,
    usable: Bool,
) -> Coins:
    """Collect the coins: the first list that was clicked of each person, query and day, and few of a person."""
    seen: set[tuple[int, int, int]] = set()
    clicks_of: Counter[int] = Counter()
    rows = []
    for row, served in enumerate(shown):
        if served.pair is None or not usable[row] or not 0 <= served.pair < len(served.ids) - 1:
            continue
        t = starts[row] + served.pair
        key = int(person[row]), int(query[row]), int(at[row] // _DAY_S)
        if clicked[t] or clicked[t + 1]:
            if key in seen or clicks_of[key[0]] == MAX_COINS:
                continue
            seen.add(key)
            clicks_of[key[0]] += 1
        rows.append((served.offset + served.pair, t, row))
    place, t, row_of = np.array(rows, np.int64).reshape(-1, 3).T
    return Coins(place, clicked[t], clicked[t + 1], person[row_of])
