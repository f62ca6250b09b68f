"""Old bundles, committed: what an earlier release wrote must open and answer as it did.

There is one of each format version under bundles/, and none is ever written again; README.md says
how they were made. A change that fails here breaks the bundles that people have.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle.catalog import Bundle, list_bundles, open_bundle, write_bundle
from fullrank.bundle.manifest import FORMAT_VERSION, READABLE
from fullrank.features import Vocabulary
from fullrank.linear import DenseSide, LinearModel, SparseSide
from fullrank.storage.documents import Document
from fullrank.text.phrases import Phrases

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
            1 + _numbers(2, n_sparse, 29) / 4,
            Phrases(PHRASES),
            np.array([1.5, 0.75], np.float32),
            "bm25",
            mean_lengths=(1.5, 4.0),
        ),
    )


def write_planted(root: Path) -> Path:
    """Write the planted bundle; a later release is held against what this wrote first."""
    model = planted_model()
    return write_bundle(
        root,
        "planted",
        model=model,
        encoded=model.encode_documents([d.texts(["title", "text"]) for d in DOCUMENTS]),
        documents=DOCUMENTS,
        golden_queries=QUERIES,
        card={"made": "tests/golden"},
        created=CREATED,
    )


def kept(format_version: int) -> Bundle:
    """The bundle kept of a format version."""
    found = [open_bundle(info.path) for info in list_bundles(HERE / "bundles")]
    (bundle,) = [b for b in found if b.manifest.format_version == format_version]
    return bundle


@pytest.fixture(scope="module", params=READABLE)
def old(request: pytest.FixtureRequest) -> Bundle:
    """Of every version that can be read."""
    return kept(request.param)


def test_the_old_bundle_passes_every_check(old: Bundle) -> None:
    assert old.name == "planted"
    assert old.manifest.created == CREATED.isoformat(timespec="microseconds")
    assert old.card == {"made": "tests/golden"}


def test_its_documents_are_those_that_were_stored(old: Bundle) -> None:
    assert [old.documents.document(row) for row in range(len(old.documents))] == DOCUMENTS


def test_its_model_is_the_planted_one(old: Bundle) -> None:
    ours, theirs = planted_model().parts(), old.model.parts()
    assert theirs.config == ours.config
    assert theirs.arrays.keys() == ours.arrays.keys()
    for name, array in ours.arrays.items():
        np.testing.assert_array_equal(theirs.arrays[name], array)
    assert {k: list(v) for k, v in theirs.strings.items()} == ours.strings


def test_its_documents_still_encode_to_what_is_stored(old: Bundle) -> None:
    encoded = old.model.encode_documents([d.texts(["title", "text"]) for d in DOCUMENTS])
    np.testing.assert_array_equal(encoded.indptr, old.encoded.indptr)
    np.testing.assert_array_equal(encoded.indices, old.encoded.indices)
    for name in ("dense", "weights", "bias"):
        stored = getattr(old.encoded, name)
        np.testing.assert_allclose(getattr(encoded, name), stored, rtol=1e-5, atol=1e-6)


def test_so_few_documents_have_no_index(old: Bundle) -> None:
    assert old.retriever.modes == ("exact",)
    assert old.manifest.index is None


def test_its_columns_say_what_the_stored_fields_say(old: Bundle) -> None:
    """Stored since version 2, before that made of the fields."""
    assert ("columns" in old.sections) == (old.manifest.format_version > 1)
    assert {name: column.present().tolist() for name, column in old.columns.by_name.items()} == {
        name: [document.fields.get(name) is not None for document in DOCUMENTS]
        for name in ("title", "text", "tags", "grams", "note")
    }


def test_its_queries_exercise_both_parts(old: Bundle) -> None:
    rankings = old.retriever.search(old.model.encode_queries(QUERIES), 5)
    ids = [[old.documents.ids[int(row)] for row in r.rows] for r in rankings]
    assert any(np.abs(r.learned).max() > 0.1 for r in rankings)
    assert ids[2][0] == "apple-pie"
    assert rankings[3].exact.max() > 0
    # Letter trigrams place a misspelt word; without a known word or trigram only the bias is left.
    assert np.abs(rankings[4].learned).max() > 0
    assert rankings[6].scores.tolist() == [0.25] * 5


def test_what_is_written_today_has_the_same_form(tmp_path: Path) -> None:
    """A new file, field or type needs a new format version, and then one more golden bundle."""
    today = write_planted(tmp_path / "bundles")
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
    sys.stdout.write(f"{write_planted(HERE / 'bundles')}\n")
