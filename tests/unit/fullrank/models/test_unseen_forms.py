"""A live document's unknown words are found by their other forms, at a discount."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fullrank.live import Operation, View
from fullrank.models.linear import LinearModel
from fullrank.models.unseen import OpenModel, live_model
from tests.bundles import CORPUS, linear_model
from tests.live import bundle_of

PLAIN = linear_model(CORPUS)
BASE = {d.id: d.fields for d in CORPUS}
FOLDED, PLURALS = 0.75, 0.5


def folding(scheme: str = "bm25") -> LinearModel:
    side = replace(PLAIN.sparse, scheme=scheme, folded=FOLDED, plurals=PLURALS)
    return replace(PLAIN, sparse=side)


def lexical(model: LinearModel, text: str, query: str) -> float:
    """Return the lexical part of the score of one live document."""
    view = View.of(bundle_of(model, BASE)).apply([Operation(1, "new", {"title": "", "text": text})])
    found = view.search(view.model.encode_queries([query]), 100)
    return next(hit.lexical for hit in found.hits if hit.id == "new")


@pytest.mark.parametrize("scheme", ["bm25", "tfidf"])
@pytest.mark.parametrize(
    ("query", "share"),
    [
        ("Zürich", 1.0),
        ("zurich", FOLDED),
        ("ZÜRICH", 1.0),
        ("zürichs", PLURALS),
        ("basel", 0.0),
    ],
)
def test_a_form_of_an_unknown_word_has_its_discount(scheme: str, query: str, share: float) -> None:
    whole = lexical(replace(PLAIN, sparse=replace(PLAIN.sparse, scheme=scheme)), "Zürich", "Zürich")
    assert whole > 0
    assert lexical(folding(scheme), "Zürich", query) == pytest.approx(share * whole, rel=1e-5)


def test_a_known_word_finds_an_unknown_form_but_counts_no_more_than_itself() -> None:
    assert PLAIN.sparse.words.row("copy") >= 0
    own = lexical(PLAIN, "copy", "copy")
    assert lexical(folding(), "copy", "copy") == pytest.approx(own, rel=1e-6)
    found = lexical(folding(), "cöpy", "copy")
    # Both texts have one word; the field's diagonal of copy may differ from that of unknown words.
    row, side = PLAIN.sparse.words.row("copy"), PLAIN.sparse
    diagonal = float(np.median(side.D[1]) / side.D[1, row])
    assert found == pytest.approx(FOLDED * own * diagonal, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("qi-zi", "qizi"),
        ("qizi", "qi-zi"),
        ("qizi", "qi zi"),
        ("qizos", "qi-zo"),
        ("700qx", "700 qx"),
        ("qx-shirt", "qxshirts"),
        ("میخواهم", "می‌خواهم"),
        ("می‌خواهم", "میخواهم"),
        ("کتاب", "كتاب"),
    ],
)
def test_compounds_of_live_documents_are_found(text: str, query: str) -> None:
    assert lexical(folding(), text, query) > 0


def opened() -> OpenModel:
    found = live_model(folding())
    assert found is not None
    return found


@pytest.mark.parametrize("query", ["", "zurich copy", "qi-zi copy copies", "zürich zurich zürich"])
def test_shares_add_up_to_the_query(query: str) -> None:
    model = opened()
    total = np.zeros(model.n_sparse)
    for term in model.query_terms(query):
        features, weights = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
        np.add.at(total, features[features >= 0], weights[features >= 0])
    encoded = model.encode_queries([query]).sparse
    np.testing.assert_allclose(total, encoded.csr().toarray()[0], rtol=1e-5, atol=1e-6)


def test_a_batch_gives_the_bits_of_its_queries_one_by_one() -> None:
    model = opened()
    long = " ".join(f"qx{i}" for i in range(80))
    texts = ["zurich copy", "", f"{long} copy", "qi-zi"]
    batch = model.encode_queries(texts).sparse
    for i, text in enumerate(texts):
        alone = model.encode_queries([text]).sparse
        assert alone.row(0)[0].tolist() == batch.row(i)[0].tolist()
        assert alone.row(0)[1].tolist() == batch.row(i)[1].tolist()
    # A long query finds equal words only.
    assert len(batch.row(2)[0]) == 81
