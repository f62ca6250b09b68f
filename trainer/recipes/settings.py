"""The knobs of recipes, one section a class; each knob says its default, what is allowed and what it is.

A system's own knobs are a section of their own; trainer.recipes.recipe.Recipe holds one of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fullrank.errors import RecipeError

_SIZE = 1 << 30


def setting(
    default: Any, *, low: float = 0, high: float = math.inf, choices: Sequence[str] = ()
) -> Any:
    """A knob: numbers lie in low..high, each of a tuple of them too; texts are one of the choices, if any."""
    return field(default=default, metadata={"low": low, "high": high, "choices": tuple(choices)})


@dataclass(frozen=True)
class ModelSettings:
    """What the model is: f(q, d) = (Uq)·(Vd) + Σ_f q·D_f·d_f + b_d, or part of it."""

    # the documents' text fields that are used, in this order; none: all there are
    sources: tuple[str, ...] = setting(())
    # "each" text field has its own diagonal; "joined" makes them one
    fields: str = setting("each", choices=("each", "joined"))
    # keep so many of the most frequent words (the papers' 30,000); 0 keeps all
    words: int = setting(0, high=_SIZE)
    # "one": U knows the words of documents and of training queries; "two": each side its own words and idf
    vocabularies: str = setting("one", choices=("one", "two"))
    # leave out words that stand in fewer texts
    min_df: int = setting(1, high=_SIZE)
    # rows that unseen words are hashed into, in the exact-match part
    buckets: int = setting(0, high=_SIZE)
    # "none", "learned" (U, V), "lsi" (singular vectors of tf-idf) or "projection" (as its section says)
    latent: str = setting("none", choices=("none", "learned", "lsi", "projection"))
    # N
    dimension: int = setting(256, low=1, high=4096)
    # one table over the words of both sides: UᵀU instead of UᵀV
    tied: bool = setting(False)
    # (UᵀV)ₙ: only the n most frequent words have a latent vector; 0: all
    latent_words: int = setting(0, high=_SIZE)
    # letter trigrams in the latent part; "auto": where queries are short; "only": in place of words
    trigrams: str = setting("off", choices=("on", "off", "auto", "only"))
    # what stands for a text in the latent part: a unit vector of tf-idf weights, or plain counts
    phi: str = setting("tfidf", choices=("tfidf", "counts"))
    # 2-grams that stand in at least so many texts are features of the latent part; 0: none
    bigrams: int = setting(0, high=_SIZE)
    # correlated feature hashing: "all" words are made of the rows of the frequent words nearest to
    # them, or the "rare" ones alone, of rows of a second table
    hashing: str = setting("none", choices=("none", "all", "rare"))
    # k, the rows that a hashed word is made of, and F, the most frequent words, which have them
    bins: int = setting(1, low=1, high=100)
    bin_words: int = setting(30_000, low=1, high=_SIZE)
    # what words are near in
    context: str = setting("document", choices=("document", "sentence"))
    # strongest words per text in the latent part; 0 keeps all
    latent_terms: int = setting(0, high=_SIZE)
    # widths of tanh layers above U and V; none: the latent part is linear
    layers: tuple[int, ...] = setting((), low=1, high=4096)
    # Ux goes on beside the layers, whose last one is linear and as wide as it
    skip: bool = setting(False)
    # the latent part scores so many times the cosine; 0: the inner product
    cosine: float = setting(0.0, high=1000)
    # weights of the exact-match part
    match: str = setting("tfidf", choices=("tfidf", "bm25", "none"))
    # strongest words of a query in the exact-match part; 0 keeps all
    match_terms: int = setting(0, high=_SIZE)
    # D
    diagonal: str = setting("identity", choices=("identity", "learned"))
    # the training queries that led to a document as one more field of it, in the exact-match part;
    # "auto": where queries are no documents themselves
    clicked: str = setting("off", choices=("on", "off", "auto"))
    # a document's whole title as an exact-match feature
    phrases: bool = setting(False)
    # b_d
    bias: bool = setting(False)
    # share of the latent part in a mix, 1 − alpha is tf-idf's; of the first model in a mix of two
    alpha: float = setting(1.0, high=1)
    # BM25, and its damping of repeated query words
    k1: float = setting(1.2, high=100)
    b: float = setting(0.75, high=1)
    k3: float = setting(1.0)


@dataclass(frozen=True)
class TrainSettings:
    """How a model is fitted."""

    # "margin" is the papers'
    loss: str = setting("none", choices=("none", "margin", "softmax"))
    epochs: int = setting(8, low=1, high=100_000)
    # epochs without a better validation MAP before stopping
    patience: int = setting(3, low=1, high=100_000)
    # stop after so long; 0: no limit
    seconds: float = setting(0.0)
    # validation queries measured after each epoch, at most; 0: all
    valid_queries: int = setting(800, high=_SIZE)
    # so many models from different seeds, averaged into one
    members: int = setting(1, low=1, high=100)
    # standard deviation of U and V at the start; 0: uniform by their size, as layers start
    init: float = setting(0.05, high=100)
    # softmax: AdaGrad's rate for U, V, and for the layers above; they fall to a tenth over the epochs
    rate: float = setting(0.03, high=100)
    layer_rate: float = setting(0.003, high=100)
    # margin: fixed rates tried by training error
    rates: tuple[float, ...] = setting((0.001, 0.01, 0.1), high=1000)
    # margin: triples per tried rate
    trial: int = setting(20_000, low=1, high=_SIZE)
    # margin: triples per epoch; 0: one per judged pair
    triples: int = setting(0, high=_SIZE)
    # folder of a second collection on the same corpus, with queries in the documents' language; "": none. margin: its
    # pairs train V too, one step for each; translation: they train the model behind the translation
    monolingual: str = setting("")
    # softmax: AdaGrad's rate for D, relative to its start, and for b
    diagonal_rate: float = setting(0.05, high=100)
    bias_rate: float = setting(0.05, high=100)
    # softmax: queries per step, and documents each of them is ranked against
    batch: int = setting(512, low=1, high=1_000_000)
    candidates: int = setting(2500, low=2, high=10_000_000)
    # softmax: of these, so many unjudged ones drawn anew for each query; 0: all of them
    negatives: int = setting(0, high=_SIZE)
    # softmax: share of a query's words left out while training; of a document's, latent part only
    word_dropout: float = setting(0.33, high=0.95)
    document_dropout: float = setting(0.0, high=0.95)
    # softmax: mean exact-match score per field of a judged pair at the start
    start: float = setting(2.0, high=1000)


@dataclass(frozen=True)
class PairSettings:
    """Word pairs: f(q, d) = qᵀWd with W not factored. The vocabulary is cut by ``model.words``."""

    # "dense" has a weight for every pair of words; in "hash" they share so many as ``slots``
    store: str = setting("dense", choices=("dense", "hash"))
    # H
    slots: int = setting(1_000_000, low=1, high=_SIZE)
    # strongest words of a text; 0 keeps all
    terms: int = setting(60, high=_SIZE)
    # W "start"s there; αI stands "apart" and α is learned (hash only); or "none"
    identity: str = setting("start", choices=("start", "apart", "none"))
    # dense: W_ii stays zero
    zero_diagonal: bool = setting(False)
    # dense: p, so many weights are left in each row of W; 0: all
    keep: int = setting(0, high=_SIZE)
    # dense: share of the longest row's weights that each epoch takes away until p are left
    removal: float = setting(0.75, low=0.01, high=1)


@dataclass(frozen=True)
class HtrSettings:
    """Half transductive ranking: f(x, y_i) = v_i·Wφ(x), a free vector v_i per document."""

    # weight of the first term: functional (htr), reconstruction or item to item (htr-graph)
    gamma: float = setting(1.0)
    # v_i at the start: Wφ(y_i) of a random W, random like W, or both as LSI has them
    items: str = setting("functional", choices=("functional", "random", "lsi"))
    # rank by the cosine of v_i and Wφ(x) instead of their product
    cosine: bool = setting(False)
    # htr-graph without links to learn from: adjacent are so many nearest by tf-idf
    neighbours: int = setting(10, low=1, high=_SIZE)


@dataclass(frozen=True)
class LanguageSettings:
    """Language models; ``model.dimension`` is the number of topics, ``train.epochs`` the iterations of EM."""

    # what smooths a document beside the collection
    smoothing: str = setting("none", choices=("none", "topics", "translation"))
    # what topics are learned from: judged pairs, or the documents alone
    learn_from: str = setting("pairs", choices=("pairs", "documents"))
    # one word distribution a topic for queries and documents, instead of two
    merged: bool = setting(False)
    # α and β, the Dirichlet priors of a text's topics and of a topic's words
    topic_prior: float = setting(1.1, low=1, high=1000)
    word_prior: float = setting(1.01, low=1, high=1000)
    # steps at most of the projection of a pair's posteriors to equal topic shares; 0: none is made
    projection_steps: int = setting(0, high=10_000)
    # the projection ends when the two sides' topic shares differ by no more, added over the topics
    projection_tolerance: float = setting(0.001, high=2)
    # iterations of EM when a document is folded in
    folding: int = setting(20, low=1, high=10_000)
    # translation probabilities below are left out
    translation_floor: float = setting(1e-4, high=1)
    # weights of the collection and of the document's own words: each is tried on validation, the first without it
    lambda1: tuple[float, ...] = setting((0.2,), low=1e-6, high=1)
    lambda2: tuple[float, ...] = setting((0.5,), high=1)
    # validation queries that choose them, at most; 0: all
    mix_queries: int = setting(200, high=_SIZE)


@dataclass(frozen=True)
class ProjectionSettings:
    """f(q, d) = cos(Aᵀq, Aᵀd): how A is found."""

    # what A is: principal components of texts or of pairs, of pairs against their noise, or learned
    method: str = setting("lsa", choices=("lsa", "cl-lsa", "opca", "s2net"))
    # what a pair is: a query and a judged document, or a query and the document it describes
    pairs: str = setting("judged", choices=("judged", "mates"))
    # opca: γ, in units of the mean variance of a word
    noise: float = setting(1.0, low=1e-6, high=1e6)
    # s2net: γ, the factor on a difference of cosines
    scale: float = setting(10.0, high=1000)
    # s2net: random other documents that each pair is held against, drawn anew every epoch
    others: int = setting(4, low=1, high=1000)
    # s2net: "lbfgs" over all pairs, or "adagrad" on batches of them (train.rate, train.batch)
    optimiser: str = setting("lbfgs", choices=("lbfgs", "adagrad"))
    # s2net: L-BFGS iterations per epoch
    iterations: int = setting(10, low=1, high=10_000)


@dataclass(frozen=True)
class ExpansionSettings:
    """Query expansion: what is added to a query."""

    # β, the weight of the mean of what the first search found
    beta: float = setting(0.3, high=1000)
    # E, how many documents that is
    feedback: int = setting(5, low=1, high=1_000_000)


@dataclass(frozen=True)
class TranslationSettings:
    """Word translation by IBM Model 1."""

    # of EM
    iterations: int = setting(5, low=1, high=10_000)
    # smaller probabilities are left out
    floor: float = setting(0.001, high=1)


@dataclass(frozen=True)
class MixedSettings:
    """A mix of two models: model.alpha of the first, the rest of the second."""

    # two recipes, each followed by overrides of its settings, with spaces between
    recipes: tuple[str, ...] = setting(("cross-language", "translation-tfidf"))


@dataclass(frozen=True)
class AutoSettings:
    """The search that a recipe makes over overrides of itself."""

    # time for all trials together
    seconds: float = setting(0.0)
    # each a comma-separated list of overrides; none: the recipe is not a search
    trials: tuple[str, ...] = setting(())


def check(section: str, values: Any) -> None:
    """Raise RecipeError at the first knob of a section that lies outside of what it allows."""
    for knob in fields(values):
        value, allowed = getattr(values, knob.name), knob.metadata
        label = f"{section}.{knob.name}"
        if allowed["choices"] and value not in allowed["choices"]:
            raise RecipeError(f"{label}: {value!r} is none of {', '.join(allowed['choices'])}")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not allowed["low"] <= number <= allowed["high"]:
                low, high = allowed["low"], allowed["high"]
                raise RecipeError(f"{label}: {number} is not between {low} and {high}")
