"""Committed bundles of earlier releases must open and give the same results.

There is one of each format version under bundles/, and none is ever written again; README.md says
how they were made. A change that fails here breaks the bundles that people have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import Bundle, list_bundles, open_bundle
from fullrank.bundle.manifest import FORMAT_VERSION
from fullrank.models.linear import DenseSide, LinearModel, SparseSide
from fullrank.retrieval import Floor
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.stage import SecondStage
from fullrank.storage.documents import Document
from fullrank.text.features import Vocabulary
from fullrank.text.phrases import Phrases
from tests.bundles import write_bundle

HERE = Path(__file__).resolve().parent
CREATED = datetime(2026, 11, 21, tzinfo=UTC)

WORDS = ["apple", "bake", "bread", "fruit", "loaf", "oven", "red", "りん", "んご"]
TRIGRAMS = ["#ap", "app", "ple", "le#", "#ba", "#br", "rea", "ead"]
PHRASES = ["apple pie", "sour bread"]
DOCUMENTS = [
    Document("apple", {"title": "Apple", "text": "A red fruit; the apple grows on trees."}),
    Document("apple-pie", {"title": "Apple pie", "text": "Bake apple slices.", "tags": ["sweet"]}),
    Document(
        "bread", {"title": "Sour bread", "text": "Bake the loaf in a hot oven.", "grams": 750}
    ),
    Document("empty", {"title": "", "text": "", "note": None}),
    Document("ringo", {"title": "りんご", "text": "りんごは赤い。 Red fruit."}),
]
QUERIES = ["red apple", "how to bake a loaf", "apple pie", "りんご", "appel", "unseen words", ""]


def _numbers(rows: int, columns: int, step: int) -> np.ndarray:
    """Planted float32 numbers in -1..1, the same on every machine."""
    values = np.arange(rows * columns) * step % 127 - 63
    return (values.reshape(rows, columns) / 64).astype(np.float32)


def planted_model() -> LinearModel:
    """Every part of the linear family in small: trigrams, two fields, phrases, hash buckets."""
    words, trigrams = Vocabulary(WORDS), Vocabulary(TRIGRAMS)
    idf = (1 + np.arange(len(WORDS) + 1) / 8).astype(np.float32)
    n_sparse = len(WORDS) + 2
    return LinearModel(
        {
            "fields": [["title", ["title"]], ["text", ["text"]]],
            "field_weights": [1.0, 0.5],
            "query_fields": ["title", "text"],
            "phrase_field": "title",
            "unit": False,
            "dense_scale": 1.0,
            "bias": 0.25,
        },
        DenseSide(words, idf, _numbers(9, 4, 37), trigrams, _numbers(8, 4, 41), 0),
        DenseSide(words, idf, _numbers(9, 4, 53), trigrams, _numbers(8, 4, 59), 0),
        SparseSide(
            Vocabulary(WORDS, buckets=2),
            (1 + np.arange(n_sparse) / 16).astype(np.float32),
            (1 + _numbers(2, n_sparse, 29) / 4).astype(np.float32),
            Phrases(PHRASES),
            np.array([1.5, 0.75], np.float32),
            "bm25",
            mean_lengths=(1.5, 4.0),
        ),
    )


CARD = {"made": "tests/golden"}
FLOOR = Floor(dense=-1000.0)


def write_planted(
    root: Path,
    card: Mapping[str, Any] = CARD,
    second_stage: tuple[SecondStage, DocumentFacts] | None = None,
    floor: Floor | None = None,
) -> Path:
    """Write the planted bundle; later releases are compared with the first one written, without a second stage."""
    stage, *facts = second_stage or (None,)
    model = planted_model()
    return write_bundle(
        root,
        "planted",
        model=model,
        encoded=model.encode_documents([d.texts(["title", "text"]) for d in DOCUMENTS]),
        documents=DOCUMENTS,
        golden_queries=QUERIES,
        card=card,
        created=CREATED,
        second_stage=stage,
        facts=facts,
        floor=floor,
    )


def kept(format_version: int) -> Bundle:
    """Open the committed bundle of a format version."""
    found = [open_bundle(info.path) for info in list_bundles(HERE / "bundles")]
    (bundle,) = [b for b in found if b.manifest.format_version == format_version]
    return bundle


@pytest.fixture(scope="module", params=range(1, FORMAT_VERSION + 1))
def old(request: pytest.FixtureRequest) -> Bundle:
    """The committed bundle of each readable format version."""
    return kept(request.param)


def test_the_old_bundle_passes_every_check(old: Bundle) -> None:
    assert old.name == "planted"
    # Formats 3 and 4 differ in the manifest alone, so the second version of that id is a second later.
    later = timedelta(seconds=old.manifest.format_version == 4)
    assert datetime.fromisoformat(old.manifest.created) == CREATED + later
    assert old.card == CARD


def test_the_old_bundle_has_its_stored_documents(old: Bundle) -> None:
    assert [old.documents.document(row) for row in range(len(old.documents))] == DOCUMENTS


def test_the_old_bundle_has_the_planted_model(old: Bundle) -> None:
    ours, theirs = planted_model().parts(), old.model.parts()
    assert theirs.config == ours.config
    assert theirs.arrays.keys() == ours.arrays.keys()
    for name, array in ours.arrays.items():
        np.testing.assert_array_equal(theirs.arrays[name], array)
    strings = {name: list(strings) for name, strings in ours.strings.items()}
    assert {name: list(strings) for name, strings in theirs.strings.items()} == strings


def test_old_documents_encode_to_the_stored_arrays(old: Bundle) -> None:
    encoded = old.model.encode_documents([d.texts(["title", "text"]) for d in DOCUMENTS])
    found, stored = encoded.arrays(), old.encoded.whole().arrays()
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(found[name], stored[name])
    for name in ("dense", "weights", "bias"):
        np.testing.assert_allclose(found[name], stored[name], rtol=1e-5, atol=1e-6)


def test_a_bundle_of_few_documents_has_no_index(old: Bundle) -> None:
    assert old.retriever.modes == ("exact",)
    assert old.manifest.index is None


def test_the_columns_of_the_old_bundle_equal_its_stored_fields(old: Bundle) -> None:
    """Columns are stored since version 2, and were built from the fields before."""
    assert ("columns" in old.sections) == (old.manifest.format_version > 1)
    assert {name: column.has_value().tolist() for name, column in old.columns.by_name.items()} == {
        name: [document.fields.get(name) is not None for document in DOCUMENTS]
        for name in ("title", "text", "tags", "grams", "note")
    }


def test_the_golden_queries_use_both_parts_of_the_score(old: Bundle) -> None:
    rankings = old.retriever.search(old.model.encode_queries(QUERIES), 5)
    ids = [[old.documents.ids[int(row)] for row in r.rows] for r in rankings]
    assert any(np.abs(r.dense).max() > 0.1 for r in rankings)
    assert ids[2][0] == "apple-pie"
    assert rankings[3].lexical.max() > 0
    # Letter trigrams place a misspelt word; without a known word or trigram only the bias is left.
    assert np.abs(rankings[4].dense).max() > 0
    assert rankings[6].scores.tolist() == [0.25] * 5


def test_a_bundle_written_today_has_the_same_form(tmp_path: Path) -> None:
    """A new file, field or type needs a new format version, and then one more golden bundle."""
    today = write_planted(tmp_path / "bundles", floor=FLOOR)
    ours = json.loads((today / "manifest.json").read_text())
    theirs = json.loads((kept(FORMAT_VERSION).path / "manifest.json").read_text())
    assert ours.keys() == theirs.keys()
    for field in ("format_version", "model", "columns"):
        assert ours[field] == theirs[field]
    assert ours["files"].keys() == theirs["files"].keys()
    for name, entry in theirs["files"].items():
        assert ours["files"][name].keys() == entry.keys(), name
        assert ours["files"][name].get("dtype") == entry.get("dtype"), name
        # Weights and golden scores may differ by a last digit between processors; these may not.
        if name.startswith(("model/", "columns/", "documents/ids", "documents/fields")):
            assert ours["files"][name] == entry, name


if __name__ == "__main__":
    sys.stdout.write(f"{write_planted(HERE / 'bundles', floor=FLOOR)}\n")
