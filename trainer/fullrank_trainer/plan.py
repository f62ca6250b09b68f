"""Estimate how long a training takes and how much memory it needs, and fit it into what the user allows.

Memory is what the process has after counting, vocabularies, and the largest of three phases: the fit of a part (one
copy of U and V, the matrices that it reads, and the scratch of a step or of a validation), the choice of weights (the
scores of all parts), and the average of several fits (a table of all of them, and the documents that it encodes). All
else is in files whose pages are not in the process (fullrank_trainer.training.memory). A limit lowers the number of
averaged fits first; then queries and candidates of a step. docs/results/speed.md#training compares estimates with
measurements.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fullrank.errors import RecipeError, TrainingError
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.recipes.recipe import Recipe, learns, system_of
from fullrank_trainer.recipes.systems import Cost
from fullrank_trainer.systems.linear.parameters import BLOCK
from fullrank_trainer.systems.mixed import load_part

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_FLOPS = 1.2e10  # of one core in the kernels and in matrix products
_COUNTED_PER_S = 150_000  # entries of the counts that one core turns into the matrices of a part
_WRITTEN_PER_S = 10_000  # documents of a bundle
_SCRATCH = 64 << 20
_PER_WORD = 400  # bytes of a word in the vocabularies of a fit
_ENTRY = 8  # bytes of an index and a value
_LEAST_BATCH, _LEAST_CANDIDATES = 64, 500


@dataclass(frozen=True)
class Plan:
    """What a training takes.

    Attributes:
        recipe: that fits into the memory.
        seconds: from now on, until the bundle is written.
        memory_bytes: the most resident memory of the process.
        parameter_bytes: of the largest part, all averaged fits; not all of them are in memory at once.
        limit: time for all fits together, seconds; 0: no limit.
        lowered: what was lowered to fit.
    """

    recipe: Recipe
    seconds: float
    memory_bytes: int
    parameter_bytes: int
    limit: float
    lowered: tuple[str, ...] = ()


def parse_size(text: str) -> int:
    """Return the bytes of a size such as 500M or 4G. Raises RecipeError."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*([KMGT])(?:i?B)?", text.strip(), re.I)
    size = 0 if found is None else int(float(found[1]) * _UNITS[found[2].upper()])
    if not size:
        raise RecipeError(f"--memory {text!r} is no size; write 500M or 4G")
    return size


def make_plan(
    corpus: Corpus,
    recipe: Recipe,
    threads: int,
    seconds: float | None = None,
    limit: int | None = None,
) -> Plan:
    """Estimate a training, and lower what it holds at once until it fits.

    Args:
        seconds: time limit from now on until the bundle is written; None: the recipe's own.
        limit: the most memory, bytes; None: any.

    Raises:
        TrainingError: the limit is too low for the smallest fit.
    """
    plan = _estimate(corpus, recipe, threads)
    if limit is not None:
        plan = _fitting(corpus, plan, threads, limit)
    if seconds is None:
        return plan
    left = max(1.0, seconds - _writing_seconds(corpus, plan.parameter_bytes))
    limited = plan.recipe.override([f"auto.seconds={left}", f"train.seconds={left}"])
    return replace(_estimate(corpus, limited, threads), lowered=plan.lowered)


def _fitting(corpus: Corpus, plan: Plan, threads: int, limit: int) -> Plan:
    for lower in (_single_fits, _small_batches):
        if plan.memory_bytes <= limit:
            return plan
        smaller, what = lower(corpus, plan.recipe)
        found = _estimate(corpus, smaller, threads)
        if found.memory_bytes < plan.memory_bytes:
            plan = replace(found, lowered=(*plan.lowered, what))
    if plan.memory_bytes > limit:
        raise TrainingError(
            f"--memory {_text(limit)}: {plan.recipe.name} needs about {_text(plan.memory_bytes)} here, "
            f"{_text(plan.parameter_bytes)} of it for parameters. Allow more, or keep fewer words "
            "(--set model.words=… of a single recipe), or train bm25"
        )
    return plan


def _writing_seconds(corpus: Corpus, parameter_bytes: int) -> float:
    return 2 + len(corpus.collection.documents) / _WRITTEN_PER_S + parameter_bytes / 2e8


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def parts_of(corpus: Corpus, recipe: Recipe) -> list[Recipe]:
    """Return the recipes that a recipe fits: the parts of a sum, or itself."""
    texts = _texts_of(corpus, recipe)[1]
    return [load_part(text, recipe) for text in texts] or [recipe]


def _texts_of(corpus: Corpus, recipe: Recipe) -> tuple[str, tuple[str, ...]]:
    parts = system_of(recipe).parts
    linked = corpus.collection.documents_are_queries
    return ("", ()) if parts is None else parts(recipe, linked)


def _estimate(corpus: Corpus, recipe: Recipe, threads: int) -> Plan:
    whole, parts = system_of(recipe).cost(corpus, recipe), parts_of(corpus, recipe)
    costs = [system_of(part).cost(corpus, part) for part in parts]
    entries = sum(len(column.indices) for column in corpus.counts.columns)
    phases = [whole.scratch]
    for part, cost in zip(parts, costs, strict=True):
        phases += [_fit_bytes(corpus, part, cost), _average_bytes(corpus, part, cost)]
    parameters = max(
        part.train.members * cost.parameters for part, cost in zip(parts, costs, strict=True)
    )
    vocabularies = _PER_WORD * len(corpus.counts.words)
    memory = resident_bytes() + vocabularies + max(phases) + _SCRATCH
    seconds = whole.fits * sum(cost.operations for cost in costs) / (_FLOPS * threads)
    seconds += len(parts) * entries / _COUNTED_PER_S
    limit = recipe.auto.seconds if whole.fits > 1 or recipe.auto.trials else recipe.train.seconds
    if limit:
        seconds = min(seconds, limit)
    seconds += _writing_seconds(corpus, parameters)
    return Plan(recipe, seconds, memory, parameters, limit)


def _fit_bytes(corpus: Corpus, part: Recipe, cost: Cost) -> int:
    """Return what one fit of a part needs: U and V, the matrices, and a step or a validation."""
    entries = sum(len(column.indices) for column in corpus.counts.columns)
    kept = part.model.latent_terms or entries
    documents = len(corpus.collection.documents)
    texts = documents + len(corpus.query_ids)
    matrices = _ENTRY * (entries + 2 * min(entries, kept * texts))
    # A validation sums up the fields of a block of documents and makes their posting lists.
    validation = 2 * _ENTRY * entries * min(documents, BLOCK) // max(1, documents)
    return cost.parameters + matrices + max(cost.scratch, validation)


def _average_bytes(corpus: Corpus, part: Recipe, cost: Cost) -> int:
    """Return what the average of several fits needs: one of its tables, and its documents twice."""
    if part.train.members == 1:
        return 0
    table = cost.parameters // (1 if part.model.tied else 2)
    documents = 4 * part.model.dimension * len(corpus.collection.documents)
    return part.train.members * (table + 2 * documents)


def _single_fits(corpus: Corpus, recipe: Recipe) -> tuple[Recipe, str]:
    parts = parts_of(corpus, recipe)
    if all(part.train.members == 1 for part in parts):
        return recipe, ""
    return _with(corpus, recipe, ["members=1"] * len(parts)), "one fit of each part"


def _small_batches(corpus: Corpus, recipe: Recipe) -> tuple[Recipe, str]:
    """Take a quarter of the queries and candidates of a step."""
    changes = []
    for part in parts_of(corpus, recipe):
        batch = max(_LEAST_BATCH, part.train.batch // 4)
        candidates = max(_LEAST_CANDIDATES, part.train.candidates // 4)
        is_softmax = part.train.loss == "softmax"
        changes.append(f"batch={batch} candidates={candidates}" if is_softmax else "")
    return _with(corpus, recipe, changes), "a quarter of the queries and candidates of a step"


def _with(corpus: Corpus, recipe: Recipe, changes: list[str]) -> Recipe:
    key, texts = _texts_of(corpus, recipe)
    if not key:
        return recipe.override(changes[0].split())
    changed = (
        f"{text} {change}".strip() if learns(load_part(text, recipe)) else text
        for text, change in zip(texts, changes, strict=True)
    )
    return recipe.override([f"{key}={';'.join(changed)}"])


def _text(size: int) -> str:
    return f"{size / _UNITS['G']:.2g}G" if size >= _UNITS["G"] else f"{size / _UNITS['M']:.0f}M"


def describe(plan: Plan) -> Iterator[tuple[str, float | str]]:
    yield "seconds", round(plan.seconds, 1)
    yield "memory_gib", round(plan.memory_bytes / _UNITS["G"], 2)
    if plan.lowered:
        yield "lowered", ", ".join(plan.lowered)
