"""Rounds of a click loop: serve, log, join, weigh, train, try the new model on people, serve it, log again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.clicks.people import Collection, Logged, People, World, serve
from benchmarks.harness.processes import run_measured
from fullrank.bundle import open_bundle
from fullrank.events.decisions import SHARE, Tally, Verdict, follow
from fullrank.events.interleave import DEPTH
from fullrank.events.records import normalised
from fullrank.events.votes import votes_of
from fullrank.progress import Reporter
from fullrank.storage.encoding import Int64
from fullrank_trainer.clicks import (
    Propensities,
    fit_propensities,
    join,
    rank_by_text,
    write_collection,
)
from fullrank_trainer.clicks.weights import DEFAULT, Rule
from fullrank_trainer.collection import read_collection, relevant
from fullrank_trainer.evaluation.evaluate import evaluate
from fullrank_trainer.promotion.retrain import OVERRIDES

_BATCH = 512
# Sessions between two looks at the votes.
_LOOK = 3000
EXCLUDED = ("train", "valid")
Judgements = Mapping[str, Sequence[tuple[str, Mapping[str, float]]]]


@dataclass(frozen=True)
class Policy:
    """How a team runs its loop.

    Attributes:
        rule: How clicks become weights.
        explored: Share of lists that are explored, in each of the two ways.
        propensities: Known ones, None to fit them.
    """

    rule: Rule = DEFAULT
    explored: float = 0.05
    propensities: Propensities | None = None


@dataclass
class Round:
    """What one round brought.

    Attributes:
        mrr: On the test queries, of the model trained from all rounds so far.
        serving: MRR of the model that served at the end of the round.
        eta, eta_interval: Fitted.
        shown: Documents shown so far.
        clicks: Logged so far.
        right: Share of the judgements in training that are right.
        right_weight: The same by weight.
        found: Shares of the queries whose answer was shown, was clicked, and is judged in training or validation.
    """

    mrr: float
    serving: float
    eta: float
    eta_interval: tuple[float, float]
    shown: frozenset[str] = field(repr=False)
    clicks: int
    right: float
    right_weight: float
    found: tuple[float, float, float]


class Workbench:
    """A collection, the folder of the run, and what is trained there.

    Args:
        source: Collection with the splits train and test; the queries of train are searched, those of test measure.
        work: Folder for collections and bundles.
        time: Limit of each training, as `fullrank train --time` takes it; None: no limit.
        recipe: To train; None: that of `fullrank train`.
    """

    def __init__(
        self, source: Path, work: Path, time: str | None, recipe: str | None = None
    ) -> None:
        self.source, self._work, self._time, self._recipe = source, work, time, recipe
        work.mkdir(parents=True, exist_ok=True)
        self._judged = read_collection(source)
        documents = list(self._judged.document_ids)
        place = {id: row for row, id in enumerate(documents)}
        texts = {query.id: query.text for query in self._judged.queries or ()}
        qrels = self._judged.qrels("train")
        self.collection = Collection(
            [texts[query] for query in qrels],
            documents,
            [frozenset(place[id] for id in relevant(grades)) for grades in qrels.values()],
        )

    def train(self, name: str, folder: Path | None = None, recipe: str | None = None) -> Path:
        """Train on a folder, by default the true labels; return the bundle. One that exists is not trained again."""
        out = self._work / "bundles"
        found = sorted((out / name).glob("*/manifest.json"))
        if found:
            return found[-1].parent
        recipe = recipe or self._recipe
        how = [] if recipe is None else ["--recipe", recipe]
        how += (
            ["--set", "spelling=0", "--set", "title=1", "--set", "title_forms=false"]
            if recipe == "bm25"
            else []
        )
        how += [] if self._time is None else ["--time", self._time]
        if folder is not None:
            how += [word for setting in OVERRIDES for word in ("--set", setting)]
        arguments = ["train", str(folder or self.source), "--out", str(out), "--name", name]
        run = run_measured([*arguments, *how, "--json"])
        return Path(json.loads(run.out)["bundle"])

    def export(self, name: str, logged: Logged, policy: Policy) -> tuple[Path, Propensities]:
        """Write what was logged as a collection."""
        folder = self._work / "collections" / name
        votes = join(logged.lists, logged.events)
        fitted = fit_propensities(votes.coins)
        if not folder.exists():
            known = policy.propensities or fitted
            if policy.rule != "naive":
                quiet = Reporter(quiet=True)
                votes = rank_by_text(votes, known, self.source, self._work, quiet)
            write_collection(votes, known, self.source, folder, rule=policy.rule, final=True)
        return folder, fitted

    @cached_property
    def answers(self) -> dict[str, set[str]]:
        """The documents that answer each normalised query."""
        found: dict[str, set[str]] = defaultdict(set)
        for text, rows in zip(self.collection.queries, self.collection.answers, strict=True):
            found[normalised(text)].update(self.collection.documents[row] for row in rows)
        return dict(found)

    def right(self, judged: Judgements) -> tuple[float, float]:
        """Compare the judgements of an export that train with the true labels.

        Args:
            judged: Of the export.

        Returns:
            The share that is right, and the same by weight.
        """
        pairs = [
            (id in self.answers[text], weight)
            for text, weights in judged["train"]
            for id, weight in weights.items()
        ]
        is_right, weight = np.array(pairs, np.float64).T
        return float(is_right.mean()), float(np.average(is_right, weights=weight))

    def found(self, logged: Logged, judged: Judgements) -> tuple[float, float, float]:
        """Return the shares of the queries whose answer was shown, was clicked, and is judged in an export."""
        texts = {served.query_id: normalised(served.text) for served in logged.lists}
        shown = {
            text
            for served in logged.lists
            if not self.answers[text := texts[served.query_id]].isdisjoint(served.ids)
        }
        clicked = {
            text
            for event in logged.events
            if event.object_id in self.answers[text := texts[event.texts["query_id"]]]
        }
        taught = {
            text
            for split in ("train", "valid")
            for text, weights in judged.get(split, ())
            if not self.answers[text].isdisjoint(weights)
        }
        shares = [len(queries) / len(self.answers) for queries in (shown, clicked, taught)]
        return shares[0], shares[1], shares[2]

    def mrr(self, bundle: Path) -> float:
        """Return the MRR of a bundle on the test queries."""
        found = self._work / "mrr.jsonl"
        known = {}
        if found.is_file():
            known = dict(json.loads(line) for line in found.read_text().splitlines())
        if str(bundle) not in known:
            result = evaluate(open_bundle(bundle), self._judged, "test", EXCLUDED)
            known[str(bundle)] = result.measures["mrr"].mean
            with found.open("a") as file:
                file.write(json.dumps([str(bundle), known[str(bundle)]]) + "\n")
        return float(known[str(bundle)])

    def rankings(self, bundle: Path) -> Int64:
        """Return the best documents of every query, int64 (queries, DEPTH), −1 where there are fewer."""
        kept = self._work / "rankings" / f"{bundle.name}.npy"
        if kept.is_file():
            return np.asarray(np.load(kept), np.int64)
        opened = open_bundle(bundle)
        place = {id: row for row, id in enumerate(self.collection.documents)}
        row_of = np.array([place[id] for id in opened.documents.ids], np.int64)
        queries = self.collection.queries
        found = np.full((len(queries), DEPTH), -1, np.int64)

        def rank(start: int) -> None:
            encoded = opened.encode(queries[start : start + _BATCH])
            for i, ranking in enumerate(opened.retriever.search(encoded, DEPTH)):
                found[start + i, : len(ranking.rows)] = row_of[ranking.rows]

        with ThreadPoolExecutor() as pool:
            list(pool.map(rank, range(0, len(queries), _BATCH)))
        kept.parent.mkdir(exist_ok=True)
        np.save(kept, found)
        return found


def read_judgements(folder: Path) -> Judgements:
    """Read an export: by split, the text of each query that is judged, and the weights of its relevant documents."""
    exported = read_collection(folder)
    texts = {query.id: query.text for query in exported.queries or ()}
    return {
        split: [
            (texts[query], {id: exported.weights[split][query][id] for id in relevant(grades)})
            for query, grades in exported.qrels(split).items()
        ]
        for split in exported.splits
    }


def run_rounds(
    bench: Workbench,
    name: str,
    world: World,
    policy: Policy,
    *,
    rounds: int,
    sessions: int,
    users: int,
    seed: int,
) -> list[Round]:
    """Run a loop that begins with BM25.

    After each round a model is trained from all that was logged. In the next one it is interleaved with the model that
    serves, on a share of the lists, until the votes promote it or stop it. Where they never decide, the old one stays.
    """
    serving = bench.train("bm25", recipe="bm25")
    active = bench.rankings(serving)
    logged, found = Logged([], []), []
    candidate: Path | None = None
    other = active
    for number in range(rounds):
        people = People.draw(number, sessions, users, len(active), seed)
        tried = Logged([], [])  # since the candidate was trained
        for start in range(0, sessions, _LOOK):
            part = serve(
                bench.collection,
                people,
                range(start, min(sessions, start + _LOOK)),
                active,
                world,
                explored=policy.explored,
                seed=seed,
                model=serving.name,
                candidate=None if candidate is None else (candidate.name, other, SHARE),
            )
            logged.add(part)
            if candidate is not None:
                tried.add(part)
                verdict = _verdict(tried, serving.name, candidate.name)
                if verdict is Verdict.PROMOTE:
                    serving, active = candidate, other
                if verdict is not Verdict.OPEN:
                    candidate = None
        folder, fitted = bench.export(f"{name}-{number}", logged, policy)
        candidate = bench.train(f"{name}-{number}", folder)
        if number + 1 < rounds:
            other = bench.rankings(candidate)
        shown = frozenset(id for served in logged.lists for id in served.ids)
        clicks = len(logged.events)
        mrr = bench.mrr(candidate), bench.mrr(serving)
        judged = read_judgements(folder)
        right, answers = bench.right(judged), bench.found(logged, judged)
        found.append(Round(*mrr, fitted.eta, fitted.interval, shown, clicks, *right, answers))
    return found


def _verdict(logged: Logged, active: str, candidate: str) -> Verdict:
    """Look at the votes in their order, as the product does, and stop at the first decision."""
    votes = votes_of(logged.lists, logged.events, active, candidate, 0)
    return [Tally(), *follow(vote.wins for vote in votes)][-1].verdict
