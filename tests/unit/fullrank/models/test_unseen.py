"""Features of words that a model does not know: their buckets and weights, other forms, variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.live import Operation, View
from fullrank.models.contract import Parts
from fullrank.models.linear import LinearModel
from fullrank.models.mixed import MixedModel
from fullrank.models.reading import DocumentReading, SplitDocuments
from fullrank.models.registry import load_model
from fullrank.models.unseen import OpenModel, live_model
from fullrank.search.highlight import split_fields
from fullrank.storage.encoding import Encoded
from fullrank.text.spelling import variants_of
from tests.bundles import CORPUS, linear_model, write_bundle
from tests.live import bundle_of
from tests.unit.fullrank.models.test_linear import f32, model

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


PLAIN = linear_model(CORPUS)
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
    [("Zürich", 1.0), ("zurich", FOLDED), ("ZÜRICH", 1.0), ("zürichs", PLURALS), ("basel", 0.0)],
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


def unseen_forms_opened() -> OpenModel:
    found = live_model(folding())
    assert found is not None
    return found


@pytest.mark.parametrize("query", ["", "zurich copy", "qi-zi copy copies", "zürich zurich zürich"])
def test_shares_add_up_to_the_query(query: str) -> None:
    model = unseen_forms_opened()
    total = np.zeros(model.n_sparse)
    for term in model.query_terms(query):
        features, weights = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
        np.add.at(total, features[features >= 0], weights[features >= 0])
    encoded = model.encode_queries([query]).sparse
    np.testing.assert_allclose(total, encoded.csr().toarray()[0], rtol=1e-5, atol=1e-6)


def test_a_batch_gives_the_bits_of_its_queries_one_by_one() -> None:
    model = unseen_forms_opened()
    long = " ".join(f"qx{i}" for i in range(80))
    texts = ["zurich copy", "", f"{long} copy", "qi-zi"]
    batch = model.encode_queries(texts).sparse
    for i, text in enumerate(texts):
        alone = model.encode_queries([text]).sparse
        assert alone.row(0)[0].tolist() == batch.row(i)[0].tolist()
        assert alone.row(0)[1].tolist() == batch.row(i)[1].tolist()
    # A long query finds equal words only.
    assert len(batch.row(2)[0]) == 81


@dataclass(frozen=True)
class Table:
    """A source of variants: a table."""

    table: Mapping[str, Sequence[tuple[int, float]]]

    def of(self, word: str) -> Sequence[tuple[int, float]]:
        """Return the line of a word."""
        return self.table.get(word, ())


A_IS_B = Table({"a": [(1, 0.5)], "x": [(1, 0.25), (2, 0.5)]})


def weights(encoded: Encoded) -> list[list[float]]:
    """Return s of each query."""
    found: list[list[float]] = encoded.sparse.csr().toarray().tolist()
    return found


def test_the_first_source_that_knows_a_word_decides() -> None:
    other = Table({"a": [(2, 1.0)], "y": [(0, 1.0)]})
    assert variants_of("a", [A_IS_B, other]) == [(1, 0.5)]
    assert variants_of("y", [A_IS_B, other]) == [(0, 1.0)]
    assert variants_of("z", [A_IS_B, other]) == ()


def test_a_variant_has_its_share_of_the_weight_of_the_word() -> None:
    """k3 = 1: tf 1 → 1, tf 3 → 1.5; x is unknown and counts for its variants only."""
    found = model(variants=[A_IS_B])
    assert weights(found.encode_queries(["a", "a a a", "a b", "x", "x x x a"])) == [
        [1, 0.5, 0, 0],
        [1.5, 0.75, 0, 0],
        [1, 1.5, 0, 1],
        [0, 0.25, 0.5, 0],
        [1, 0.5 + 1.5 * 0.25, 0.75, 0],
    ]


def test_tfidf_counts_a_variant_as_a_share_of_an_occurrence() -> None:
    found = model(scheme="tfidf", idf=f32(1, 2, 1), variants=[A_IS_B])
    [[a, b, c, _]] = weights(found.encode_queries(["a"]))
    np.testing.assert_allclose([a, b, c], np.array([1, 0.5 * 2, 0]) / np.sqrt(2), rtol=1e-6)


def test_words_that_a_query_drops_have_no_variants() -> None:
    """A query keeps one term, the one with the largest idf: of a and c it keeps c."""
    found = model(variants=[A_IS_B], terms=1, idf=f32(1, 1, 2))
    assert weights(found.encode_queries(["a c", "a", "a c x"])) == [
        [0, 0, 1, 0],
        [1, 0.5, 0, 0],
        [0, 0.25, 1.5, 0],
    ]


def test_variants_a_batch_gives_the_bits_of_its_queries_one_by_one() -> None:
    found = model(variants=[A_IS_B])
    texts = ["a x", "", "x x b a c", "q"]
    batch = found.encode_queries(texts).sparse
    for i, text in enumerate(texts):
        alone = found.encode_queries([text]).sparse
        assert alone.row(0)[0].tolist() == batch.row(i)[0].tolist()
        assert alone.row(0)[1].tolist() == batch.row(i)[1].tolist()


@pytest.mark.parametrize("text", ["a", "x", "a x b", "x x a a c", "a a b b x q"])
def test_shares_of_words_add_up_to_the_weights_of_the_query(text: str) -> None:
    found = model(variants=[A_IS_B])
    total = np.zeros(4)
    for term in found.query_terms(text):
        features, parts = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
        assert features.tolist() == sorted(features.tolist())
        total[features[features >= 0]] += parts[features >= 0]
    np.testing.assert_allclose(total, weights(found.encode_queries([text]))[0], rtol=1e-6)


def test_a_query_of_many_words_has_no_variants() -> None:
    found = model(variants=[A_IS_B])
    filler = " ".join(f"f{i}" for i in range(63))
    assert weights(found.encode_queries([f"a {filler}", f"a {filler} g", "a"])) == [
        [1, 0.5, 0, 0],
        [1, 0, 0, 0],
        [1, 0.5, 0, 0],
    ]
    terms = {term.term: term.feature for term in found.query_terms(f"a {filler} g")}
    assert terms["a"] == 0


DOCUMENTS: list[dict[str, Any]] = [
    {"title": "red apple", "text": "a red red apple, 東京都", "year": 7, "maker": "Zenith apple"},
    {"title": "pear", "maker": ""},
    {"text": "Apple pear", "title": None},
]


@pytest.mark.parametrize("names", [[], ["title"], ["text", "maker", "title", "year"]])
@pytest.mark.parametrize("most", [3, 100])
def test_split_documents_have_the_counts_of_the_whole_ones(names: list[str], most: int) -> None:
    split = split_fields(DOCUMENTS, names, most)
    reading = SplitDocuments(DOCUMENTS, split.words, split.complete)
    for columns in ([["title"], ["text"]], [["title", "text", "maker", "year", "nowhere"]]):
        found, plain = reading.counts(columns), DocumentReading(DOCUMENTS).counts(columns)
        assert len(found.words) == len(set(found.words))
        assert len(found.columns) == len(columns)
        for own, expected in zip(found.columns, plain.columns, strict=True):
            for i in range(len(DOCUMENTS)):
                [counted, wanted] = [
                    {words[j]: value for j, value in zip(*rows.row(i), strict=True)}
                    for words, rows in ((found.words, own), (plain.words, expected))
                ]
                assert counted == wanted
