"""Synonyms in the lexical part: the query gains the features of what stands for its words.

    s′_f = s_f, and where the query has no feature f, s′_f = α s″_f         α = 0.8

s″ is the sparse part of the query with a word replaced by its synonym, so a feature has the weight that it would have
if the synonym had been typed; of several such texts the largest weight counts. u stays as it is. The new query is a
query like any other: exact search over it is certified as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from fullrank.encoding import Encoded, Rows
from fullrank.models.contract import Model
from fullrank.scoring import TermShare
from fullrank.text.folding import fold, folded_words
from fullrank.text.words import words

WEIGHT = 0.8
"""α, of a synonym relative to the word that it stands for."""
MAX_REPLACED = 16
"""Most texts that synonyms make of one query; each is encoded."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A query with some words replaced.

    Attributes:
        synonym: What replaced them.
        text: The whole query.
    """

    synonym: str
    text: str


@dataclass(frozen=True, slots=True)
class Widened:
    """An encoded query with the features of synonyms.

    Attributes:
        encoded: The query.
        terms: What each synonym added, for explanations.
    """

    encoded: Encoded
    terms: list[TermShare]


def replaced(query: str, groups: Iterable[Sequence[str]]) -> list[Replaced]:
    """Return what groups of synonyms make of a query, one text for each place and synonym.

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
            for start in _places(folded, wanted):
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


def _places(folded: tuple[str, ...], wanted: tuple[str, ...]) -> list[int]:
    size = len(wanted)
    return [i for i in range(len(folded) - size + 1) if folded[i : i + size] == wanted]


def widen(model: Model, query: Encoded, texts: Sequence[Replaced]) -> Widened:
    """Return an encoded query with the features of synonyms.

    Args:
        model: Encoded the query.
        query: One query, (1, N) and (1, F).
        texts: As `replaced` returned them.
    """
    if not texts:
        return Widened(query, [])
    sparse = model.encode_queries([found.text for found in texts]).sparse
    indices, values = query.sparse.row(0)
    own = set(indices.tolist())
    gained: dict[int, tuple[float, int]] = {}
    for number in range(len(texts)):
        for feature, weight in zip(*(part.tolist() for part in sparse.row(number)), strict=True):
            if feature not in own and abs(weight) > abs(gained.get(feature, (0.0, 0))[0]):
                gained[feature] = weight, number
    if not gained:
        return Widened(query, [])
    added = {f: float(np.float32(WEIGHT) * np.float32(w)) for f, (w, _) in gained.items()}
    row = [*indices.tolist(), *added], [*values.tolist(), *added.values()]
    widened = replace(query, sparse=Rows.from_lists([row], query.sparse.width))
    nothing = np.zeros(query.dense.shape[1], np.float32)
    terms = []
    for number, found in enumerate(texts):
        features = sorted(f for f, (_, by) in gained.items() if by == number)
        weights = np.array([added[f] for f in features], np.float32)
        if len(features) == 1:
            terms.append(TermShare(found.synonym, nothing, features[0], float(weights[0])))
        elif features:
            terms.append(TermShare(found.synonym, nothing, np.array(features, np.int32), weights))
    return Widened(widened, terms)
