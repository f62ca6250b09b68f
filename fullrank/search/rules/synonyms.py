"""Synonyms in the lexical part: a query gets the features of the synonyms of its words.

    s′_f = s_f, and where the query has no feature f, s′_f = α s″_f         α = 0.8

s″ is the sparse part of the query with a word replaced by its synonym, so a feature has the weight of a typed word.
Of several such texts, the largest weight counts. u does not change. The result is an ordinary query, so exact search
for it is certified.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from fullrank.models.contract import Model
from fullrank.models.widening import NO_ADDITIONS, Additions, shares_of
from fullrank.search.rules.rule import places
from fullrank.text.folding import fold, folded_words
from fullrank.text.words import words

WEIGHT = 0.8
"""α, the weight of a synonym relative to the word that it replaces."""
MAX_REPLACED = 16
"""Most texts that synonyms make of one query; each is encoded."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A query with some words replaced."""

    synonym: str
    text: str


def replaced(query: str, groups: Iterable[Sequence[str]]) -> list[Replaced]:
    """Return the queries that replacing a word by a synonym gives, one text for each place and synonym.

    Example:
        >>> [found.text for found in replaced("cheap TV", [["tv", "television"]])]
        ['cheap television']
    """
    tokens = query.split()
    split = [words(token) for token in tokens]
    owner = [number for number, parts in enumerate(split) for _ in parts]
    typed = list(chain.from_iterable(split))
    folded = tuple(map(fold, typed))
    found: dict[str, Replaced] = {}
    for group in groups:
        members = [(text, folded_words(text)) for text in group]
        for text, wanted in members:
            for start in places(folded, wanted):
                stop = start + len(wanted)
                first, last = owner[start], owner[stop - 1]
                # Words of the same token that were not replaced: "smart" of "smart-tv".
                before = typed[owner.index(first) : start]
                after = typed[stop : len(owner) - owner[::-1].index(last)]
                for other, _ in members:
                    if other == text:
                        continue
                    parts = [*tokens[:first], *before, other, *after, *tokens[last + 1 :]]
                    made = " ".join(parts)
                    found.setdefault(made, Replaced(other, made))
                    if len(found) == MAX_REPLACED:
                        return list(found.values())
    return list(found.values())


def features_of(model: Model, texts: Sequence[Replaced]) -> Additions:
    """Return the features that each text adds to the query that it was made of."""
    if not texts:
        return NO_ADDITIONS
    sparse = model.encode_queries([found.text for found in texts]).sparse
    return shares_of([found.synonym for found in texts], sparse, WEIGHT)
