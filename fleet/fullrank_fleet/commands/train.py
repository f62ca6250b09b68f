"""``fullrank train --ray``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fullrank.progress import Reporter
from fullrank_fleet.cluster import joined
from fullrank_fleet.counting.counting import DistributedCounting
from fullrank_fleet.jobs.tasks import OnRay
from fullrank_fleet.remote import Folder, absolute
from fullrank_fleet.training.learner import Slices
from fullrank_trainer.train import TrainResult
from fullrank_trainer.train import train as train_model


def train(
    collection: Path,
    out: Path,
    name: str,
    *,
    address: str,
    slices: int,
    rounds: int | None,
    scratch: str | None,
    resume: bool,
    reporter: Reporter | None = None,
    **settings: Any,
) -> TrainResult:
    """Train a model on a collection; a cluster counts its texts, and slices take the steps.

    Args:
        collection: See ``fullrank_trainer.train.train``, as ``out``, ``name``, ``resume``, ``reporter`` and
            ``settings``. Every node must be able to read it.
        address: Of the cluster, as ``fullrank_fleet.cluster.joined`` takes it.
        slices: Their number.
        rounds: An epoch.
        scratch: Address of a folder that every node can read and write; by default one in ``out``.

    Raises:
        FullrankError: No cluster answers, or as ``fullrank_trainer.train.train``.
    """
    own = f"{out}/.slices-{name}"
    folder = Folder(absolute(f"{scratch}/{name}" if scratch else own))
    with joined(address) as ray:
        if not resume:
            folder.remove()
        runner = OnRay(ray)
        counting = DistributedCounting(folder / "counts", runner, reporter=reporter)
        found = train_model(
            collection,
            out,
            name,
            resume=resume,
            reporter=reporter,
            distribution=Slices(folder, runner, slices, rounds=rounds or 1, counting=counting),
            **settings,
        )
        folder.remove()
    return found
