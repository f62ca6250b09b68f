"""MiniLM, as it comes and fine-tuned on the training pairs.

    python -m benchmarks.peers.minilm --work DIR [--collection tldr/en] [--hours 3] [--threads 2]

minilm            zero-shot: cosine of the query and the document
minilm-clicked    zero-shot, each training query is one more passage of its document; the best passage counts
minilm-tuned      fine-tuned for at most --hours of training; DIR keeps a checkpoint, and a later run goes on from it
minilm-tuned-clicked    its weights, with the training queries as passages
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.peers.command import PeerSystem, Settings, parser, run
from benchmarks.peers.data import PeerData
from benchmarks.peers.minilm_model import PACKAGES, index_documents, load_minilm, use_threads
from benchmarks.peers.minilm_training import Schedule, fine_tune
from benchmarks.peers.ranking import Trained


def fit_zero_shot(
    data: PeerData, settings: Settings, *, given: argparse.Namespace, clicked: bool = False
) -> Trained:
    """Encode the documents with the pretrained model. Settings: max_tokens."""
    stored = given.work / "-".join(["vectors-pretrained", *map(str, settings.values())])
    return index_documents(
        load_minilm(**settings), data, clicked=clicked, threads=given.threads, stored=stored
    )


def fit_tuned(
    data: PeerData, settings: Settings, *, given: argparse.Namespace, clicked: bool = False
) -> Trained:
    """Fine-tune, or go on. Settings: those of Schedule."""
    model = load_minilm()
    use_threads(given.threads)
    folder = given.work / f"tuned-{data.collection.fingerprint[:12]}"
    schedule = Schedule(hours=given.hours, **settings)
    progress = fine_tune(model, data, schedule, folder)
    stored = given.work / f"vectors-{folder.name}-{progress.steps}"
    found = index_documents(model, data, clicked=clicked, threads=given.threads, stored=stored)
    facts = {
        "train_seconds": round(progress.seconds + float(found.facts["index_seconds"]), 1),
        "converged": progress.converged,
        "steps": progress.steps,
        "epochs": round(progress.pairs / len(data.train), 2),
        "threads": given.threads,
        "validations": progress.validations,
    }
    return Trained(found.score, {**found.facts, **facts})


def options() -> argparse.ArgumentParser:
    """Return the options of this peer."""
    found = parser(__doc__)
    found.add_argument("--work", type=Path, required=True, help="folder of checkpoint and vectors")
    found.add_argument("--hours", type=float, default=3.0, help="of fine-tuning; default 3")
    found.add_argument("--threads", type=int, default=1, help="of training; default 1")
    return found


def systems(given: argparse.Namespace) -> list[PeerSystem]:
    """Return the systems of this peer."""
    return [
        PeerSystem("minilm", partial(fit_zero_shot, given=given)),
        PeerSystem(
            "minilm-clicked", partial(fit_zero_shot, given=given, clicked=True), needs_queries=True
        ),
        PeerSystem("minilm-tuned", partial(fit_tuned, given=given)),
        PeerSystem(
            "minilm-tuned-clicked",
            partial(fit_tuned, given=given, clicked=True),
            needs_queries=True,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems."""
    given = options().parse_args(arguments)
    run("benchmarks.peers.minilm", systems(given), given, PACKAGES, arguments)


if __name__ == "__main__":
    main()
