"""BM25 (bm25s) and tf-idf (scikit-learn), over the documents and over the documents with their clicked text.

    python -m benchmarks.peers.bm25 [--collection tldr/en]

Both read the words of Fullrank (fullrank.text.words.words; no stemming, no stop words), so a difference comes from
ranking and not from tokenisation. "Clicked" adds the text of a document's training queries to the document.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.protocol import Float32, PeerData, PeerSystem, Settings, Trained, parser, run
from fullrank.text.words import words


def fit_bm25(data: PeerData, settings: Settings, *, clicked: bool = False) -> Trained:
    """Index the documents. Settings: k1, b."""
    import bm25s

    number: dict[str, int] = {}
    documents = [
        [number.setdefault(word, len(number)) for word in words(text)]
        for text in (data.clicked if clicked else data.documents)
    ]
    index = bm25s.BM25(**settings)
    index.index(bm25s.tokenization.Tokenized(documents, number), show_progress=False)

    def score(texts: Sequence[str]) -> Float32:
        found = np.full((len(texts), len(documents)), -np.inf, np.float32)
        for line, text in zip(found, texts, strict=True):
            known = [number[word] for word in words(text) if word in number]
            # bm25s accepts no empty query; such a query ranks nothing.
            if known:
                scores = index.get_scores(known)
                np.copyto(line, scores, where=scores > 0)
        return found

    return Trained(score)


def fit_tfidf(data: PeerData, settings: Settings, *, clicked: bool = False) -> Trained:
    """Weight the documents. Settings: those of TfidfVectorizer."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer: Any = TfidfVectorizer(analyzer=words, dtype=np.float32, **settings)
    documents = vectorizer.fit_transform(data.clicked if clicked else data.documents).T.tocsr()

    def score(texts: Sequence[str]) -> Float32:
        scores = (vectorizer.transform(texts) @ documents).toarray()
        return np.where(scores > 0, scores, np.float32(-np.inf)).astype(np.float32)

    return Trained(score)


BM25_TRIALS = tuple(
    {"k1": k1, "b": b} for k1, b in ((1.5, 0.75), (1.2, 0.75), (0.9, 0.75), (0.9, 0.4), (0.6, 0.6))
)
TFIDF_TRIALS: tuple[Settings, ...] = ({}, {"sublinear_tf": True})

SYSTEMS = (
    PeerSystem("bm25s", fit_bm25, BM25_TRIALS),
    PeerSystem("bm25s-clicked", partial(fit_bm25, clicked=True), BM25_TRIALS, needs_queries=True),
    PeerSystem("tfidf", fit_tfidf, TFIDF_TRIALS),
    PeerSystem("tfidf-clicked", partial(fit_tfidf, clicked=True), TFIDF_TRIALS, needs_queries=True),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems."""
    given = parser(__doc__).parse_args(arguments)
    run("benchmarks.peers.bm25", SYSTEMS, given, ("bm25s", "scikit-learn"), arguments)


if __name__ == "__main__":
    main()
