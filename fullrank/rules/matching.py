"""The rules that apply to a query, found by the query's words: the time hardly grows with the number of rules.

    is        one look-up of all words of the query
    contains  one look-up for each word of the query, and one for each length of the texts that begin with this word
    prefix    four look-ups, and one for each length of the texts that begin with the same four letters

`is` compares all words, `contains` finds the words in a row anywhere, `prefix` compares the first letters of the folded
query: "cof" is a prefix of "coffee beans".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fullrank.rules.rule import Rule
from fullrank.text.folding import folded_words

_HEAD = 4  # letters


class RuleIndex:
    """The rules of one collection; immutable.

    Args:
        rules: In any order.

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
        """Number of rules."""
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
        """Return the rules that apply to a query, by id.

        Args:
            query: As typed.
            now: In seconds since 1970.
        """
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
