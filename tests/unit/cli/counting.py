"""A model that counts words, and the documents that it ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fullrank.models.contract import Model, Parts, are_in, lexical_shares
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded, Float64, Mask, Rows

WORDS = ["ant", "bee", "cat"]


DOCUMENTS = [
    Document("a", {"title": "ant", "text": "ant bee"}),
    Document("b", {"title": "bee", "text": "bee"}),
    Document("c", {"title": "cat [bold]", "text": "cat bee"}),
]


class CountingModel(Model):
    """Counts words: a sparse part only."""

    config: ClassVar[dict[str, Any]] = {"kind": "counting"}
    n_sparse = len(WORDS)

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        counts = np.array([[t.split().count(w) for w in WORDS] for t in texts], np.float32)
        rows, columns = np.nonzero(counts)
        return Encoded(
            np.zeros((len(texts), 0), np.float32),
            Rows(
                np.searchsorted(rows, np.arange(len(texts) + 1)).astype(np.int64),
                columns.astype(np.int32),
                counts[rows, columns],
                self.n_sparse,
            ),
            np.zeros(len(texts), np.float32),
        )

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        return self.encode_queries([document["text"] for document in documents])

    def query_text(self, fields: Mapping[str, Any]) -> str:
        return str(fields.get("text", ""))

    def query_terms(self, text: str) -> list[TermShare]:
        none = np.zeros(0, np.float32)
        return [TermShare(word, none, WORDS.index(word), 1.0) for word in text.split()]

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        return are_in(words, set(text.split()))

    def word_shares(
        self,
        query: Encoded,
        documents: Sequence[Mapping[str, Any]],
        encoded: Encoded,
        words: Sequence[str],
    ) -> Float64:
        features = np.array([WORDS.index(w) if w in WORDS else -1 for w in words], np.int32)
        return lexical_shares(features, query, encoded)

    def parts(self) -> Parts:
        return Parts(self.config, {}, {})
