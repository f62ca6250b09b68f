"""A rule, read from JSON and checked.

query      {"is": text}, {"contains": text} or {"prefix": text}; without it a rule is for every query
filter     only documents that match are ranked (fullrank.filters.query)
pin        [{"id", "position"}], documents at fixed places; position 1 is the first
hide       ids of documents that are not returned
synonyms   [["tv", "television"]], groups of words or phrases that stand for each other
from       ISO 8601 with an offset from UTC, when the rule begins
until      when it ends
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fullrank.errors import FieldError, QueryError
from fullrank.storage.strict_json import parse_time
from fullrank.text.folding import folded_words

Kind = Literal["is", "contains", "prefix"]
KINDS: tuple[Kind, ...] = ("is", "contains", "prefix")
MAX_POSITION = 1_000
MAX_PINS = 100
MAX_HIDDEN = 1_000
MAX_GROUPS, MAX_GROUP = 100, 20
MAX_TEXT_CHARS = 256


class RuleError(FieldError, QueryError):
    """A rule is malformed or can never apply; its path is like "pin.0.position"."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The queries that a rule is for."""

    kind: Kind
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pin:
    """A document at a fixed place; place 0 is the first."""

    id: str
    place: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        synonyms: Groups of texts, each of at least two.
        begins, ends: In seconds since 1970; None for no bound. A rule applies from `begins` on and before `ends`.
    """

    id: str
    condition: Condition | None = None
    filter: Mapping[str, Any] | None = None
    pins: tuple[Pin, ...] = ()
    hide: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, ...], ...] = ()
    begins: float | None = None
    ends: float | None = None

    @property
    def is_restricting(self) -> bool:
        """Whether the rule leaves documents out."""
        return self.filter is not None or bool(self.hide)

    def is_active(self, now: float) -> bool:
        """Return whether the rule applies at a time, in seconds since 1970."""
        return (self.begins is None or self.begins <= now) and (
            self.ends is None or now < self.ends
        )


def read_rule(id: str, given: Mapping[str, Any], now: float | None = None) -> Rule:
    """Read a rule whose fields have the right types.

    Args:
        now: In seconds since 1970, to refuse a rule that has ended or a part without effect; None accepts both.

    Raises:
        RuleError: The rule can never apply, or has no effect.

    Example:
        >>> read_rule("tv", {"query": {"is": "TV"}, "hide": ["a1"]}).condition
        Condition(kind='is', words=('tv',))
    """
    begins, ends = _time(given, "from"), _time(given, "until")
    if begins is not None and ends is not None and ends <= begins:
        raise RuleError("until", "is not after from, so the rule can never apply")
    if now is not None and ends is not None and ends <= now:
        raise RuleError("until", "is over, so the rule can never apply")
    rule = Rule(
        id,
        _condition(given.get("query")),
        given.get("filter"),
        _pins(given.get("pin") or ()),
        tuple(dict.fromkeys(given.get("hide") or ())),
        _synonyms(given.get("synonyms") or ()),
        begins,
        ends,
    )
    if rule.filter is None and not (rule.pins or rule.hide or rule.synonyms):
        raise RuleError("", "has no effect; give at least one of filter, pin, hide, synonyms")
    hidden = set(rule.hide)
    for place, pin in enumerate(given.get("pin") or ()):
        if pin["id"] in hidden:
            raise RuleError(f"pin.{place}.id", "is hidden by the same rule")
    if now is not None:
        _check_synonyms(rule)
    return rule


def _check_synonyms(rule: Rule) -> None:
    """Raise RuleError for synonyms of words that the one query of a rule does not have."""
    if rule.condition is None or rule.condition.kind != "is":
        return
    query = rule.condition.words
    for number, group in enumerate(rule.synonyms):
        if not any(places(query, folded_words(text)) for text in group):
            reason = "has no text that query.is contains, so it can never apply"
            raise RuleError(f"synonyms.{number}", reason)


def places(words: tuple[str, ...], wanted: tuple[str, ...]) -> list[int]:
    """Return where some words stand in a row among others.

    Example:
        >>> places(("a", "b", "a", "b"), ("a", "b"))
        [0, 2]
    """
    size = len(wanted)
    return [i for i in range(len(words) - size + 1) if words[i : i + size] == wanted]


def _condition(given: Mapping[str, Any] | None) -> Condition | None:
    if given is None:
        return None
    texts = [(kind, given[kind]) for kind in KINDS if given.get(kind) is not None]
    if len(texts) != 1:
        raise RuleError("query", f"must have exactly one of {', '.join(KINDS)}")
    [(kind, text)] = texts
    found = folded_words(text)
    if not found:
        raise RuleError(f"query.{kind}", "has no word, so the rule can never apply")
    return Condition(kind, found)


def _pins(given: Sequence[Mapping[str, Any]]) -> tuple[Pin, ...]:
    ids, positions = set[str](), set[int]()
    for place, pin in enumerate(given):
        if pin["id"] in ids:
            raise RuleError(f"pin.{place}.id", "is pinned twice")
        if pin["position"] in positions:
            raise RuleError(f"pin.{place}.position", "has two documents")
        ids.add(pin["id"])
        positions.add(pin["position"])
    return tuple(
        sorted((Pin(pin["id"], pin["position"] - 1) for pin in given), key=lambda pin: pin.place)
    )


def _synonyms(given: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    for number, group in enumerate(given):
        seen = dict[tuple[str, ...], int]()
        for place, text in enumerate(group):
            found = folded_words(text)
            if not found:
                raise RuleError(f"synonyms.{number}.{place}", "has no word")
            if found in seen:
                reason = f"is the same as synonyms.{number}.{seen[found]}"
                raise RuleError(f"synonyms.{number}.{place}", reason)
            seen[found] = place
    return tuple(map(tuple, given))


def _time(given: Mapping[str, Any], name: str) -> float | None:
    text = given.get(name)
    try:
        return None if text is None else parse_time(text, needs_offset=True)
    except ValueError as error:
        raise RuleError(name, str(error)) from None


# The rules that apply to a query, found by the query's words: the time hardly grows with the number of rules.
#
#     is        one look-up of all words of the query
#     contains  one look-up for each word of the query, and one for each length of the texts that begin with this word
#     prefix    four look-ups, and one for each length of the texts that begin with the same four letters
#
# `is` compares all words, `contains` finds the words in a row anywhere, `prefix` compares the first letters of the
# folded query: "cof" is a prefix of "coffee beans".

_HEAD = 4  # letters


class RuleIndex:
    """The rules of one collection; immutable.

    Example:
        >>> index = RuleIndex([read_rule("r", {"query": {"contains": "TV"}, "hide": ["a"]})])
        >>> [rule.id for rule in index.matching("cheap tv", now=0.0)]
        ['r']
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._count = 0
        self._always: list[Rule] = []
        self._same = defaultdict[tuple[str, ...], list[Rule]](list)
        self._inside = defaultdict[tuple[str, ...], list[Rule]](list)
        self._prefixes = defaultdict[str, list[Rule]](list)
        for rule in rules:
            self._count += 1
            self._add(rule)
        self._sizes = defaultdict[str, set[int]](set)
        for words in self._inside:
            self._sizes[words[0]].add(len(words))
        self._lengths = defaultdict[str, set[int]](set)
        for prefix in self._prefixes:
            self._lengths[prefix[:_HEAD]].add(len(prefix))

    def __len__(self) -> int:
        return self._count

    def _add(self, rule: Rule) -> None:
        if rule.condition is None:
            self._always.append(rule)
            return
        words = rule.condition.words
        match rule.condition.kind:
            case "is":
                self._same[words].append(rule)
            case "contains":
                self._inside[words].append(rule)
            case "prefix":
                self._prefixes[" ".join(words)].append(rule)

    def matching(self, query: str, now: float) -> list[Rule]:
        """Return the rules that apply to a query `now`, in seconds since 1970, by id."""
        words = folded_words(query)
        found = [*self._always, *self._same.get(words, ())]
        if self._sizes:
            for start, word in enumerate(words):
                for size in self._sizes.get(word, ()):
                    found += self._inside.get(words[start : start + size], ())
        if self._lengths:
            text = " ".join(words)
            for head in {text[: size + 1] for size in range(_HEAD)}:
                for length in self._lengths.get(head, ()):
                    found += self._prefixes.get(text[:length], ())
        if not found:
            return found
        active = {rule.id: rule for rule in found if rule.is_active(now)}
        return [active[id] for id in sorted(active)]
