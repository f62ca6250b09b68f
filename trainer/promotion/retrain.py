"""Train candidates from the log of events, choose one, and publish it if it passes the gates.

Everything happens in a folder of its own beside the bundles until the candidate is renamed to its place, so a run that
is killed changes nothing, and the next one begins anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullrank.bundle import Bundle, open_bundle
from fullrank.bundle.catalog import publish
from fullrank.errors import FullrankError
from fullrank.events.log import EventLog
from fullrank.progress import Reporter
from trainer.clicks import Propensities, Votes, fit_propensities, join, write_collection
from trainer.clicks.export import split_votes
from trainer.clicks.weights import Rule
from trainer.collection import Collection, read_collection
from trainer.promotion.gates import Gate, passed, run_gates, weighted_mrr
from trainer.promotion.mix import add_judgements
from trainer.promotion.replay import Clicks, replay
from trainer.train import train

RULES: tuple[Rule, ...] = ("naive", "coec")
SCRATCH = ".retrain"


@dataclass(frozen=True)
class Retrained:
    """What a run did.

    Attributes:
        active: Version that the candidate was compared with.
        published: The candidate's folder, None if it did not pass the gates.
        rule: How clicks became weights of the better candidate.
        candidates: Weighted MRR of the newest clicks, by rule.
        gates: Of the better candidate.
        clicks: Votes with a click.
        counts: Of what was joined and, by reason, left out.
        propensities: Fitted.
    """

    active: str
    published: Path | None
    rule: str
    candidates: dict[str, float]
    gates: list[Gate]
    clicks: int
    counts: dict[str, int]
    propensities: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; the model card has it, too."""
        return {
            "active": self.active,
            "published": None if self.published is None else self.published.name,
            "rule": self.rule,
            "candidates": self.candidates,
            "gates": [gate.as_dict() for gate in self.gates],
            "clicks": self.clicks,
            "counts": self.counts,
            "propensities": self.propensities,
        }


def retrain(
    bundles: Path,
    active: Path,
    log: EventLog,
    *,
    judged: Path | None = None,
    recipe: str = "auto",
    seconds: float | None = None,
    seed: int = 1,
    reporter: Callable[[], Reporter] = Reporter,
) -> Retrained:
    """Train from the log; publish the better candidate if it passes the gates.

    Args:
        bundles: Folder of bundles.
        active: Folder of the version to improve.
        log: Of events.
        judged: Collection whose judgements are added to the clicks.
        recipe: Of both candidates.
        seconds: Limit of each training; by default the recipe's.
        seed: Of everything random.
        reporter: Makes a reporter for each step.

    Raises:
        FullrankError: There are no clicks to learn from, or a step fails; nothing was published.
    """
    opened = open_bundle(active)
    votes = join(log.lists(), log.events())
    propensities = fit_propensities(votes.coins)
    recent = Clicks.of(votes.take(split_votes(votes)["recent"]), propensities)
    scratch = bundles / SCRATCH / opened.name
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        corpus = _export(opened, scratch / "corpus")
        other = None if judged is None else read_collection(judged)
        trained: dict[str, Path] = {}
        for rule in RULES:
            folder = _collection(votes, propensities, corpus, scratch, rule, other, opened)
            with reporter() as report:
                trained[rule] = train(
                    folder, scratch / rule, opened.name, recipe=recipe, seed=seed, seconds=seconds,
                    exported_from=active, reporter=report,
                ).path  # fmt: skip
        candidates = {rule: open_bundle(path) for rule, path in trained.items()}
        mrr = {rule: weighted_mrr(replay(one, recent), recent) for rule, one in candidates.items()}
        best = max(mrr, key=lambda rule: (mrr[rule], rule == "coec"))
        gates = run_gates(opened, candidates[best], recent, other, seed)
        found = Retrained(
            opened.version,
            bundles / opened.name / trained[best].name if passed(gates) else None,
            best,
            mrr,
            gates,
            int(votes.clicked.sum()),
            dict(votes.counts),
            propensities.as_dict(),
        )
        if found.published is not None:
            publish(trained[best], bundles, {"clicks": found.as_dict()})
        return found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _export(bundle: Bundle, folder: Path) -> Path:
    """Write the documents of a bundle as a corpus."""
    folder.mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        store = bundle.documents
        file.writelines(store.corpus_line(row) for row in range(len(store)))
    return folder


def _collection(
    votes: Votes,
    propensities: Propensities,
    corpus: Path,
    scratch: Path,
    rule: Rule,
    judged: Collection | None,
    bundle: Bundle,
) -> Path:
    folder = scratch / f"collection-{rule}"
    write_collection(votes, propensities, corpus, folder, rule=rule)
    if judged is not None and not add_judgements(folder, judged, frozenset(bundle.documents.ids)):
        raise FullrankError(f"{judged.path}: judges no document of {bundle.version}")
    return folder
