"""Start U, V, D and b where a bundle ended.

A bundle has the tables of words with their trigrams added, and those of averaged fits side by side:

    U = [U₁ | … | U_m] / √m             u_w = U_w + Σ_g T_wg U_g

so the rows of fit i are √m times its columns, less the rows of the trigrams. Words, trigrams, phrases and documents are
found by name. Those that the bundle lacks keep their random rows; their diagonal and bias are the median, which is what
most words and all documents without a judgement have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.models.linear import DenseSide, LinearModel
from fullrank.models.linear.sides import Tower
from fullrank.storage.encoding import Float32
from fullrank.text.features import trigram_rows
from fullrank_trainer.features.composition import Composition
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.training.warm import WarmStart

EPOCHS = 2
RATE = 0.3
"""Most epochs, and the factor of the learning rate, after a warm start; chosen on validation queries."""
_ROWS = 1 << 13  # at once


def warm_recipe(recipe: Recipe, warm: WarmStart) -> Recipe:
    """Return the recipe with as many averaged fits as the bundle has, few epochs, low rates. Raises TrainingError."""
    train, model = recipe.train, warm.model
    members = 1
    if recipe.model.latent == "learned":
        width = model.document.table.shape[1] if isinstance(model, LinearModel) else 0
        members, rest = divmod(width, recipe.model.dimension)
        if not members or rest:
            raise TrainingError(
                f"{warm.version}: {recipe.name} has no U and V of {recipe.model.dimension} dimensions there"
            )
    few = replace(
        train,
        members=members,
        epochs=min(train.epochs, EPOCHS),
        rate=RATE * train.rate,
        diagonal_rate=RATE * train.diagonal_rate,
        bias_rate=RATE * train.bias_rate,
        layer_rate=RATE * train.layer_rate,
    )
    return replace(recipe, train=few)


def copy_learned(
    warm: WarmStart, features: Features, parameters: Parameters, documents: Sequence[str]
) -> dict[str, Any]:
    """Copy what the bundle learned, in place; return how many words of how many it had. Raises TrainingError."""
    old = warm.model
    if not isinstance(old, LinearModel):
        raise TrainingError(f"{warm.version}: its model has no words to go on from")
    known = total = 0
    if features.settings.latent == "learned":
        sides = [
            (parameters.V, features.document_composition, features.model.document, old.document)
        ]
        if not parameters.tied:
            sides.append(
                (parameters.U, features.query_composition, features.model.query, old.query)
            )
        for table, composition, side, stored in sides:
            known += _copy_table(warm, table, composition, side, stored)
            total += len(composition.labels)
        _copy_tower(warm, parameters.document, old.document.tower)
        _copy_tower(warm, parameters.query, old.query.tower)
    if features.settings.diagonal == "learned":
        _copy_diagonals(old, features, parameters)
    if features.settings.bias:
        parameters.bias[...] = _found(warm.bias, warm.rows(documents))
    return {"version": warm.version, "words": known, "of": total}


def _copy_table(
    warm: WarmStart, table: Float32, composition: Composition, side: DenseSide, stored: DenseSide
) -> int:
    labels, N = composition.labels, table.shape[1]
    if composition.words is not None and len(labels):
        raise TrainingError(
            f"{warm.version}: words share the rows of its tables (model.hashing), and it has only "
            "their sums; train without --from"
        )
    columns = slice(warm.member * N, (warm.member + 1) * N)
    factor = np.float32((stored.table.shape[1] / N) ** 0.5)
    letters = stored.trigram_table[:, columns] * factor if len(stored.trigrams) else None
    rows = stored.words.rows(labels)
    known = np.flatnonzero(rows >= 0)
    for first in range(0, len(known), _ROWS):
        part = known[first : first + _ROWS]
        table[part] = stored.table[rows[part], columns] * factor
        if letters is not None:
            words = [labels[i] for i in part.tolist()]
            table[part] -= np.asarray(trigram_rows(words, stored.trigrams).csr() @ letters)
    if letters is not None and len(side.trigrams):
        rows = stored.trigrams.rows(side.trigrams.words)
        found = np.flatnonzero(rows >= 0)
        table[len(labels) + found] = letters[rows[found]]
    return len(known)


def _copy_tower(warm: WarmStart, tower: Tower, stored: Tower) -> None:
    live, kept = dict(tower.arrays()), dict(stored.arrays())
    if {n: a.shape for n, a in live.items()} != {n: a.shape for n, a in kept.items()}:
        raise TrainingError(f"{warm.version} has layers of other sizes; train without --from")
    for name, array in live.items():
        array[...] = kept[name]


def _copy_diagonals(old: LinearModel, features: Features, parameters: Parameters) -> None:
    """Copy D of each field that the bundle has, and that of phrases."""
    side, stored = features.model.sparse, old.sparse
    place = {name: f for f, (name, _) in enumerate(old.settings["fields"])}
    words, rows = len(side.words), stored.words.rows(side.words.words)
    if side.words.buckets == stored.words.buckets:
        rows = np.append(rows, np.arange(len(stored.words.words), len(stored.words)))
    for f, (name, _) in enumerate(features.model.settings["fields"]):
        if name in place:
            parameters.D[f, : len(rows)] = _found(stored.D[place[name]], rows)
    if len(side.phrases) and len(stored.phrases):
        rows = stored.phrases.rows_of_whole(side.phrases.phrases)
        # P is D times an idf that is not stored; the idf of now keeps what each phrase counts.
        parameters.D[-1, words:] = _found(stored.P, rows) / features.phrase_idf


def _found(values: npt.NDArray[np.float32], rows: npt.NDArray[Any]) -> Float32:
    """Return the values of rows; their median where there is none (-1)."""
    if not len(values):
        return np.zeros(len(rows), np.float32)
    return np.where(rows >= 0, values[rows], np.float32(np.median(values))).astype(np.float32)
