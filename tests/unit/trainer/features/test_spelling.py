"""Judged queries with typing errors: training encodes them as the service does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import Corpus, count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.systems.linear.parameters import encode_judged
from tests.planted import write_lines, write_qrels

TEXTS = ["rename files", "rename flies copy", "dupplicate lines", "sort", "renamee"]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Only the first query is in the training split, so words of the others alone are unknown."""
    documents = ["copy files", "rename a file", "duplicate lines", "sort lines"]
    write_lines(
        tmp_path / "corpus.jsonl",
        [{"_id": f"d{i}", "text": text} for i, text in enumerate(documents)],
    )
    write_lines(
        tmp_path / "queries.jsonl", [{"_id": f"q{i}", "text": text} for i, text in enumerate(TEXTS)]
    )
    write_qrels(tmp_path / "qrels" / "train.tsv", [("q0", "d1")])
    write_qrels(tmp_path / "qrels" / "valid.tsv", [(f"q{i}", "d0") for i in range(1, len(TEXTS))])
    return count_collection(read_collection(tmp_path), processes=1)


def features_of(corpus: Corpus, spelling: float) -> Features:
    settings = ModelSettings(latent="learned", trigrams="on", match="bm25", spelling=spelling)
    return build_features(corpus, settings)


def test_judged_queries_are_encoded_as_texts_are(corpus: Corpus) -> None:
    features = features_of(corpus, 0.8)
    trained = encode_judged(features, features.model, np.arange(len(TEXTS)))
    served = features.model.encode_queries(TEXTS).sparse
    assert trained.sparse.indices.tolist() == served.indices.tolist()
    assert trained.sparse.values.tolist() == served.values.tolist()
    # The matrix that a training step reads has the same weights.
    assert features.s.indices.tolist() == served.indices.tolist()
    assert features.s.values.tolist() == served.values.tolist()


def test_typing_errors_reach_the_known_word_only_with_the_setting(corpus: Corpus) -> None:
    column = features_of(corpus, 0.0).model.sparse.words.row("duplicate")
    plain, corrected = (features_of(corpus, share) for share in (0.0, 0.8))
    assert plain.s.csr()[2, column] == 0
    assert corrected.s.csr()[2, column] > 0
    row = corrected.model.query.words.row("duplicate")
    assert plain.xq.csr()[2, row] == 0
    assert corrected.xq.csr()[2, row] > 0
