"""A tiny planted model that counts words, and what a bundle of it is written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fullrank.models.contract import Model, Parts
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded, Rows

WORDS = ["apple", "bread", "café", "日本", "🙂"]
QUERIES = ["apple 日本", "café\u2028bread", "unseen", "", "🙂 🙂 apple bread café 日本"]
CREATED = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


class WordsModel(Model):
    """Sums one row of U per word, and counts words: enough of a model for a bundle."""

    config: ClassVar[dict[str, Any]] = {"kind": "words", "title": "größe"}
    n_dense = n_sparse = 0

    def __init__(self, words: Sequence[str], U: npt.NDArray[np.float32]) -> None:
        self.words = list(words)
        self.U = U
        self.n_sparse, self.n_dense = len(self.words), U.shape[1]

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        counts = np.array([[t.split().count(w) for w in self.words] for t in texts], np.float32)
        counts = counts.reshape(len(texts), self.n_sparse).astype(np.float32)
        rows, indices = np.nonzero(counts)
        indptr = np.searchsorted(rows, np.arange(len(texts) + 1)).astype(np.int64)
        return Encoded(
            np.ascontiguousarray(counts @ self.U),
            Rows(indptr, indices.astype(np.int32), counts[rows, indices], self.n_sparse),
            np.zeros(len(texts), np.float32),
        )

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        encoded = self.encode_queries([document["title"] for document in documents])
        return Encoded(
            encoded.dense,
            encoded.sparse,
            (np.arange(len(documents), dtype=np.float32) / 7).astype(np.float32),
        )

    def query_terms(self, text: str) -> list[TermShare]:
        return []

    def parts(self) -> Parts:
        return Parts(self.config, {"U": self.U}, {"words": self.words})


def planted(n_dense: int = 3, documents: int = 40) -> dict[str, Any]:
    """Arguments of write_bundle."""
    rng = np.random.default_rng(5)
    model = WordsModel(WORDS, rng.normal(size=(len(WORDS), n_dense)).astype(np.float32))
    corpus = [
        Document(f"d{i:03}", {"title": " ".join(rng.choice(WORDS, i % 6)), "n": i})
        for i in range(documents)
    ]
    return {
        "model": model,
        "encoded": model.encode_documents([d.texts(["title"]) for d in corpus]),
        "documents": corpus,
        "golden_queries": QUERIES,
        "card": {"recipe": "planted", "metrics": {"map": 0.1 + 0.2}},
    }


def arrays(encoded: Encoded) -> dict[str, npt.NDArray[Any]]:
    return encoded.arrays()
