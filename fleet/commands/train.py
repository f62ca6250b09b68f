"""``fullrank train --ray``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet.cluster import joined
from fleet.jobs.tasks import OnRay
from fleet.remote import Folder
from fleet.training.learner import Slices
from trainer.train import TrainResult
from trainer.train import train as train_model


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
    **settings: Any,
) -> TrainResult:
    """Train a model on a collection; slices on a cluster take the steps.

    Args:
        collection: See ``trainer.train.train``, as ``out``, ``name``, ``resume`` and ``settings``.
        address: Of the cluster, as ``fleet.cluster.joined`` takes it.
        slices: Their number.
        rounds: An epoch.
        scratch: Address of a folder that every node can read and write; by default one in ``out``.

    Raises:
        FullrankError: No cluster answers, or as ``trainer.train.train``.
    """
    folder = Folder(scratch) / name if scratch else Folder(str(out.resolve() / f".slices-{name}"))
    with joined(address) as ray:
        if not resume:
            folder.remove()
        found = train_model(
            collection,
            out,
            name,
            resume=resume,
            distribution=Slices(folder, OnRay(ray), slices, rounds=rounds or 1),
            **settings,
        )
        folder.remove()
    return found
