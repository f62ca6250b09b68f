"""Several models of one recipe, fitted from different seeds, as one: the mean of their scores.

    f = (1/m) Σ_i f_i:      U = [U₁ | … | U_m] / √m,  V likewise,  D = (1/m) Σ_i D_i,  b = (1/m) Σ_i b_i

Two fits that differ in their seed alone rank differently where the pairs say little, and each is wrong there in its own
way; the mean is wrong less. It is a model of the same family with m N dimensions, so it serves like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fullrank.encoding import Float32
from trainer.systems.linear.parameters import Parameters
from trainer.training.loop import Run


def averaged(members: Sequence[Parameters]) -> Parameters:
    """The mean model. One member is itself; members have no layers, which would not add up."""
    if len(members) == 1:
        return members[0]
    U = _beside([p.U for p in members])
    V = U if members[0].tied else _beside([p.V for p in members])
    D, bias = (_mean([getattr(p, name) for p in members]) for name in ("D", "bias"))
    return Parameters(U, V, D, bias)


def _beside(tables: Sequence[Float32]) -> Float32:
    return np.concatenate(tables, axis=1) * np.float32(len(tables) ** -0.5)


def _mean(arrays: Sequence[Float32]) -> Float32:
    return np.asarray(np.mean(arrays, axis=0, dtype=np.float64), np.float32)


def run_of(run: Run, member: int, members: int) -> Run:
    """The fit of one member: seed + member, a checkpoint and a label of its own, its share of the time."""
    if members == 1:
        return run
    train = replace(run.recipe.train, seconds=run.recipe.train.seconds / members)
    return replace(
        run,
        recipe=replace(run.recipe, train=train),
        seed=run.seed + member,
        path=run.path.with_stem(f"{run.path.stem}-{member}"),
        label=f"{run.label}{member + 1}/{members} ",
    )
