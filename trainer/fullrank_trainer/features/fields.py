"""Word counts of documents by text field, clicked text included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.errors import TrainingError
from fullrank.storage.encoding import Int64, Rows
from fullrank_trainer.collection.corpus import FIELD as ANCHORS
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.recipes.settings import ModelSettings

HEAVY = frozenset({"title", "name"})
"""Fields that ``model.title`` gives more weight."""


def titles_of(sources: Sequence[str]) -> list[str]:
    """Return the fields that say what a document is called, there or by others."""
    return [name for name in sources if name.lower() in HEAVY or name == ANCHORS]


@dataclass(frozen=True, eq=False)
class TextFields:
    """The text fields of a model.

    Attributes:
        names: (field, the source fields it joins).
        weights: of each field in the dense part; clicked text has 0.
        clicks: clicked text, the last field; None if the model has none.
        phrase_field: the source field whose whole text is a phrase; empty if the model has none.
    """

    names: list[tuple[str, list[str]]]
    weights: list[float]
    counts: list[Rows]
    clicks: Clicks | None
    phrase_field: str


def cut_fields(
    corpus: Corpus, settings: ModelSettings, queries: Rows, documents: int
) -> TextFields:
    """Cut documents into the fields of a model. Raises TrainingError."""
    place = {name: i for i, name in enumerate(corpus.sources)}
    joined = settings.fields == "joined"
    names = [("all", list(corpus.sources))] if joined else [(s, [s]) for s in corpus.sources]
    weights = [1.0] * len(names)
    counts = [corpus.counts.columns[place[name]] for name in corpus.sources]
    if joined:
        counts = [corpus.documents]
        heavy = [name for name in corpus.sources if name.lower() in HEAVY] * (settings.title - 1)
        if heavy and len(corpus.sources) > 1:
            # A field that is named n times is counted n times, here and when the model reads documents.
            names[0][1].extend(heavy)
            counts = [Rows.add([*counts, *(corpus.counts.columns[place[name]] for name in heavy)])]
    elif settings.fields == "titles":
        if not (titles := titles_of(corpus.sources)):
            raise TrainingError("model.fields: the documents have no title, name or anchors")
        names, weights = [("titles", titles)], [1.0]
        counts = [Rows.add([corpus.counts.columns[place[name]] for name in titles])]
    phrase_field = "title" if settings.phrases and "title" in place else ""
    are_queries = corpus.collection.documents_are_queries
    clicks = None
    if settings.clicked == "on" or (settings.clicked == "auto" and not are_queries):
        if CLICKED in place:
            raise TrainingError(
                f"model.clicked: the documents have a field {CLICKED!r} of their own; rename it"
            )
        # Linked documents count with their titles: whole articles would drown the field.
        uses_titles = are_queries and "title" in place
        texts = corpus.counts.columns[place["title"]] if uses_titles else queries
        clicks = Clicks.of(corpus.pairs.clicked, documents, texts)
        names, weights = [*names, (CLICKED, [CLICKED])], [*weights, 0.0]
        counts.append(clicks.counts)
    return TextFields(names, weights, counts, clicks, phrase_field)


# Clicked text: the training queries that led to a document, as one more field of it.
#
# A training query must not find its own text in a document that it led to; otherwise training would only learn to match
# that field. Each step therefore leaves the texts of its queries out of those documents.


CLICKED = "clicked"


@dataclass(frozen=True, eq=False)
class Clicks:
    """Word counts of the queries, and of each document's clicked text: the queries that led to it."""

    texts: Rows
    judged: sp.csr_array[np.float32]
    counts: Rows

    @staticmethod
    def of(pairs: Pairs, documents: int, texts: Rows) -> Clicks:
        """Count clicked text, given the documents that each query led to."""
        judged = pairs.matrix(len(texts), documents).T.tocsr()
        return Clicks(texts, judged, Rows.from_csr(sp.csr_array(judged @ texts.csr())))

    def without(
        self, queries: Int64, documents: Int64, cold: npt.NDArray[np.bool_] | None = None
    ) -> Rows:
        """Return the field of some documents without the texts of some queries; that of ``cold`` ones is empty."""
        own = sp.csr_array(self.judged[documents])
        own.data = np.where(np.isin(own.indices, queries), own.data, 0).astype(np.float32)
        own.eliminate_zeros()
        rest = sp.csr_array(self.counts.csr()[documents] - own @ self.texts.csr())
        if cold is not None:
            rest.data[np.repeat(cold, np.diff(rest.indptr))] = 0
        rest.eliminate_zeros()
        return Rows.from_csr(rest)
