"""Average several fits of one recipe with different seeds into one model: the mean of their scores.

    f = (1/m) Σ_i f_i:      U = [U₁ | … | U_m] / √m,  V likewise,  D = (1/m) Σ_i D_i,  b = (1/m) Σ_i b_i

Fits that differ only in their seed make different errors where the training pairs are few; averaging reduces them. The
result is a model of the same family with m N dimensions, so it serves like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fullrank.encoding import Float32
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.memory import ArrayFiles

_ROWS = 1 << 13  # at once, so that the process has no table whole


def average(members: Sequence[Parameters], files: ArrayFiles) -> Parameters:
    """Return the mean model. Members must have no layers: towers cannot be averaged.

    Several members lose their tables on the way, because they are large; those of their mean are in files.
    """
    if len(members) == 1:
        return members[0]
    tied = members[0].tied
    U = _concatenate([p.U for p in members], files)
    for p in members:
        p.U = p.U[:0].copy()
    V = U if tied else _concatenate([p.V for p in members], files)
    for p in members:
        p.V = p.V[:0].copy()
    D, bias = (_mean([getattr(p, name) for p in members]) for name in ("D", "bias"))
    return Parameters(U, V, D, bias)


def _concatenate(tables: Sequence[Float32], files: ArrayFiles) -> Float32:
    rows, width = tables[0].shape
    found = files.zeros((rows, len(tables) * width))
    for first in range(0, rows, _ROWS):
        block = slice(first, first + _ROWS)
        found[block] = np.concatenate([table[block] for table in tables], axis=1)
        found[block] *= np.float32(len(tables) ** -0.5)
        files.release()
    return found


def _mean(arrays: Sequence[Float32]) -> Float32:
    return np.asarray(np.mean(arrays, axis=0, dtype=np.float64), np.float32)


def member_run(run: TrainingRun, member: int, members: int) -> TrainingRun:
    """Return the run of one member: seed + member, its own checkpoint and label, its share of the time."""
    if members == 1:
        return run
    train = replace(run.recipe.train, seconds=run.recipe.train.seconds / members)
    return replace(
        run,
        recipe=replace(run.recipe, train=train),
        seed=run.seed + member,
        warm=None if run.warm is None else replace(run.warm, member=member),
        path=run.path.with_stem(f"{run.path.stem}-{member}"),
        label=f"{run.label}{member + 1}/{members} ",
    )
