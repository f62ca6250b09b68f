"""The floors that a document must reach to be found: of u·v or of s·t (``fullrank.retrieval.candidates``).

s·t must be near what a single word of a real query gets from the document that it fits best. Where it is not, u·v must
be above what random documents get, and above what made-up words get that no text contains, but not above a judged
document among the first ten of its query. So real queries keep their answers, judged documents keep their places, and
a query that the model knows nothing about finds nothing.

A document that has a word of the query, as it is, in another form or without its typing error, needs neither. One that
has none gets its s·t from what training has learned about several words, so it needs more for each of them, as much as
keeps the judged documents among the first hundred.

A query of which the model knows no word well enough is unfamiliar (fullrank.models.words) and is
found by u·v alone, which must be clearly above that of made-up unfamiliar queries. Judged documents keep their places
there too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.models.contract import Model
from fullrank.models.unseen import live_model
from fullrank.models.words import Words, script_of
from fullrank.retrieval import Floor, Mask
from fullrank.retrieval.scoring import InnerProduct, Scorer
from fullrank.storage.encoding import Encoded, Float64, Int64
from fullrank.text.spelling import MIN_LETTERS
from fullrank.text.words import tokens, words
from fullrank_trainer.evaluation.evaluate import Judgement

# What random words do not reach, but real queries do: the standard of a familiar query (fullrank.models.words).
#
#     odds     the 99.8th percentile of random words of `SHORTEST` letters: nearly all random words that are near a
#              one by chance stay below it, in every script
#     share    midway between 1 and the 99th percentile of random words of several pieces, at least a half
#
# Both are lowered to what the real queries need that have a known piece. Shorter words than `SHORTEST` are not looked
# at: most strings of one to three letters are words, or parts of words, of some document.

SHORTEST = MIN_LETTERS
_FAMILIAR_WORDS = 2_000
_ODDS, _FAMILIAR_SHARE = 0.998, 0.99
_LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Standard:
    """What makes a query familiar: the least share of known letters of a word, and the least odds of a typing error."""

    share: float
    odds: float


def random_words(texts: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """Return words like those of texts with each letter drawn at random, half of them within its script."""
    found = sorted({word for text in texts for word in text.split() if len(word) >= SHORTEST})
    letters = sorted({letter for text in texts for letter in text if letter.isalpha()})
    if not found or not letters:
        return []
    of_script: dict[str, list[str]] = {}
    for letter in letters:
        of_script.setdefault(script_of(letter), []).append(letter)

    def drawn(letter: str, is_within: bool) -> str:
        among = of_script.get(script_of(letter), letters) if is_within else letters
        return among[rng.integers(len(among))]

    return [
        "".join(drawn(letter, bool(place % 2)) for letter in found[rng.integers(len(found))])
        for place in range(count)
    ]


def calibrate_standard(familiar: Words, texts: Sequence[str], rng: np.random.Generator) -> Standard:
    """Choose the standard of a model by random words and real queries."""
    made_up = [
        words(token) for word in random_words(texts, _FAMILIAR_WORDS, rng) for token in tokens(word)
    ]
    odds: dict[str, list[float]] = {}
    for piece in (piece for several in made_up for piece in several if len(piece) >= SHORTEST):
        odds.setdefault(script_of(piece[0]), []).append(_odds(familiar, piece[:SHORTEST]))
    chance = max((float(np.quantile(several, _ODDS)) for several in odds.values()), default=0.0)
    real = [[words(token) for token in tokens(text)] for text in texts]
    needed = [
        max((familiar.odds(piece) for pieces in several for piece in pieces), default=0.0)
        for several in real
    ]
    chance = min([chance, *(odds for odds in needed if odds)])

    several = [pieces for pieces in made_up if len(pieces) > 1]
    shares = [familiar.share(pieces, chance) for pieces in several]
    noise = float(np.quantile(shares, _FAMILIAR_SHARE)) if shares else 0.0
    share = max(_LEAST_SHARE, (1 + noise) / 2)
    reached = [
        max((familiar.share(p, chance) for p in pieces if p), default=0.0) for pieces in real
    ]
    return Standard(min([share, *(value for value in reached if value)]), chance)


def _odds(familiar: Words, piece: str) -> float:
    """Return the odds of a typing error; 0 for a known word and for what no known word is near to."""
    odds = familiar.odds(piece)
    return odds if np.isfinite(odds) else 0.0


# Queries of each kind, and documents that are looked at.
_QUERIES, _DOCUMENTS = 200, 50_000
# Made-up queries: the largest u·v of a few says little about that of many.
_MADE_UP = 400
_BLOCK = 16
# Of a made-up query at most.
_WORDS = 3
_SEED = 1
# Judged documents among so many first places are kept; by words more of them, because fewer documents are found.
_PLACES, _PLACES_BY_WORDS = 10, 100
# The part of the s·t of weak real words that is asked for, and the share of words that may be weaker.
_SHARE, _WEAK = 0.8, 0.02
# The share of random documents that may reach the floor of u·v.
_CHANCE = 0.001
# A search adds up u·v in float64, and here it is float32, so a floor lies a little below the u·v that must reach it.
_BELOW = 1 - 2.0**-16
# Above zero, which every document has for a query without any known feature.
_LEAST = 1e-6
# Of these made-up queries, and of many more that nobody has looked at.
_MARGIN = 2.0
_UNSEEN = "qzxwvqzxwv"
# The part of the growth by words that keeps all judged documents, and the most.
_KEPT, _MOST_PER_WORD = 0.8, 1.0
# A word is common if a larger share of the documents has it.
_COMMON = 0.1


@dataclass(frozen=True)
class CalibratedFloor:
    """A floor and the numbers that it was chosen by, for the model card; None where nothing was measured.

    Attributes:
        words: The s·t that all but a few words of real queries get from the document that fits them best.
        random: The u·v that all but a few random documents stay below, for real queries.
        noise: The largest u·v of made-up words.
        judged: The smallest u·v of a judged document in the first places that does not reach the floor of s·t.
        best: The smallest u·v of the best document for a real query that finds nothing by s·t.
        unfamiliar: The largest u·v of made-up unfamiliar queries.
        growth: The largest growth of the floor of s·t by words that keeps the judged documents in the first places.
    """

    floor: Floor
    words: float | None
    random: float | None
    noise: float | None
    judged: float | None
    best: float | None
    unfamiliar: float | None = None
    growth: float | None = None

    def card(self) -> dict[str, float | None]:
        found = {"words": self.words, "random": self.random, "noise": self.noise}
        found |= {"judged": self.judged, "best": self.best, "most_unfamiliar": self.unfamiliar}
        found["growth"] = self.growth if self.growth is None or math.isfinite(self.growth) else None
        return {**self.floor.json(), **found}


def calibrate_floor(
    model: Model,
    documents: Encoded,
    texts: Sequence[str],
    judgements: Sequence[Judgement] = (),
) -> CalibratedFloor | None:
    """Choose the floors of a model.

    Args:
        texts: Real queries, if possible not trained on; with judgements, the queries of these.

    Returns:
        The floors; None where no query has a word.
    """
    rng = np.random.default_rng(_SEED)
    words = sorted({word for text in texts for word in text.split()})
    if not words or not len(documents):
        return None
    rows = _some_rows(len(documents), judgements, rng)
    if len(rows) < len(documents):
        documents = documents.take(rows)
    looked = _Looked(model, documents)

    single = [words[i] for i in rng.permutation(len(words))[:_QUERIES].tolist()]
    matched = [float(lexical.max()) for _, lexical in looked.parts(single)]
    matched = [value for value in matched if value > _LEAST]
    weak = float(np.quantile(matched, _WEAK)) if matched else None
    lexical = math.inf if weak is None else max(_SHARE * weak, _LEAST)
    unseen = max(_SHARE * _unseen(model), _LEAST)
    familiar = Words.of(model)
    standard = calibrate_standard(familiar, texts, rng) if matched else Standard(0.0, 0.0)
    of_queries = asdict(standard)
    growth, of_words = None, dict[str, Any]()
    if matched and looked.scorer is None and familiar.has_features:
        common = max(1.0, _COMMON * len(documents))
        having = partial(familiar.word_features, odds=standard.odds, common=common)
        growth = math.inf
        for place, (text, (dense, own)) in enumerate(zip(texts, looked.parts(texts), strict=True)):
            count = len(familiar.known_pieces(text, standard.odds))
            wordless = ~looked.having(having(text))
            needed = own[:0] if not wordless.all() else own.max(keepdims=True)
            if place < len(judgements):
                scores = dense + own + documents.bias
                first = _first(scores, rows, judgements[place], _PLACES_BY_WORDS)
                needed = np.append(needed, own[first[wordless[first]]])
            for value in needed[needed >= lexical].tolist() if count > 1 else ():
                growth = min(growth, (value / lexical - 1) / (count - 1))
        of_words = {"per_word": min(_KEPT * growth, _MOST_PER_WORD), "common": common}

    def is_familiar(text: str) -> bool:
        return familiar.is_familiar(text, standard.share, standard.odds)

    if not model.n_dense and looked.scorer is None:
        floor = Floor(lexical=lexical, unseen=unseen, **of_queries, **of_words)
        return CalibratedFloor(floor, weak, None, None, None, None, growth=growth)

    made_up = _made_up(texts, rng)
    unknown = looked.parts(made_up[:_QUERIES], unknown=True)
    noise = max((float(dense.max()) for dense, _ in unknown), default=0.0)
    tails, best, judged, needed = [], math.inf, math.inf, math.inf
    for place, (dense, own) in enumerate(looked.parts(texts)):
        tails.append(np.quantile(dense, 1 - _CHANCE))
        if own.max() < lexical:
            best = min(best, float(dense.max()))
        if place < len(judgements):
            scores = dense + own + documents.bias
            first = _first(scores, rows, judgements[place])
            judged = min(
                judged, float(np.min(dense[first][own[first] < lexical], initial=math.inf))
            )
            if not is_familiar(texts[place]):
                needed = float(np.min(dense[first], initial=needed))
    random = float(np.median(tails))
    dense_floor = max(min(max(noise, random), _BELOW * judged, _BELOW * best), _LEAST)
    strange = looked.parts([text for text in made_up if not is_familiar(text)])
    most = max((float(dense.max()) for dense, _ in strange), default=noise)
    unfamiliar = max(min(max(_MARGIN * most, dense_floor), _BELOW * needed), _LEAST)
    floor = Floor(dense_floor, lexical, unseen, unfamiliar=unfamiliar, **of_queries, **of_words)
    of_real = [value if math.isfinite(value) else None for value in (judged, best)]
    return CalibratedFloor(floor, weak, random, noise, of_real[0], of_real[1], most, growth)


def _unseen(model: Model) -> float:
    """Return the s·t of a word that training never saw and a live document of it; infinite without live documents."""
    opened = live_model(model)
    if opened is None:
        return math.inf
    documents = opened.encode_documents([{"text": f"{_UNSEEN} {_UNSEEN}x"}])
    scorer = opened.scorer(documents) or InnerProduct(documents)
    return float(scorer.score(opened.encode_queries([_UNSEEN]), np.zeros(1, np.int64))[1][0])


def _some_rows(count: int, judgements: Sequence[Judgement], rng: np.random.Generator) -> Int64:
    """Return the rows to look at, ascending: all, or as many as it takes and every relevant one."""
    if count <= _DOCUMENTS:
        return np.arange(count)
    relevant = [judgement.relevant for judgement in judgements]
    return np.unique(np.concatenate([rng.choice(count, _DOCUMENTS, replace=False), *relevant]))


def _made_up(texts: Sequence[str], rng: np.random.Generator) -> list[str]:
    letters = sorted({letter for text in texts for letter in text if letter.isalpha()})
    lengths = [[len(word) for word in text.split()] for text in texts if text.split()]
    if not letters:
        return []
    found = []
    for _ in range(_MADE_UP):
        sizes = lengths[rng.integers(len(lengths))][: rng.integers(1, _WORDS + 1)]
        found.append(" ".join("".join(rng.choice(letters, size)) for size in sizes))
    return found


def _first(scores: Float64, rows: Int64, judgement: Judgement, places: int = _PLACES) -> Int64:
    """Return the places of the relevant documents among the first; the documents are ``rows`` of the judgement."""
    scores = np.where(np.isin(rows, judgement.excluded), -np.inf, scores)
    first = np.argsort(-scores, kind="stable")[:places]
    return first[np.isin(rows[first], judgement.relevant)]


@dataclass(frozen=True, eq=False)
class _Looked:
    model: Model
    documents: Encoded

    @cached_property
    def scorer(self) -> Scorer | None:
        """What replaces the inner products; its u·v may be above zero without a dense part."""
        return self.model.scorer(self.documents)

    @cached_property
    def _postings(self) -> sp.csr_array[np.float32]:
        return sp.csr_array(self.documents.sparse.csr().T)

    def having(self, features: Collection[int]) -> Mask:
        found = np.zeros(len(self.documents), np.bool_)
        found[self._postings[sorted(features)].indices] = True
        return found

    def parts(
        self, texts: Sequence[str], *, unknown: bool = False
    ) -> Iterator[tuple[Float64, Float64]]:
        """Yield u·v and s·t of all documents for each query (``unknown``: without features only), to about float32."""
        everything = np.arange(len(self.documents))
        for start in range(0, len(texts), _BLOCK):
            queries = self.model.encode_queries(texts[start : start + _BLOCK])
            for i in range(len(queries)):
                one = queries.slice(i, i + 1)
                if unknown and len(one.sparse.indices):
                    continue
                if self.scorer is not None:
                    yield self.scorer.score(one, everything)
                else:
                    lexical = (one.sparse.csr() @ self._postings).toarray()[0]
                    dense = self.documents.dense @ one.dense[0]
                    yield dense.astype(np.float64), lexical.astype(np.float64)
