"""Training that goes on from a bundle: what is copied, what is not, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import TrainingError
from fullrank.models.linear import LinearModel
from fullrank.progress import Reporter
from fullrank.text.words import trigrams
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.systems.linear import warm as going_on
from fullrank_trainer.systems.linear.parameters import start
from fullrank_trainer.systems.linear.warm import copy_learned
from fullrank_trainer.train import TrainResult, train
from fullrank_trainer.training.warm import WarmStart
from tests.planted import write_planted

pytestmark = pytest.mark.usefixtures("one_thread")

QUIET = Reporter(quiet=True)
TINY = ("dimension=6", "epochs=3", "batch=32", "candidates=30", "trigrams=on")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents in another order, one of them gone, one new with new words, fewer queries."""
    folder = write_planted(tmp_path_factory.mktemp("changed"))
    lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()
    kept = [line for line in lines[::-1] if json.loads(line)["_id"] != "d3-3"]
    new = {"_id": "new", "title": "aaa zzz", "text": "decoy1 mmm zzz tell0a"}
    kept.insert(4, json.dumps(new))
    (folder / "corpus.jsonl").write_text("\n".join(kept) + "\n", "utf-8")
    qrels = (folder / "qrels" / "train.tsv").read_text("utf-8").splitlines()
    few = [line for line in qrels[1:200] if "\td3-3\t" not in line]
    (folder / "qrels" / "train.tsv").write_text("\n".join([qrels[0], *few]) + "\n", "utf-8")
    for split in ("valid", "test"):
        path = folder / "qrels" / f"{split}.tsv"
        rest = [line for line in path.read_text("utf-8").splitlines() if "\td3-3\t" not in line]
        path.write_text("\n".join(rest) + "\n", "utf-8")
    return folder


def trained(
    collection: Path, out: Path, *overrides: str, recipe: str | None = "fielded", **changes: Any
) -> TrainResult:
    return train(
        collection, out, "mine", recipe=recipe, overrides=overrides, threads=1, reporter=QUIET,
        **changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def bundle(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Three averaged fits, with trigrams, phrases and biases."""
    return open_bundle(trained(planted, tmp_path_factory.mktemp("out"), *TINY, "members=3").path)


def features_of(folder: Path, warm: WarmStart) -> tuple[Features, list[str]]:
    collection = read_collection(folder)
    corpus = count_collection(collection, processes=1)
    return build_features(corpus, warm.recipe.model), list(collection.document_ids)


@pytest.mark.parametrize("member", [0, 2])
def test_rows_of_shared_words_are_copied_whatever_their_order(
    member: int, bundle: Bundle, changed: Path
) -> None:
    """A word's row plus those of its trigrams is its row in the bundle; the twin goes word by word."""
    warm = replace(WarmStart.of(bundle), member=member)
    features, ids = features_of(changed, warm)
    parameters = start(features, warm.recipe.train, np.random.default_rng(5))
    before = parameters.copy()
    found = copy_learned(warm, features, parameters, ids)
    model = bundle.model
    assert isinstance(model, LinearModel)
    columns = slice(6 * member, 6 * member + 6)
    shared = new = 0
    for table, random, composition, side, stored in (
        (parameters.U, before.U, features.query_composition, features.model.query, model.query),
        (parameters.V, before.V, features.document_composition, features.model.document, model.document),
    ):  # fmt: skip
        letters = {g: stored.trigram_table[i, columns] for i, g in enumerate(stored.trigrams.words)}
        for i, word in enumerate(composition.labels):
            if word not in stored.words.known:
                np.testing.assert_array_equal(table[i], random[i])
                new += 1
                continue
            parts = trigrams(word)
            total = table[i] / 3**0.5
            for g in parts:
                if g in letters:
                    total = total + letters[g] / len(parts) ** 0.5
            wanted = stored.table[stored.words.row(word), columns]
            np.testing.assert_allclose(total, wanted, atol=1e-6)
            shared += 1
        for i, g in enumerate(side.trigrams.words):
            row = table[len(composition.labels) + i]
            if g in letters:
                np.testing.assert_allclose(row, letters[g] * 3**0.5, rtol=1e-6)
            else:
                np.testing.assert_array_equal(row, random[len(composition.labels) + i])
    assert (found["words"], found["of"]) == (shared, shared + new)
    assert shared > 50
    assert new >= 3
    old = {id: row for row, id in enumerate(bundle.documents.ids)}
    level = np.median(bundle.encoded.bias)
    for id, bias in zip(ids, parameters.bias.tolist(), strict=True):
        assert bias == pytest.approx(bundle.encoded.bias[old[id]] if id in old else level)
    stored_D = model.sparse.D
    words = {word: row for row, word in enumerate(model.sparse.words.words)}
    for f in range(len(stored_D)):
        for i, word in enumerate(features.model.sparse.words.words):
            wanted = stored_D[f, words[word]] if word in words else np.median(stored_D[f])
            assert parameters.D[f, i] == pytest.approx(wanted)


@pytest.mark.parametrize(
    "overrides",
    [
        ("members=3",),
        ("tied=true",),
        ("loss=margin", "rates=0.05", "bias=false"),
        ("trigrams=only",),
    ],
)
def test_a_warm_start_without_a_step_is_the_bundle(
    overrides: tuple[str, ...], planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At rates of zero the new bundle scores as the old one."""
    first = open_bundle(trained(planted, tmp_path, *TINY, *overrides).path)
    monkeypatch.setattr(going_on, "RATE", 0.0)
    still = ("rates=0",) if "loss=margin" in overrides else ()
    result = trained(planted, tmp_path, *still, recipe=None, start=first.path, seed=9)
    second = open_bundle(result.path)
    assert second.card["recipe"]["name"] == "fielded"
    assert [row.system for row in result.table] == ["fielded"]
    assert second.model.n_dense == first.model.n_dense
    for text in ("ask0a decoy1", "shared3", "name2n1", "nothing ask5c"):
        one, other = (
            {hit.id: hit.score for hit in bundle.search(text, 36)} for bundle in (first, second)
        )
        assert one.keys() == other.keys()
        np.testing.assert_allclose(
            [other[id] for id in one], list(one.values()), rtol=1e-4, atol=1e-4
        )


def test_a_warm_start_learns_from_where_the_bundle_ended(
    bundle: Bundle, planted: Path, tmp_path: Path
) -> None:
    """Its first loss is below that of the first epoch of a training that starts anew, and it takes fewer epochs."""
    found = open_bundle(trained(planted, tmp_path, start=bundle.path, recipe=None).path)
    facts = found.card["training"]
    before = bundle.card["training"]["members"]
    assert facts["warm"]["version"] == bundle.version
    for old, now in zip(before, facts["members"], strict=True):
        assert len(now["history"]) < len(old["history"])
        assert now["history"][0]["loss"] < old["history"][0]["loss"]


def test_what_cannot_go_on_is_refused(bundle: Bundle, planted: Path, tmp_path: Path) -> None:
    def refused(
        match: str, *overrides: str, recipe: str | None = None, path: Path = bundle.path
    ) -> None:
        with pytest.raises(TrainingError, match=match) as error:
            trained(planted, tmp_path, *overrides, recipe=recipe, start=path)
        assert "\n" not in str(error.value)

    refused("has 6 dimensions, not 3; leave out model.dimension", "dimension=3")
    refused("has 6 dimensions, not 256", recipe="fielded")
    refused("was trained by the recipe fielded, not clicked", "dimension=6", recipe="clicked")
    hashed = trained(planted, tmp_path, "dimension=6", "epochs=1", recipe="cfh").path
    refused(r"words share the rows of its tables \(model.hashing\)", path=hashed)


def test_a_bundle_without_a_matrix_changes_nothing(planted: Path, tmp_path: Path) -> None:
    first = trained(planted, tmp_path, recipe="bm25").path
    anew, after = (
        open_bundle(trained(planted, tmp_path / str(i), recipe="bm25", start=path).path)
        for i, path in enumerate((None, first))
    )
    assert anew.bundle_id == after.bundle_id


def test_the_recipe_of_a_card_is_read_back(bundle: Bundle) -> None:
    warm = WarmStart.of(bundle)
    assert json.loads(json.dumps(warm.recipe.as_dict())) == json.loads(
        json.dumps(bundle.card["recipe"])
    )
    assert warm.fits(warm.recipe.override(["train.seconds=3", "valid_queries=7"]))
    assert not warm.fits(warm.recipe.override(["train.rate=0.5"]))
