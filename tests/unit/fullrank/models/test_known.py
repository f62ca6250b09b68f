"""Unknown words become known ones that are one edit away or another form; which queries are familiar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank import open_bundle
from fullrank.live import Operation, View
from fullrank.models.contract import Model
from fullrank.models.corrections import KEPT, MAX_CORRECTED
from fullrank.models.language import LanguageModel, no_translation
from fullrank.models.linear import DenseSide, LinearModel
from fullrank.models.mixed import MixedModel
from fullrank.models.registry import load_model
from fullrank.models.unseen import live_model
from fullrank.models.words import Words
from fullrank.retrieval import Floor
from fullrank.search.complete import UNKNOWN
from fullrank.search.query import Options
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded, Rows
from fullrank.text.features import Vocabulary, trigram_rows
from fullrank.text.spelling import MIN_LETTERS
from tests.bundles import CORPUS, FIELDS, linear_model, make_bundle
from tests.unit.fullrank.models.test_linear import f32, model

MODEL = linear_model(CORPUS, n_dense=2)
WORDS = MODEL.sparse.words.words


def language_model(words: Sequence[str]) -> LanguageModel:
    size = len(words)
    settings = {
        "latent": "none", "lambda1": 0.5, "lambda2": 1.0, "iterations": 0, "prior": 0.0,
        "fields": ["title", "text"], "query_fields": ["title"],
    }  # fmt: skip
    nothing = np.zeros((size, 0), np.float32)
    share = np.full(size, 1 / size, np.float32)
    return LanguageModel(settings, Vocabulary(words), share, nothing, nothing, no_translation(size))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("copy files", None),
        ("cpoy files", "copy files"),
        ("CPOY the  fyles!", "copy the files"),
        ("remot-host", "remote host"),
        ("lst", None),  # too short
        ("copy4", None),  # has a digit
        ("zzzqqq", None),
        ("", None),
        (" ".join(["cpoy"] * 33), None),  # a document, not a query
    ],
)
@pytest.mark.parametrize(
    "model",
    [MODEL, MixedModel([MODEL, language_model(["copy"])], [1.0, 1.0]), live_model(MODEL)],
    ids=["linear", "mixed", "open"],
)
def test_a_word_one_edit_away_was_meant(model: object, typed: str, meant: str | None) -> None:
    assert Words.of(model).corrected(typed) == meant  # type: ignore[arg-type]


def edits(word: str) -> set[str]:
    """Return all texts one edit away from a word, of the letters a to z."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    found = {a + b[1:] for a, b in cuts if b}
    found |= {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    found |= {a + c + b[1:] for a, b in cuts if b for c in letters}
    return found | {a + c + b for a, b in cuts for c in letters}


@given(st.sampled_from([word for word in WORDS if word.isascii()]), st.data())
def test_what_was_meant_is_known_and_one_edit_away(word: str, data: st.DataObject) -> None:
    typed = data.draw(st.sampled_from(sorted(edits(word) - {""})))
    meant = Words.of(MODEL).corrected(typed)
    near = {known for known in WORDS if typed in edits(known)}
    if typed in WORDS or len(typed) < MIN_LETTERS:
        assert meant is None
    else:
        assert meant in near


def test_what_any_model_of_a_mix_knows_is_known() -> None:
    assert Words.of(MODEL).corrected("remoce") == "remote"
    mix = MixedModel([MODEL, language_model(["remoce"])], [1.0, 1.0])
    assert Words.of(mix).corrected("remoce") is None
    stems = replace(language_model(["remoce"]), settings={"stem": "english"})
    assert Words.of(MixedModel([MODEL, stems], [1.0, 1.0])).corrected("remoce") == "remote"


def test_another_form_of_a_known_word_is_known() -> None:
    documents = [Document("a", {"title": "crème", "text": "crème brûlée"})]
    model = linear_model(documents)
    folding = replace(model, sparse=replace(model.sparse, folded=0.9, plurals=0.8))
    assert Words.of(folding).corrected("creme") is None
    assert Words.of(model).corrected("creme") == "crème"
    assert Words.of(folding).corrected("crene") is None  # two edits: the letter and its accent


def test_a_word_of_a_live_document_is_known(tmp_path: Path) -> None:
    version = make_bundle(tmp_path, "docs")
    view = View.of(open_bundle(tmp_path / version))
    assert view.analyzer.correction("remoce host") == "remote host"
    written = view.apply([Operation(1, "x", {"title": "remoce", "text": "new"})])
    assert written.analyzer.correction("remoce host") is None
    assert written.analyzer.correction("remoke host") == "remote host"
    without = written.apply([Operation(2, "x", None)])
    assert without.analyzer.correction("remoce host") == "remote host"


CORRECTIONS_WORDS = ["apple", "apply", "pear"]


def fruit(**changes: Any) -> LinearModel:
    """The words of documents, and `quince` of queries; apple is e times as frequent as the others."""
    letters = Vocabulary(["#ap", "app", "ple"])
    query = DenseSide(
        Vocabulary([*CORRECTIONS_WORDS, "quince"]),
        f32(0, 1, 1, 1, 2),
        f32([1, 0], [0, 1], [0, 2], [3, 0]),
        letters,
        f32([0, 3], [0, 6], [9, 0]),
    )
    return model(
        words=Vocabulary(CORRECTIONS_WORDS),
        idf=f32(1, 2, 2),
        query=changes.pop("query", query),
        settings={"spelling": changes.pop("spelling", 0.5)},
        **changes,
    )


def weights(encoded: Encoded) -> list[list[float]]:
    """Return s of each query over the words."""
    found: list[list[float]] = encoded.sparse.csr().toarray()[:, :3].tolist()
    return found


def test_an_unknown_word_adds_a_discounted_count_of_a_known_one() -> None:
    """k3 = 1: a count of 0.5 weighs 2/3, and 1 + 0.5 weighs 1.2."""
    found = fruit().encode_queries(["aple", "aple apple", "aple aple", "apple", "pea"])
    expected = np.array([[2 / 3, 0, 0], [1.2, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(np.array(weights(found)), expected, rtol=1e-6)


def test_known_words_share_the_count_by_their_probability() -> None:
    """appla is one replaced letter from apple and apply, and apple is e times as frequent."""
    likely = np.e**0.75 / (1 + np.e**0.75)
    tf = np.array([0.5 * likely, 0.5 * (1 - likely), 0])
    [found] = weights(fruit().encode_queries(["appla"]))
    np.testing.assert_allclose(found, 2 * tf / (tf + 1), rtol=1e-6)


def test_the_dense_part_keeps_a_share_of_the_letters_of_a_corrected_word() -> None:
    """φ: the known word has tf λ and idf 1, what was typed has tf `KEPT` and the idf 2 of unknown words."""
    found = fruit().encode_queries(["pearr"]).dense[0]
    known, typed = 0.5 * 1, KEPT * 2
    letters = trigram_rows(["pearr"], Vocabulary(["#ap", "app", "ple"])).csr().toarray()
    assert not letters.any()
    np.testing.assert_allclose(found, known * f32(0, 2) / np.hypot(known, typed), rtol=1e-6)


def test_a_word_of_training_queries_is_known_and_corrected_to() -> None:
    """quince has no place in the lexical part."""
    found = fruit().encode_queries(["quinc", "quince"])
    assert weights(found) == [[0, 0, 0], [0, 0, 0]]
    assert found.dense[0, 0] > 0
    assert fruit().corrections("quinc quince") == {"quinc": "quince"}


def test_without_the_setting_nothing_is_corrected() -> None:
    plain = fruit(spelling=0.0)
    assert weights(plain.encode_queries(["aple"])) == [[0, 0, 0]]
    assert plain.corrections("aple") == {}


def test_the_likeliest_correction_of_each_word_is_named() -> None:
    assert fruit().corrections("aple appla pear lemon") == {"aple": "apple", "appla": "apple"}


def test_long_queries_are_not_corrected() -> None:
    long = " ".join(f"w{i}" for i in range(MAX_CORRECTED))
    found = fruit().encode_queries([f"aple {long}", "aple"])
    expected = np.array([[0, 0, 0], [2 / 3, 0, 0]])
    np.testing.assert_allclose(np.array(weights(found)), expected, rtol=1e-6)


def test_words_of_other_queries_are_not_corrected() -> None:
    """Training encodes a few of all queries, perhaps one, by the words of all of them."""
    words = ["aple", "pear", "quinc"]
    for asked in ([1], [0, 1]):
        indices = np.array(asked, np.int32)
        one = Rows(np.array([0, len(asked)]), indices, np.ones(len(asked), np.float32), len(words))
        two = Rows.vstack([one, one])
        for counts in (one, two):
            found = fruit().corrected(words, counts)
            assert (found is None) == (asked == [1])
            assert found is None or list(found.found) == ["aple"]


@dataclass(frozen=True)
class Table:
    """A source of variants: aple is pear."""

    def of(self, word: str) -> Sequence[tuple[int, float]]:
        """Return pear for aple."""
        return [(2, 1.0)] if word == "aple" else []


def test_a_word_with_variants_is_not_corrected() -> None:
    found = fruit(variants=[Table()])
    assert weights(found.encode_queries(["aple"])) == [[0, 0, 1]]
    assert found.corrections("aple pearr") == {"pearr": "pear"}


TEXTS = ["", "aple appla pearr", "apple", "appla pear quinc lemon appla", "lemon", "aple aple"]


def test_a_batch_gives_the_bits_of_its_queries_one_by_one() -> None:
    found = fruit()
    batch = found.encode_queries(TEXTS)
    for i, text in enumerate(TEXTS):
        alone = found.encode_queries([text])
        assert alone.row(0)[0].tolist() == batch.row(i)[0].tolist()
        assert alone.row(0)[1].tolist() == batch.row(i)[1].tolist()
        assert alone.row(0)[2].tolist() == batch.row(i)[2].tolist()


@pytest.mark.parametrize("text", TEXTS)
def test_terms_add_up_to_the_query(text: str) -> None:
    found = fruit()
    encoded, terms = found.encode_queries([text]), found.query_terms(text)
    dense, sparse = np.zeros(2), np.zeros(4)
    for term in terms:
        dense += term.dense
        features, parts = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
        sparse[features[features >= 0]] += parts[features >= 0]
    np.testing.assert_allclose(dense, encoded.dense[0], atol=1e-6)
    np.testing.assert_allclose(sparse, encoded.sparse.csr().toarray()[0], rtol=1e-6)
    assert len({term.term for term in terms}) == len(terms)


def test_an_explanation_names_what_was_typed_and_the_known_word() -> None:
    terms = {term.term: term for term in fruit().query_terms("aple apple")}
    assert set(terms) == {"aple", "apple", "aple → apple"}
    assert terms["aple"].feature == -1
    # The count is 1.5: 1 for the known word, 0.5 for what was typed.
    assert terms["apple"].weight == pytest.approx(1.2 / 1.5)
    assert terms["aple → apple"].weight == pytest.approx(1.2 * 0.5 / 1.5)


def test_an_unknown_word_keeps_its_bucket() -> None:
    """A live document with the word as typed is found by it, at full weight."""
    plain, corrected = live_model(fruit(spelling=0.0)), live_model(fruit())
    assert plain is not None
    assert corrected is not None
    before, after = plain.encode_queries(["aple"]), corrected.encode_queries(["aple"])
    bucket, weight = before.sparse.row(0)
    assert dict(zip(*after.sparse.row(0), strict=True))[bucket[0]] == weight[0]
    terms = {term.term: term for term in corrected.query_terms("aple")}
    assert terms["aple"].feature == bucket[0]
    assert set(terms) == {"aple", "aple → apple"}


def test_the_setting_is_stored_and_absent_settings_correct_nothing() -> None:
    found = load_model(fruit().parts())
    assert weights(found.encode_queries(["aple"])) == weights(fruit().encode_queries(["aple"]))
    assert "spelling" not in model().config
    assert load_model(model().parts()).encode_queries(["aple"]).sparse.values.tolist() == []


PLAIN = linear_model(CORPUS, n_dense=2)
FAMILIAR_MODEL = replace(PLAIN, settings={**PLAIN.settings, "spelling": 0.8})


@pytest.mark.parametrize(
    "model", [FAMILIAR_MODEL, live_model(FAMILIAR_MODEL)], ids=["linear", "open"]
)
@pytest.mark.parametrize(
    ("text", "share", "odds", "expected"),
    [
        ("copy", 1.0, 0.0, True),
        ("zzzz copy", 1.0, 0.0, True),
        ("zzzz qqqq", 0.1, 0.0, False),
        ("", 0.1, 0.0, False),
        ("🎉", 0.1, 0.0, False),
        ("copy갱", 0.8, 0.0, True),  # four letters of five
        ("copy갱", 0.81, 0.0, False),
        ("copy 갱", 0.81, 0.0, True),
        ("東京갱", 0.6, 0.0, True),
        ("cpoy", 1.0, 0.0, True),
        ("cpoy", 1.0, 1e30, False),
        ("cpoy copy", 1.0, 1e30, True),
        ("zzzz " * 32, 1.0, 0.0, False),
        ("zzzz " * 33, 1.0, 0.0, True),  # a document
        ("東西" * 16, 1.0, 0.0, False),
        ("東西" * 17, 1.0, 0.0, True),
    ],
)
def test_a_query_is_familiar(
    model: object, text: str, share: float, odds: float, expected: bool
) -> None:
    assert Words.of(model).is_familiar(text, share, odds) is expected  # type: ignore[arg-type]


def test_what_is_known_elsewhere_counts() -> None:
    familiar = Words.of(FAMILIAR_MODEL)
    assert familiar.is_familiar("zzzz", 1.0, 0.0, lambda piece: piece == "zzzz")
    assert not familiar.is_familiar("zzzz갱", 0.9, 0.0, lambda piece: piece == "zzzz")


def test_parts_of_a_known_word_are_familiar_as_whole_words_only() -> None:
    sparse = replace(FAMILIAR_MODEL.sparse, folded=0.7, plurals=0.4)
    familiar = Words.of(replace(FAMILIAR_MODEL, sparse=sparse))
    assert not familiar.is_familiar("re", 1.0, 1e30)
    assert not familiar.is_familiar("mote", 1.0, 1e30)
    assert familiar.is_familiar("re mote", 1.0, 1e30)
    assert not familiar.is_familiar("갱re mote쓔", 1.0, 1e30)


def floor_of(view: View, text: str, *, by_prefix: bool = False) -> Floor | None:
    return view.analyzer.query(text, Options(by_prefix=by_prefix)).floor


def test_words_of_live_and_of_compacted_documents_are_familiar(tmp_path: Path) -> None:
    floor = Floor(0.4, 0.6, 0.1, share=0.9, odds=1.0, unfamiliar=9.0)
    bundle = open_bundle(tmp_path / make_bundle(tmp_path, "docs", n_dense=4, floor=floor))
    view = View.of(bundle)
    nothing = Floor(dense=9.0)
    assert floor_of(view, "copy") == bundle.analyzer.query("copy").floor == floor
    assert floor_of(view, "zyzzyva") == bundle.analyzer.query("zyzzyva").floor == nothing
    assert floor_of(view, "cop") == nothing
    # Known words begin with it.
    assert floor_of(view, "cop", by_prefix=True) == floor.of_share(UNKNOWN)
    assert floor_of(view, "copy", by_prefix=True) == floor
    written = view.apply([Operation(1, "new", {"title": "zyzzyva", "text": "beetle"})])
    assert floor_of(written, "zyzzyva") == floor
    assert floor_of(written, "qqqq") == nothing
    found = written.search(written.analyzer.query("zyzzyva"), 9)
    assert [hit.id for hit in found.hits] == ["new"]


def test_words_of_a_compacted_bundle_are_familiar(tmp_path: Path) -> None:
    def compacted(model: LinearModel) -> Model:
        opened = live_model(linear_model(CORPUS, n_dense=2))
        assert opened is not None
        return opened

    floor = Floor(0.4, 0.6, 0.1, share=0.9, odds=1.0, unfamiliar=9.0)
    documents = [*CORPUS, Document("new", {"title": "zyzzyva", "text": "beetle"})]
    version = make_bundle(tmp_path, "docs", documents, wrap=compacted, floor=floor)
    bundle = open_bundle(tmp_path / version)
    assert bundle.analyzer.query("zyzzyva").floor == bundle.floor
    assert bundle.analyzer.query("qqqq").floor == Floor(dense=9.0)
    assert [hit.id for hit in bundle.search("zyzzyva")] == ["new"]
    view = View.of(bundle).apply([Operation(1, "other", {"title": "qqqq", "text": "beetle"})])
    assert floor_of(view, "qqqq") == bundle.floor


@pytest.mark.parametrize(
    ("text", "odds", "words"),
    [
        ("remote", 0.0, {"remote"}),
        ("remote host zzzz", 0.0, {"remote", "host"}),
        ("cpoy", 0.0, {"copy"}),
        ("cpoy ssh", 1e9, {"ssh"}),  # too unlikely a typing error
        ("zzzz", 0.0, set()),
        ("copy " + "remote " * 40, 0.0, set()),  # a document
    ],
)
def test_word_features_are_those_of_the_documents_with_a_word(
    text: str, odds: float, words: set[str]
) -> None:
    found = Words.of(FAMILIAR_MODEL).word_features(text, odds, common=1e9)
    documents = FAMILIAR_MODEL.encode_documents(
        [document.texts(FIELDS) for document in CORPUS]
    ).sparse
    for row, document in enumerate(CORPUS):
        own = set(" ".join(document.texts(FIELDS).values()).lower().split())
        assert bool(found & {*documents.row(row)[0].tolist()}) == bool(own & words)


def test_common_words_have_features_where_there_is_no_other() -> None:
    familiar = known = Words.of(FAMILIAR_MODEL)
    often, rare = known.document_frequency("files"), known.document_frequency("remote")
    assert often > rare
    assert known.document_frequency("zzzz") == 0
    both = familiar.word_features("remote files", 0.0, common=rare)
    assert both == familiar.word_features("remote", 0.0, common=rare)
    assert familiar.word_features("files", 0.0, common=rare) - both
