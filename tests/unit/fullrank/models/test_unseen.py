"""Features of words that a model does not know: their buckets and weights."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.encoding import Encoded, Rows
from fullrank.live import Operation, View
from fullrank.models.contract import Parts
from fullrank.models.linear import LinearModel
from fullrank.models.mixed import MixedModel
from fullrank.models.registry import load_model
from fullrank.models.unseen import OpenModel, live_model, without_unseen
from tests.bundles import CORPUS, linear_model, write_bundle
from tests.live import bundle_of

BM25 = linear_model(CORPUS)
BASE = {d.id: d.fields for d in CORPUS}


def opened(model: LinearModel | MixedModel = BM25, rows: int | None = None) -> OpenModel:
    found = live_model(model)
    assert found is not None
    return found if rows is None else replace(found, rows=rows)


def unseen(encoded: Encoded, model: OpenModel) -> dict[int, float]:
    """Return bucket → weight of one text."""
    found = encoded.sparse.columns(model.model.n_sparse, encoded.sparse.width)
    return dict(zip(found.indices.tolist(), found.values.tolist(), strict=True))


def row(word: str) -> int:
    return crc32(word.encode()) % (1 << 20)


def test_unknown_words_weigh_as_the_rarest_word_of_bm25() -> None:
    model = opened()
    found = unseen(model.encode_documents([{"title": "qx", "text": "qx copy qx qy"}]), model)
    idf = float(BM25.sparse.idf.max())
    # Lengths are those of all words: one in the title (1.5 in the mean), four in the text (5).
    title = idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / 1.5))
    text = [idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * 4 / 5)) for tf in (2, 1)]
    assert found == pytest.approx({row("qx"): title + text[0], row("qy"): text[1]}, rel=1e-6)
    asked = unseen(model.encode_queries(["qx qx copy"]), model)
    assert asked == pytest.approx({row("qx"): 2 * 2 / (2 + 1)})


def test_unknown_words_are_part_of_tfidf_unit_vectors() -> None:
    side = replace(BM25.sparse, scheme="tfidf")
    model = opened(replace(BM25, sparse=side))
    found = unseen(model.encode_queries(["qx qx copy"]), model)
    idf, copy = float(side.idf.max()), float(side.idf[side.words.row("copy")])
    raw = (1 + log(2)) * idf
    assert found == pytest.approx({row("qx"): raw / sqrt(raw**2 + copy**2)}, rel=1e-6)


def test_unknown_words_get_the_median_diagonal() -> None:
    D = np.full_like(BM25.sparse.D, 0.25)
    D[1] = -0.5
    D[0, :3] = 9
    model = opened(replace(BM25, sparse=replace(BM25.sparse, D=D)))
    plain = opened()
    given = [{"title": "qx", "text": "qy"}]
    here, there = (
        unseen(model.encode_documents(given), model),
        unseen(plain.encode_documents(given), plain),
    )
    assert here[row("qx")] == pytest.approx(0.25 * there[row("qx")])
    # A field with a negative diagonal adds nothing.
    assert here.get(row("qy"), 0.0) == 0


def test_a_model_without_a_lexical_part_gets_a_tfidf_cosine() -> None:
    side = replace(BM25.sparse, scheme="none")
    dense = linear_model(CORPUS, n_dense=4)
    settings = {**dense.settings, "dense_scale": 10.0}
    model = opened(replace(dense, sparse=side, settings=settings))
    assert unseen(model.encode_documents([{"text": "qx"}]), model) == {row("qx"): 10.0}
    assert unseen(model.encode_queries(["qx"]), model) == {row("qx"): 1.0}


def test_a_mix_weighs_unknown_words_as_its_first_model() -> None:
    model = opened(MixedModel([BM25, BM25], [0.25, 0.75]))
    plain = opened()
    text = [{"text": "qx"}]
    assert unseen(model.encode_documents(text), model) == unseen(
        plain.encode_documents(text), plain
    )
    assert unseen(model.encode_queries(["qx"]), model) == {row("qx"): 0.25}


def test_documents_as_queries_weigh_unknown_words_by_the_same_part() -> None:
    model = opened(MixedModel([BM25, BM25], [0.25, 0.75], document_weights=[0.5, 0.1]))
    assert unseen(model.for_documents.encode_queries(["qx"]), model) == {row("qx"): 0.5}
    assert unseen(model.encode_queries(["qx"]), model) == {row("qx"): 0.25}


def test_words_of_one_bucket_share_its_weight_by_their_counts() -> None:
    model = opened(rows=1)
    query = model.encode_queries(["qx qx qy copy"])
    assert unseen(query, model) == pytest.approx({0: 3 * 2 / (3 + 1)})
    terms = {term.term: term for term in model.query_terms("qx qx qy copy")}
    feature = BM25.n_sparse
    assert (terms["qx"].feature, terms["qy"].feature) == (feature, feature)
    assert terms["qx"].weight == pytest.approx(1.0)
    assert terms["qy"].weight == pytest.approx(0.5)
    assert terms["copy"].feature == BM25.sparse.words.row("copy")


def test_columns_split_and_joined_again_are_unchanged() -> None:
    rng = np.random.default_rng(1)
    encoded = BM25.encode_queries(["copy files", "", "qx", "remote host ssh"])
    sizes = [0, 2, 1, 3]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.array([4, 9, 1, 0, 5, 7], np.int32)
    rows = Rows(indptr, indices, rng.random(6).astype(np.float32), 10)
    both = replace(encoded, sparse=Rows.hstack(encoded.sparse, rows))
    width = encoded.sparse.width
    left, right = without_unseen(both, width), both.sparse.columns(width, both.sparse.width)
    for name in ("dense", "indptr", "indices", "weights", "bias"):
        np.testing.assert_array_equal(left.arrays()[name], encoded.arrays()[name])
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(right, name), getattr(rows, name))
    for i in range(len(both)):
        assert (np.diff(both.row(i)[1]) > 0).all()


@pytest.mark.parametrize("config", [{"rows": 0}, {"rows": True}, {"rows": 1.5}, {"rows": "9"}, {}])
def test_a_bucket_count_out_of_range_is_refused(config: dict[str, object]) -> None:
    parts = opened().parts()
    broken = {"kind": "open", "model": parts.config["model"], **config}
    with pytest.raises(Exception, match="open"):
        load_model(Parts(broken, parts.arrays, parts.strings))


@pytest.mark.parametrize("n_dense", [0, 8])
def test_a_compacted_view_gives_the_same_results(tmp_path: Path, n_dense: int) -> None:
    """A compacted bundle: base rows unchanged, unknown words among its sparse features."""
    view = View.of(bundle_of(linear_model(CORPUS, n_dense=n_dense), BASE)).apply(
        [
            Operation(1, "new", {"text": "qx files", "section": 3}),
            Operation(2, "ls", None),
            Operation(3, "linux/cp", {"title": "cp", "text": "copy qz"}),
        ]
    )
    for _ in range(2):
        [[documents, encoded]] = view.batches()
        path = write_bundle(
            tmp_path,
            "live",
            model=view.encoder,
            encoded=encoded,
            documents=documents,
            golden_queries=["qx", "copy"],
            card={},
        )
        later = View.of(open_bundle(path), view.seq)
        assert len(later) == len(view)
        assert later.model.n_sparse == view.model.n_sparse
        for text in ("qx", "files qz", "copy files", "neverseen"):
            here = view.search(view.model.encode_queries([text]), 5)
            there = later.search(later.model.encode_queries([text]), 5)
            assert [(h.id, h.score) for h in here.hits] == [(h.id, h.score) for h in there.hits]
        # ... and again on top of it.
        view = later.apply([Operation(4, "more", {"text": "qx qx qw"}), Operation(5, "new", None)])
