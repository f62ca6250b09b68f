"""A query is familiar if the model knows enough of one of its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fullrank import open_bundle
from fullrank.complete import UNKNOWN
from fullrank.live import Operation, View
from fullrank.live.known import floor_of
from fullrank.models.contract import Model
from fullrank.models.familiar import Familiar
from fullrank.models.known import KnownWords
from fullrank.models.linear import LinearModel
from fullrank.models.unseen import live_model
from fullrank.retrieval import Floor
from fullrank.storage.documents import Document
from tests.bundles import CORPUS, FIELDS, linear_model, make_bundle

PLAIN = linear_model(CORPUS, n_dense=2)
MODEL = replace(PLAIN, settings={**PLAIN.settings, "spelling": 0.8})


@pytest.mark.parametrize("model", [MODEL, live_model(MODEL)], ids=["linear", "open"])
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
    familiar = Familiar(model, KnownWords(model))  # type: ignore[arg-type]
    assert familiar.knows(text, share, odds) is expected


def test_what_is_known_elsewhere_counts() -> None:
    familiar = Familiar(MODEL, KnownWords(MODEL))
    assert familiar.knows("zzzz", 1.0, 0.0, lambda piece: piece == "zzzz")
    assert not familiar.knows("zzzz갱", 0.9, 0.0, lambda piece: piece == "zzzz")


def test_parts_of_a_known_word_are_familiar_as_whole_words_only() -> None:
    sparse = replace(MODEL.sparse, folded=0.7, plurals=0.4)
    familiar = Familiar(replace(MODEL, sparse=sparse), KnownWords(MODEL))
    assert not familiar.knows("re", 1.0, 1e30)
    assert not familiar.knows("mote", 1.0, 1e30)
    assert familiar.knows("re mote", 1.0, 1e30)
    assert not familiar.knows("갱re mote쓔", 1.0, 1e30)


def test_words_of_live_and_of_compacted_documents_are_familiar(tmp_path: Path) -> None:
    floor = Floor(0.4, 0.6, 0.1, share=0.9, odds=1.0, unfamiliar=9.0)
    bundle = open_bundle(tmp_path / make_bundle(tmp_path, "docs", n_dense=4, floor=floor))
    view = View.of(bundle)
    nothing = Floor(dense=9.0)
    assert floor_of(view, "copy") == bundle.floor_of("copy") == floor
    assert floor_of(view, "zyzzyva") == bundle.floor_of("zyzzyva") == nothing
    assert floor_of(view, "zyzz", "zyzz") == floor.of_share(UNKNOWN)  # known words begin with it
    assert floor_of(view, "copy", "copy") == floor
    written = view.apply([Operation(1, "new", {"title": "zyzzyva", "text": "beetle"})])
    assert floor_of(written, "zyzzyva") == floor
    assert floor_of(written, "qqqq") == nothing
    query = written.model.encode_queries(["zyzzyva"])
    found = written.search(query, 9, floor=floor_of(written, "zyzzyva"))
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
    assert bundle.floor_of("zyzzyva") == bundle.floor
    assert bundle.floor_of("qqqq") == Floor(dense=9.0)
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
    found = Familiar(MODEL, KnownWords(MODEL)).word_features(text, odds, common=1e9)
    documents = MODEL.encode_documents([document.texts(FIELDS) for document in CORPUS]).sparse
    for row, document in enumerate(CORPUS):
        own = set(" ".join(document.texts(FIELDS).values()).lower().split())
        assert bool(found & {*documents.row(row)[0].tolist()}) == bool(own & words)


def test_common_words_have_features_where_there_is_no_other() -> None:
    known = KnownWords(MODEL)
    familiar = Familiar(MODEL, known)
    often, rare = known.document_frequency("files"), known.document_frequency("remote")
    assert often > rare
    assert known.document_frequency("zzzz") == 0
    both = familiar.word_features("remote files", 0.0, common=rare)
    assert both == familiar.word_features("remote", 0.0, common=rare)
    assert familiar.word_features("files", 0.0, common=rare) - both
