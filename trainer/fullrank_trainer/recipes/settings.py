"""The settings of recipes: one class a section, with the default and the allowed values of each setting.

These are the sections of every recipe. A system declares those of its own section beside its fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fullrank.errors import RecipeError

SIZE = 1 << 30


def setting(
    default: Any, *, low: float = 0, high: float = math.inf, choices: Sequence[str] = ()
) -> Any:
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
    words: int = setting(0, high=SIZE)
    # "one": U has the words of documents and training queries; "two": each side has its own words and idf
    vocabularies: str = setting("one", choices=("one", "two"))
    # leave out words that occur in fewer texts
    min_df: int = setting(1, high=SIZE)
    # lexical part: rows that unseen words are hashed into
    buckets: int = setting(0, high=SIZE)
    # dense part: "learned" (U, V), "lsi" (singular vectors of tf-idf), "projection" (see its section)
    latent: str = setting("none", choices=("none", "learned", "lsi", "projection"))
    # N
    dimension: int = setting(256, low=1, high=4096)
    # one table over the words of both sides: UᵀU instead of UᵀV
    tied: bool = setting(False)
    # (UᵀV)ₙ: only the n most frequent words have a latent vector; 0: all
    latent_words: int = setting(0, high=SIZE)
    # dense part: letter trigrams; "auto": if queries are short; "only": instead of words
    trigrams: str = setting("off", choices=("on", "off", "auto", "only"))
    # dense part, φ of a text: a unit vector of tf-idf weights, or plain counts
    phi: str = setting("tfidf", choices=("tfidf", "counts"))
    # dense part: 2-grams that occur in at least this many texts; 0: none
    bigrams: int = setting(0, high=SIZE)
    # correlated feature hashing: "all" words are composed of the rows of their nearest frequent words;
    # "rare": only rare words are, of rows of a second table
    hashing: str = setting("none", choices=("none", "all", "rare"))
    # k, the rows of a hashed word, and F, the number of frequent words that have rows
    bins: int = setting(1, low=1, high=100)
    bin_words: int = setting(30_000, low=1, high=SIZE)
    # dense part: keep the heaviest words of a text; 0: all
    latent_terms: int = setting(0, high=SIZE)
    # widths of tanh layers above U and V; empty: the dense part is linear
    layers: tuple[int, ...] = setting((), low=1, high=4096)
    # add Ux to the output of the layers; the last one is then linear and as wide as Ux
    skip: bool = setting(False)
    # the dense part is this many times the cosine; 0: the inner product
    cosine: float = setting(0.0, high=1000)
    # term weights of the lexical part
    match: str = setting("tfidf", choices=("tfidf", "bm25", "none"))
    # lexical part: keep the heaviest words of a query; 0: all
    match_terms: int = setting(0, high=SIZE)
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
    valid_queries: int = setting(800, high=SIZE)
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
    trial: int = setting(20_000, low=1, high=SIZE)
    # margin: triples per epoch; 0: one per judged pair
    triples: int = setting(0, high=SIZE)
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
    negatives: int = setting(0, high=SIZE)
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


def require(condition: bool, message: str) -> None:
    """Raise RecipeError with the message unless the condition holds."""
    if not condition:
        raise RecipeError(message)


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
