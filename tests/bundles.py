"""Build small bundles of seven documents that tests can search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle import stream_bundle
from fullrank.models.contract import Model
from fullrank.models.linear import DenseSide, LinearModel, SparseSide
from fullrank.retrieval import Floor
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.stage import SecondStage
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded
from fullrank.text.features import Vocabulary, bm25_idf, count_corpus, tfidf_idf
from fullrank.text.phrases import Phrases

FIELDS = ("title", "text")

CORPUS = [
    Document("linux/cp", {"title": "cp", "text": "Copy files and directories", "section": 1}),
    Document("linux/mv", {"title": "mv", "text": "Move or rename files", "section": 1}),
    Document("linux/ssh", {"title": "ssh", "text": "Log in to a remote host", "section": 1}),
    Document("linux/scp", {"title": "scp", "text": "Copy files to a remote host over ssh"}),
    Document("ls", {"title": "ls", "text": "List the files of a directory"}),
    Document(
        "<b>&\"'",
        {"title": "<script>document.title='taken'</script>", "text": "<img src=x> markup files"},
    ),
    Document("日本", {"title": "日本語の検索", "text": "東京の天気 files"}),
]


CORPUS_WORDS = ["copy", "files", "move", "remote", "host", "ssh", "list", "directory"]


def write_bundle(
    root: Path, name: str, *, encoded: Encoded, documents: Sequence[Document], **settings: Any
) -> Path:
    """Write a bundle in one batch."""
    return stream_bundle(root, name, batches=[(documents, encoded)], **settings)


def linear_model(documents: Sequence[Document], *, n_dense: int = 0, seed: int = 1) -> LinearModel:
    """BM25 over title and text, with a dense part of random words when n_dense is set."""
    columns = [[d.texts(FIELDS)[name] for d in documents] for name in FIELDS]
    counts = count_corpus(columns)
    frequency = counts.document_frequency()
    words = Vocabulary(counts.words)
    random = np.random.default_rng(seed)
    held = len(counts.words) if n_dense else 0
    idf = np.append(tfidf_idf(frequency, len(documents))[:held], np.float32(1))
    sides = [
        DenseSide(
            Vocabulary(counts.words[:held]),
            idf.astype(np.float32),
            random.normal(0, 0.7, (held, n_dense)).astype(np.float32),
            trigram_table=np.zeros((0, n_dense), np.float32),
        )
        for _ in range(2)
    ]
    sparse = SparseSide(
        words,
        bm25_idf(frequency, len(documents)),
        np.ones((len(FIELDS), len(words)), np.float32),
        Phrases([]),
        np.zeros(0, np.float32),
        "bm25",
        mean_lengths=(1.5, 5.0),
    )
    settings: dict[str, Any] = {
        "fields": [[name, [name]] for name in FIELDS],
        "field_weights": [1.0, 1.0],
        "query_fields": list(FIELDS),
        "phrase_field": "",
        "unit": False,
        "dense_scale": 1.0,
        "bias": 0.0,
    }
    return LinearModel(settings, sides[0], sides[1], sparse)


def make_bundle(
    root: Path,
    name: str,
    documents: Sequence[Document] = CORPUS,
    *,
    n_dense: int = 0,
    seed: int = 1,
    created: datetime | None = None,
    sample_queries: Sequence[str] = (),
    wrap: Callable[[LinearModel], Model] = lambda model: model,
    second_stage: tuple[SecondStage, *tuple[DocumentFacts, ...]] | None = None,
    floor: Floor | None = None,
    card: Mapping[str, Any] | None = None,
) -> str:
    """Write a bundle and return its version; with sample queries it has a fast mode.

    wrap  what the bundle's model makes of the linear one
    second_stage  a second stage and the facts about the documents, in one piece or several
    floor  what a document must reach to be found
    card  of the model
    """
    stage, *facts = second_stage or (None,)
    documents = sorted(documents, key=lambda document: document.id)
    model = wrap(linear_model(documents, n_dense=n_dense, seed=seed))
    encoded = model.encode_documents([d.texts(FIELDS) for d in documents])
    path = write_bundle(
        root,
        name,
        model=model,
        encoded=encoded,
        documents=documents,
        golden_queries=["copy files", "remote host"],
        card=card or {"metrics": {"mrr": 0.5}},
        created=created,
        sample_queries=sample_queries,
        second_stage=stage,
        facts=facts,
        floor=floor,
    )
    return path.name


def at(hour: int) -> datetime:
    """A time of creation."""
    return datetime(2026, 1, 1, hour, tzinfo=UTC)
