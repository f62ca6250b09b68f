"""The hash tables of a model's words in a bundle: written, mapped, shared, checked, and made where they are missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import BundleError
from fullrank.models.linear import LinearModel
from fullrank.models.mixed import MixedModel
from fullrank.storage.strings import Lexicon
from tests.bundles import CORPUS, linear_model, make_bundle
from tests.forging import array, edit

QUERIES = ["files", "markup search", "日本語 files", "unknown", ""]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A bundle of two models with the same words."""
    root = tmp_path / "bundles"
    other = linear_model(CORPUS, n_dense=4, seed=2)
    version = make_bundle(
        root, "x", n_dense=4, wrap=lambda model: MixedModel([model, other], [1.0, 0.5])
    )
    return root / "x" / version


def models(bundle: Bundle) -> list[LinearModel]:
    assert isinstance(bundle.model, MixedModel)
    found = [model for model in bundle.model.models if isinstance(model, LinearModel)]
    assert len(found) == 2
    return found


def test_equal_words_of_several_models_are_one_mapped_table(path: Path) -> None:
    first, second = models(open_bundle(path))
    tables = [first.query.words, first.document.words, first.sparse.words, second.sparse.words]
    assert len({id(vocabulary.known) for vocabulary in tables}) == 1
    assert len({id(vocabulary.known.slots) for vocabulary in tables}) == 1
    for mapped in (tables[0].known.slots, first.sparse.phrases.beginnings):
        assert isinstance(mapped.base, np.memmap)
        assert not mapped.flags.writeable


def test_stored_tables_are_those_of_the_words(path: Path) -> None:
    words = models(open_bundle(path))[0].sparse.words.known
    np.testing.assert_array_equal(words.slots, Lexicon.of(list(words)).slots)
    assert words.rows(list(words)).tolist() == [*range(len(words))]


def test_a_bundle_without_tables_answers_the_same(path: Path, tmp_path: Path) -> None:
    """As bundles of earlier releases, and of this format before it had them."""
    before = tmp_path / "before" / "x" / path.name
    shutil.copytree(path, before)
    derived = [
        f for f in before.glob("model/*") if f.name.endswith((".slots.npy", "beginnings.npy"))
    ]
    assert len(derived) == 2 * (5 + 1)  # five string tables and the phrases of each model
    for file in derived:
        file.unlink()
    names = [f"model/{file.name}" for file in derived]
    edit(before, lambda manifest: [manifest["files"].pop(name) for name in names])
    ours, theirs = open_bundle(path), open_bundle(before)
    for found, wanted in zip(
        ours.encode(QUERIES).arrays().values(),
        theirs.encode(QUERIES).arrays().values(),
        strict=True,
    ):
        assert found.tobytes() == wanted.tobytes()
    parts = theirs.model.parts()
    for name, stored in ours.model.parts().arrays.items():
        np.testing.assert_array_equal(parts.arrays[name], stored)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("0.sparse.words.slots", lambda slots: slots[::-1].copy(), "not the hash table of"),
        ("1.sparse.words.slots", lambda slots: slots[:-1], "no hash table"),
        ("0.sparse.words.slots", lambda slots: slots.astype(np.int64), "no hash table"),
        ("0.phrases.beginnings", lambda slots: np.zeros(3, np.uint64), "no hash table"),
    ],
)
def test_a_forged_table_is_refused(path: Path, name: str, change: object, message: str) -> None:
    assert callable(change)
    array(f"model/{name}.npy", change)(path)
    with pytest.raises(BundleError, match=message):
        open_bundle(path)
