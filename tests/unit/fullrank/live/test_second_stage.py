"""Live documents take part in the second stage, before and after compaction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import Bundle, open_bundle, stream_bundle
from fullrank.live import Operation, View
from fullrank.search.part import Query
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.stage import DEPTH, first_of
from fullrank.search.searchable import Hit
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded
from tests.bundles import make_bundle
from tests.reranking import SETTINGS, stage_of, walked

WORDS = ["copy", "move", "list", "files", "remote", "host", "ssh", "directory", "newword"]
QUERIES = ["copy files", "newword", "remote host ssh list"]


def random_fields(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "title": " ".join(rng.choice(WORDS, 2)),
        "text": " ".join(rng.choice(WORDS, rng.integers(1, 9))),
    }


RNG = np.random.default_rng(3)
DOCUMENTS = [Document(f"d{i:03}", random_fields(RNG)) for i in range(110)]
# Replaced, deleted and added documents, over several segments.
WRITES: list[tuple[str, dict[str, Any] | None]] = [
    *((f"d{i:03}", random_fields(RNG)) for i in range(0, 30, 3)),
    *((f"d{i:03}", None) for i in range(50, 60)),
    *((f"n{i:03}", {**random_fields(RNG), "date": "2030-01-01"}) for i in range(25)),
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root = tmp_path_factory.mktemp("bundles")
    stage, facts = stage_of(DOCUMENTS)
    clicked = DocumentFacts(
        *(facts.arrays() | {"clicks": np.arange(110, dtype=np.int32) % 7}).values()
    )
    version = make_bundle(root, "live", DOCUMENTS, n_dense=4, second_stage=(stage, clicked))
    return open_bundle(root / "live" / version)


@pytest.fixture(scope="module")
def view(bundle: Bundle) -> View:
    operations = [Operation(i, id, fields) for i, (id, fields) in enumerate(WRITES, 1)]
    view = View.of(bundle)
    for start in range(0, len(operations), 9):
        view = view.apply(operations[start : start + 9])
    return view


def expected(view: View, text: str) -> list[str]:
    """Rank all documents as the first stage does, then the first hundred by the walked trees."""
    bundle, stage = view.bundle, view.bundle.second_stage
    assert stage is not None
    assert bundle.facts is not None
    hits = view.search(view.model.encode_queries([text]), 1000).hits
    written: Mapping[str, Any] = dict(WRITES)
    pieces = []
    for hit in hits[:DEPTH]:
        if hit.id in written:
            pieces.append(DocumentFacts.of([written[hit.id]], SETTINGS))
        else:
            pieces.append(bundle.facts.take(np.array([bundle.documents.row(hit.id)])))
    columns = zip(*((h.score, h.dense, h.lexical, h.bias) for h in hits[:DEPTH]), strict=True)
    first = type(first_of(bundle.retriever.search(bundle.encode(text), 1)[0]))(
        *(np.array(column) for column in columns)
    )
    features = stage.features(text, first, DocumentFacts.concatenate(pieces))
    second = [walked(stage.trees, line)[0] for line in features]
    order = sorted(range(len(second)), key=lambda i: (-round(second[i], 9), i))
    return [hits[i].id for i in order] + [hit.id for hit in hits[DEPTH:]]


def asked(query: Encoded, text: str) -> Query:
    return Query.from_encoded(query, text=text, is_reordered=True)


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


@pytest.mark.parametrize("text", QUERIES)
def test_live_documents_are_reordered_with_the_others(view: View, text: str) -> None:
    query = view.model.encode_queries([text])
    found = view.search(asked(query, text), 1000)
    assert ids(found.hits) == expected(view, text)
    assert found.reordered == DEPTH
    assert any(hit.id.startswith("n") for hit in found.hits[:DEPTH])
    pages = [
        hit
        for offset in range(0, 130, 11)
        for hit in view.search(asked(query, text), 11, offset=offset).hits
    ]
    assert ids(pages) == ids(found.hits)


def test_without_the_text_the_first_order_stays(view: View) -> None:
    found = view.search(view.model.encode_queries(["copy files"]), 1000)
    assert found.reordered == 0
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)


def test_a_view_without_writes_answers_as_its_bundle(bundle: Bundle) -> None:
    view = View.of(bundle)
    for text in QUERIES:
        found = view.search(asked(view.model.encode_queries([text]), text), 20, offset=5)
        assert ids(found.hits) == [hit.id for hit in bundle.search(text, 20, offset=5)]


def test_a_search_without_hits_has_nothing_to_reorder(bundle: Bundle) -> None:
    view = View.of(bundle)
    nothing = [np.ones(len(bundle.documents), np.bool_)]
    query = view.model.encode_queries(["copy"])
    found = view.search(asked(query, "copy"), 10, deleted=nothing)
    assert (found.hits, found.reordered) == ([], 0)


def test_a_compacted_bundle_gives_the_same_order(view: View, tmp_path: Path) -> None:
    path = stream_bundle(
        tmp_path,
        "live",
        model=view.encoder,
        batches=view.batches(16),
        golden_queries=QUERIES,
        card={},
        second_stage=view.bundle.second_stage,
        facts=view.facts(16),
    )
    opened = open_bundle(path)
    for text in QUERIES:
        before = view.search(asked(view.model.encode_queries([text]), text), 1000)
        assert [hit.id for hit in opened.search(text, 1000)] == ids(before.hits)
