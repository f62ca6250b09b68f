"""The settings of recipes: one class a section, with the default and the allowed values of each setting.

Each system has its own section; fullrank_trainer.recipes.recipe.Recipe has one of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fullrank.errors import RecipeError
from fullrank.text.folding import LANGUAGES

_SIZE = 1 << 30


def setting(
    default: Any, *, low: float = 0, high: float = math.inf, choices: Sequence[str] = ()
) -> Any:
    """Declare a setting.

    Args:
        default: its default.
        low, high: bounds of a number, or of each number in a tuple.
        choices: the allowed texts; empty allows any.
    """
    return field(default=default, metadata={"low": low, "high": high, "choices": tuple(choices)})


@dataclass(frozen=True)
class ModelSettings:
    """The model: f(q, d) = (Uq)·(Vd) + Σ_f q·D_f·d_f + b_d, or a part of it."""

    # "each" text field has its own diagonal; "joined" makes one field of all; "titles" one of title, name and anchors
    fields: str = setting("each", choices=("each", "joined", "titles"))
    # "joined": a word of a field named title or name counts this many times if documents have other fields;
    # of a blend: in its parts, 0: as often as they say
    title: int = setting(0, high=20)
    # keep the most frequent words (the papers: 30,000); 0: all
    words: int = setting(0, high=_SIZE)
    # "one": U has the words of documents and training queries; "two": each side has its own words and idf
    vocabularies: str = setting("one", choices=("one", "two"))
    # leave out words that occur in fewer texts
    min_df: int = setting(1, high=_SIZE)
    # lexical part: rows that unseen words are hashed into
    buckets: int = setting(0, high=_SIZE)
    # dense part: "learned" (U, V), "lsi" (singular vectors of tf-idf), "projection" (see its section)
    latent: str = setting("none", choices=("none", "learned", "lsi", "projection"))
    # N
    dimension: int = setting(256, low=1, high=4096)
    # one table over the words of both sides: UᵀU instead of UᵀV
    tied: bool = setting(False)
    # (UᵀV)ₙ: only the n most frequent words have a latent vector; 0: all
    latent_words: int = setting(0, high=_SIZE)
    # dense part: letter trigrams; "auto": if queries are short; "only": instead of words
    trigrams: str = setting("off", choices=("on", "off", "auto", "only"))
    # dense part, φ of a text: a unit vector of tf-idf weights, or plain counts
    phi: str = setting("tfidf", choices=("tfidf", "counts"))
    # dense part: 2-grams that occur in at least this many texts; 0: none
    bigrams: int = setting(0, high=_SIZE)
    # correlated feature hashing: "all" words are composed of the rows of their nearest frequent words;
    # "rare": only rare words are, of rows of a second table
    hashing: str = setting("none", choices=("none", "all", "rare"))
    # k, the rows of a hashed word, and F, the number of frequent words that have rows
    bins: int = setting(1, low=1, high=100)
    bin_words: int = setting(30_000, low=1, high=_SIZE)
    # dense part: keep the heaviest words of a text; 0: all
    latent_terms: int = setting(0, high=_SIZE)
    # widths of tanh layers above U and V; empty: the dense part is linear
    layers: tuple[int, ...] = setting((), low=1, high=4096)
    # add Ux to the output of the layers; the last one is then linear and as wide as Ux
    skip: bool = setting(False)
    # the dense part is this many times the cosine; 0: the inner product
    cosine: float = setting(0.0, high=1000)
    # term weights of the lexical part
    match: str = setting("tfidf", choices=("tfidf", "bm25", "none"))
    # lexical part: keep the heaviest words of a query; 0: all
    match_terms: int = setting(0, high=_SIZE)
    # D
    diagonal: str = setting("identity", choices=("identity", "learned"))
    # lexical part: the training queries that led to a document are one more field of it;
    # "auto": if the documents are not the queries
    clicked: str = setting("off", choices=("on", "off", "auto"))
    # lexical part: discount of a document's word that equals one of the query but for accents and other optional marks,
    # the spelling of letters, or how its parts are joined; 0: no such match
    folded: float = setting(0.0, high=1)
    # with folded: so do words of titles and names that are joined (cellphone), and their first letters
    title_forms: bool = setting(False)
    # lexical part: discount of one that equals it but for its number, by the rules of English; 0: no such match
    plurals: float = setting(0.0, high=1)
    # lexical part: a document's whole title is a feature
    phrases: bool = setting(False)
    # discount of known words that replace an unknown word of a query, one typing error away; 0: no correction
    spelling: float = setting(0.0, high=1)
    # b_d
    bias: bool = setting(False)
    # weight of the dense part, tf-idf has 1 − alpha; in a mix of two models, weight of the first
    alpha: float = setting(1.0, high=1)
    # BM25; k3 damps repeated query words
    k1: float = setting(1.2, high=100)
    b: float = setting(0.75, high=1)
    k3: float = setting(1.0)


@dataclass(frozen=True)
class TrainSettings:
    """The training."""

    # "margin": the loss of the papers; "softmax": over the documents of a batch
    loss: str = setting("none", choices=("none", "margin", "softmax"))
    epochs: int = setting(8, low=1, high=100_000)
    # stop after this many epochs without a better validation MAP
    patience: int = setting(3, low=1, high=100_000)
    # stop after this time, seconds; 0: no limit
    seconds: float = setting(0.0)
    # most validation queries to measure after each epoch; 0: all
    valid_queries: int = setting(800, high=_SIZE)
    # average this many fits with different seeds
    members: int = setting(1, low=1, high=100)
    # standard deviation of U and V at the start; 0: uniform, bounded by their size, as layers are
    init: float = setting(0.05, high=100)
    # file of pretrained word vectors that U and V start at; "": none. Text of word2vec, GloVe or fastText, plain or
    # gzipped, or model.safetensors of model2vec
    vectors: str = setting("")
    # softmax: AdaGrad's rate for U, V and for the layers above; both fall to a tenth over the epochs
    rate: float = setting(0.03, high=100)
    layer_rate: float = setting(0.003, high=100)
    # margin: fixed rates to try; the least training error decides
    rates: tuple[float, ...] = setting((0.001, 0.01, 0.1), high=1000)
    # margin: triples of each trial
    trial: int = setting(20_000, low=1, high=_SIZE)
    # margin: triples per epoch; 0: one per judged pair
    triples: int = setting(0, high=_SIZE)
    # margin: use the highest scored of this many random negatives of a pair; 1: the papers' single one
    hardest_of: int = setting(1, low=1, high=1000)
    # folder of a second collection with the same corpus and queries in the documents' language; "": none.
    # margin: its pairs train V too, step by step in turn; translation: they train the model behind the translation
    monolingual: str = setting("")
    # softmax: AdaGrad's rate for D, relative to its start, and for b
    diagonal_rate: float = setting(0.05, high=100)
    bias_rate: float = setting(0.05, high=100)
    # softmax: queries per step, and candidate documents of each
    batch: int = setting(512, low=1, high=1_000_000)
    candidates: int = setting(2500, low=2, high=10_000_000)
    # softmax: draw this many unjudged candidates for each query; 0: use all
    negatives: int = setting(0, high=_SIZE)
    # softmax: sample candidates among "all" documents, or only "judged" ones. A document that is drawn
    # but never judged is a negative of every query, so it would rank last however well it matches
    sampled_from: str = setting("all", choices=("all", "judged"))
    # softmax: share of documents that a step treats as never clicked: no clicked text, the median bias
    cold_dropout: float = setting(0.0, high=0.95)
    # softmax: share of words that a step leaves out of queries
    word_dropout: float = setting(0.33, high=0.95)
    # softmax: mean lexical score of a judged pair in each field at the start
    start: float = setting(2.0, high=1000)


@dataclass(frozen=True)
class PairSettings:
    """Word pairs: f(q, d) = qᵀWd, W not factored; ``model.words`` limits the vocabulary."""

    # "dense": a weight for every pair of words; "hash": pairs share ``slots`` weights
    store: str = setting("dense", choices=("dense", "hash"))
    # number of weights of "hash"
    slots: int = setting(1_000_000, low=1, high=_SIZE)
    # keep the heaviest words of a text; 0: all
    terms: int = setting(60, high=_SIZE)
    # "start": W starts as I; "apart": αI is added and α learned (hash only)
    identity: str = setting("start", choices=("start", "apart", "none"))
    # dense: keep W_ii at zero
    zero_diagonal: bool = setting(False)
    # dense: p, the weights that each row of W keeps; 0: all
    keep: int = setting(0, high=_SIZE)
    # dense: share of the longest row's weights that each epoch removes until p are left
    removal: float = setting(0.75, low=0.01, high=1)


@dataclass(frozen=True)
class HtrSettings:
    """Half transductive ranking: f(x, y_i) = v_i·Wφ(x) with a free vector v_i for each document."""

    # weight of the regulariser: functional (htr), reconstruction, or document to document (htr-graph)
    gamma: float = setting(1.0)
    # start of v_i: "functional": Wφ(y_i) with a random W; "random": as W; "lsi": W and v_i of LSI
    items: str = setting("functional", choices=("functional", "random", "lsi"))
    # rank by the cosine of v_i and Wφ(x) instead of their product
    cosine: bool = setting(False)


@dataclass(frozen=True)
class LanguageSettings:
    """Language models; ``model.dimension`` is the number of topics, ``train.epochs`` that of EM iterations."""

    # smooths a document in addition to the collection
    smoothing: str = setting("none", choices=("none", "topics", "translation"))
    # topics are learned from judged pairs, or from the documents alone
    learn_from: str = setting("pairs", choices=("pairs", "documents"))
    # queries and documents share one word distribution for each topic
    merged: bool = setting(False)
    # most steps of the projection of a pair's posteriors to equal topic shares; 0: no projection
    projection_steps: int = setting(0, high=10_000)
    # end the projection when the topic shares of both sides differ by at most this, summed over topics
    projection_tolerance: float = setting(0.001, high=2)
    # weights of the collection and of the document's own words: validation picks one; without it the first
    lambda1: tuple[float, ...] = setting((0.2,), low=1e-6, high=1)
    lambda2: tuple[float, ...] = setting((0.5,), high=1)
    # a word that a document has n times counts 1 + ln n times
    damped: bool = setting(False)
    # p: shares of a document's words are counts over |D|^p L^(1 - p), L the mean length; 1: over the length
    length: float = setting(1.0, high=1)
    # the language whose stems are the words (Snowball); "auto": English or "none", whichever is better on validation
    stem: str = setting("none", choices=("none", "auto", *LANGUAGES))
    # train the translations on the ranks of judged documents after EM, if judgements have no weights
    ranked: bool = setting(False)
    # words that each document stores as what people are likely to ask for it with, so that the score is an
    # inner product; 0: a scorer computes the likelihood of each query. Not for topics
    expanded: int = setting(0, high=_SIZE)


@dataclass(frozen=True)
class ProjectionSettings:
    """A projection: f(q, d) = cos(Aᵀq, Aᵀd)."""

    # how to find A: principal components of texts ("lsa"), of pairs ("cl-lsa"), against noise ("opca"), or learned
    method: str = setting("lsa", choices=("lsa", "cl-lsa", "opca", "s2net"))
    # a pair is a query and a judged document, or a query and the document it describes
    pairs: str = setting("judged", choices=("judged", "mates"))
    # s2net: random other documents for each pair, a new sample each epoch
    others: int = setting(4, low=1, high=1000)


@dataclass(frozen=True)
class ExpansionSettings:
    """Query expansion."""

    # β: weight of the mean of the documents that the first search finds
    beta: float = setting(0.3, high=1000)
    # E: number of these documents
    feedback: int = setting(5, low=1, high=1_000_000)


@dataclass(frozen=True)
class TranslationSettings:
    """Word translation by IBM Model 1."""

    # EM iterations
    iterations: int = setting(5, low=1, high=10_000)
    # drop smaller probabilities
    floor: float = setting(0.001, high=1)


@dataclass(frozen=True)
class MemorySettings:
    """What people chose before."""

    # "queries": documents that people chose after a query; "documents": how often they chose a document at all;
    # "links": what queries with common answers lead to
    of: str = setting("queries", choices=("queries", "documents", "links"))
    # κ: so many clicks count ln 2, ten times as many ln 11
    kappa: float = setting(3.0, low=1e-3, high=1e6)


@dataclass(frozen=True)
class MixedSettings:
    """A mix of two models: ``model.alpha`` times the first plus 1 − alpha times the second."""

    # two recipes; overrides of each follow its name after spaces
    recipes: tuple[str, ...] = setting(("cross-language", "translation-tfidf"))


@dataclass(frozen=True)
class BlendSettings:
    """A sum of several recipes; validation on clicked and on never clicked documents chooses the weights."""

    # recipes; overrides of each follow its name after spaces. The first is served if the sum is no better
    recipes: tuple[str, ...] = setting(("bm25", "clicked"))
    # the same where the documents are the queries: whole documents have too many words for word translation,
    # and titles of linking documents as clicked text lower the quality
    linked: tuple[str, ...] = setting(("bm25", "fielded"))
    # where documents are the queries and have titles, one more part: the documents whose titles a text says
    mentions: bool = setting(False)
    # where judgements have weights, which are clicks, two more parts: what people clicked after the same query, and how
    # often they clicked a document at all; where documents are the queries, what those link to that link alike
    clicks: bool = setting(False)
    # learning rates of a part whose last fit can go on from the first: each is tried for an epoch, and the best
    # one on validation goes on; empty: the part's own
    linked_rates: tuple[float, ...] = setting((), high=1000)
    # the last fit also learns the queries of valid, which have chosen by then, but for those that calibrate the floor
    learn_valid: bool = setting(False)


@dataclass(frozen=True)
class AutoSettings:
    """A search over overrides of a recipe, or over weights of a blend."""

    # time for all fits together, seconds; 0: no limit
    seconds: float = setting(0.0)
    # a blend: share of documents that nobody clicked yet in the quality that chooses
    cold: float = setting(0.3, high=1)
    # a blend: share of the quality of warm queries that raising documents without a judgement may cost
    most_lost: float = setting(0.015, high=1)
    # each is a comma-separated list of overrides; with --set, a semicolon separates trials; empty: no search
    trials: tuple[str, ...] = setting(())


def check(section: str, values: Any) -> None:
    """Check every setting of a section. Raises RecipeError that names the first bad one."""
    for item in fields(values):
        value, allowed = getattr(values, item.name), item.metadata
        label = f"{section}.{item.name}"
        if allowed["choices"] and value not in allowed["choices"]:
            raise RecipeError(f"{label}: {value!r} is not one of {', '.join(allowed['choices'])}")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not allowed["low"] <= number <= allowed["high"]:
                low, high = allowed["low"], allowed["high"]
                raise RecipeError(f"{label}: {number} is not between {low} and {high}")
