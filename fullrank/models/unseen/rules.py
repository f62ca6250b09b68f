"""Which words a model does not know, and their weights, for each kind of model.

A model whose scores depend on more than the query and the document (query expansion) has no rule: it cannot take live
documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fullrank.models.contract import Model
from fullrank.models.language import LanguageModel
from fullrank.models.linear import LinearModel
from fullrank.models.memory import MemoryModel
from fullrank.models.mentions import MentionsModel
from fullrank.models.mixed import MixedModel
from fullrank.models.pairs import PairModel
from fullrank.models.translation import TranslationModel
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.encoding import Float32, Rows
from fullrank.text.features import Vocabulary, bm25, saturate, tfidf
from fullrank.text.forms import Forms


def rule_of(model: Model, *, for_documents: bool = False) -> Rule | None:
    """Return the rule of a model (for documents as queries); None for one that cannot take live documents."""
    match model:
        case LinearModel():
            return _linear(model)
        case TranslationModel():
            return _linear(model.model)
        case PairModel():
            sources = [names for _, names in model.settings["fields"]]
            words = model.texts.words
            return LexicalRule(words, model.texts.idf[: len(words)], sources, [1.0])
        case LanguageModel():
            return LikelihoodRule(model)
        case MixedModel():
            return _mixed(model, (model.for_documents if for_documents else model).weights)
    return None


def _linear(model: LinearModel) -> Rule:
    """Weigh as the lexical part does; without one, as the cosine of tf-idf vectors on the scale of u·v."""
    side, fields = model.sparse, [sources for _, sources in model.settings["fields"]]
    words = len(side.words)
    # Most words kept the diagonal that all words of a field share, which is the median.
    usual = np.median(side.D, axis=1).tolist() if words else []
    if side.scheme == "none" or max(usual, default=0.0) <= 0:
        everything = [name for sources in fields for name in sources]
        dense = model.document
        scale = abs(float(model.settings["dense_scale"])) or 1.0
        return LexicalRule(dense.words, dense.idf[: len(dense.words)], [everything], [scale])
    diagonal = [max(value, 0.0) for value in usual]
    return LexicalRule(
        side.words, side.idf, fields, diagonal, side.scheme, side.k1, side.b, side.k3,
        side.mean_lengths, side.forms,
    )  # fmt: skip


def _mixed(model: MixedModel, scales: Sequence[float]) -> Rule | None:
    """Weigh as the first model with words in its lexical part, times its scale."""
    own = zip(model.models, model.weights, scales, strict=True)
    # Clicks and names say nothing about single words, so unknown ones need no rule there.
    parts = [one for one in own if not isinstance(one[0], MemoryModel | MentionsModel)]
    rules = [(rule, weight, scale) for part, weight, scale in parts if (rule := rule_of(part))]
    if not rules or len(rules) < len(parts):
        return None
    best = next((one for one in rules if one[1] > 0 and len(one[0].words)), rules[0])
    return replace(best[0], weight=best[0].weight * best[2])


@dataclass(frozen=True, eq=False)
class LexicalRule:
    """Unknown words in the scheme of a lexical part: "bm25", or "tfidf" unit vectors.

    Attributes:
        diagonal: Of each column, for a word without a trained weight.
        forms: Of the known words, if the model folds.
    """

    words: Vocabulary
    idf: Float32
    columns: Sequence[Sequence[str]]
    diagonal: Sequence[float]
    scheme: str = "tfidf"
    k1: float = 1.2
    b: float = 0.75
    k3: float = 1.0
    mean_lengths: Sequence[float] = ()
    forms: Forms | None = None
    weight: float = 1.0

    @cached_property
    def _idf(self) -> Float32:
        """idf of each known word, and last that of unknown words, the highest idf."""
        return np.append(self.idf, np.float32(self.idf.max(initial=0.0) or 1.0)).astype(np.float32)

    def query(self, counts: Rows) -> Rows:
        is_bm25 = self.scheme == "bm25"
        found = saturate(counts, self.k3) if is_bm25 else tfidf(self._clipped(counts), self._idf)
        return counts.with_values(found.values * np.float32(self.weight))

    def document(self, columns: Sequence[Rows]) -> Rows:
        """Return Σ_f D_f z_f; lengths and norms are those of all words of a text."""
        parts = []
        for f, (counts, diagonal) in enumerate(zip(columns, self.diagonal, strict=True)):
            clipped = self._clipped(counts)
            if self.scheme == "bm25":
                mean = self.mean_lengths[f]
                z = bm25(clipped, self._idf, k1=self.k1, b=self.b, mean_length=mean)
            else:
                z = tfidf(clipped, self._idf)
            parts.append(counts.with_values(z.values * np.float32(diagonal)))
        return Rows.add(parts)

    def _clipped(self, counts: Rows) -> Rows:
        """Map all unknown words to one column, the one with their idf."""
        return replace(counts, indices=np.minimum(counts.indices, len(self.words)))


@dataclass(frozen=True, eq=False)
class LikelihoodRule:
    """Unknown words of a language model: log(1 + c λ₂ P_ml / P_C) as in its scorer, with P_C of the rarest word."""

    model: LanguageModel
    weight: float = 1.0
    forms: None = None

    @property
    def idf(self) -> Float32:
        return -np.log(self.model.background)

    @property
    def words(self) -> Vocabulary:
        return self.model.words

    @property
    def columns(self) -> Sequence[Sequence[str]]:
        return [self.model.settings["fields"]]

    def query(self, counts: Rows) -> Rows:
        return counts.with_values(counts.values * np.float32(self.weight))

    def document(self, columns: Sequence[Rows]) -> Rows:
        """Return the contribution of one occurrence in a query."""
        [counts] = columns
        length = np.repeat(counts.sums(), np.diff(counts.indptr))
        share = counts.values.astype(np.float64) / length
        return counts.with_values(np.log1p(self._factor * share).astype(np.float32))

    @cached_property
    def _factor(self) -> float:
        lambda1, lambda2 = self.model.settings["lambda1"], self.model.settings["lambda2"]
        c = (1 - lambda1) / lambda1
        seen = self.model.background[self.model.background > 0]
        # With λ₂ = 0 the model ignores a document's own words, but an unknown word has nothing else: count it fully.
        return (c * lambda2 or c or 1.0) / float(seen.min(initial=1.0))


Rule = LexicalRule | LikelihoodRule
"""Counts and weights are over the W known words and the R buckets after them; those of known words are not used."""


# The sparse features of a query's word: those of the model, then those of unknown words.


def _with_features(term: TermShare, features: Sequence[tuple[int, float]]) -> TermShare:
    if len(features) < 2:
        [(feature, weight)] = features or [(-1, 0.0)]
        return term._replace(feature=feature, weight=weight)
    places, weights = zip(*features, strict=True)
    return term._replace(feature=np.array(places, np.int32), weight=np.array(weights, np.float32))


def within(term: TermShare, width: int) -> TermShare:
    """Keep the features of a term below `width`."""
    found = term.pairs
    kept = [(feature, weight) for feature, weight in found if feature < width]
    return term if len(kept) == len(found) else _with_features(term, kept)


def with_feature(term: TermShare, feature: int, weight: float) -> TermShare:
    """Append a feature to a term."""
    return _with_features(term, [*term.pairs, (feature, weight)])
