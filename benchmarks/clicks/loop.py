"""What a ranking learns from its own clicks: simulated people, real training, several worlds.

    python -m benchmarks.clicks.loop [--json] [--worlds eta=1,trust] [--seeds 1,2,3,4,5]
        [--policies weighted,naive] [--parts rounds,experiments] [--work DIR] [--recipe word-translation]
        [--plot FILE]

People search the training queries of tldr/en, about which the log begins with nothing; BM25 serves first. After each
round of SESSIONS searches a model is trained from all clicks so far (`fullrank train --time`), tried on people by
interleaving, and serves the next round if they vote for it. The test queries are never searched; MRR is theirs.
benchmarks.clicks has the worlds, the people and the rounds. Each world has these policies:

    weighted     what the product does: the rule `mixture`, with η fitted from the coins
    naive        the same loop, clicks counted
    known        as weighted, with the true propensities
    unexplored   as weighted, without exploration; η cannot be fitted

gap_closed         (MRR of `weighted` after the last round − BM25) / (trained on the true labels − BM25), for η = 1;
                   naive_gap_closed the same for `naive`, clean_gap_closed for clicks without noise and bias
eta_interval       95 % interval of η after the last round, in the world η = 1 (each world that has one: `eta`)
right              of the judgements that train after each round, the share that is right; right_weight: by weight
found              after each round, the shares of the queries whose answer was shown, was clicked, and is judged
coverage           documents shown in the rounds, as a share of those on the first pages of the true-label model
promoted_equal     share of experiments between equally good rankings that end in a promotion; promoted_worse those in
                   which the candidate's MRR is .03 lower, promoted_better .05 higher, within 20,000 sessions

With --work, what is there is not trained again. --recipe: what a recipe without a time limit learns does not depend
on how busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.clicks.people import (
    PLACES,
    WORLDS,
    World,
    mixed,
    reciprocal_ranks,
    run_experiment,
)
from benchmarks.clicks.rounds import Policy, Round, Workbench, run_rounds
from benchmarks.harness.plots import Curve, curves
from benchmarks.harness.report import data_folder, machine, numbers, show
from fullrank.events.decisions import Verdict
from fullrank_trainer.clicks import Propensities

USERS, SESSIONS, ROUNDS = 2_000, 60_000, 4
TIME = "30s"
PARTS = ("rounds", "experiments")
POLICIES = ("weighted", "naive", "known", "unexplored")
_BASE = "eta=1"
# name: difference of MRR, runs
_EXPERIMENTS = {"equal": (0.0, 400), "worse": (-0.03, 200), "better": (0.05, 200)}
_EXPERIMENT_SESSIONS = 20_000


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        worlds: Names; `clean` is added for clean_gap_closed.
        policies: Names.
        seeds: Of the rounds.
        sessions: Searches of a round.
    """

    worlds: Sequence[str]
    policies: Sequence[str]
    seeds: Sequence[int]
    sessions: int = SESSIONS


def policy_of(name: str, world: World) -> Policy | None:
    """Return a policy; None where it makes no sense: a cascade has no propensities."""
    if name == "known":
        if world.cascade:
            return None
        ratios = np.log(world.examined[:-1] / world.examined[1:])
        return Policy(propensities=Propensities(world.eta or 1.0, (0.0, 0.0), 0, ratios))
    return {
        "weighted": Policy(),
        "naive": Policy(rule="naive"),
        "unexplored": Policy(explored=0.0),
    }[name]


def measure_rounds(bench: Workbench, plan: Plan) -> dict[str, Any]:
    """Run the rounds of every world, policy and seed."""
    ends = {
        "bm25": bench.mrr(bench.train("bm25", recipe="bm25")),
        "labels": bench.mrr(bench.train("labels")),
    }
    first_pages = bench.rankings(bench.train("labels"))[:, :PLACES]
    wanted = {bench.collection.documents[row] for row in np.unique(first_pages[first_pages >= 0])}
    found: dict[str, Any] = {}
    for world_name in dict.fromkeys([*plan.worlds, "clean"]):
        world = WORLDS[world_name]()
        found[world_name] = {}
        for name in plan.policies if world_name != "clean" else ["weighted"]:
            policy = policy_of(name, world)
            if policy is not None:
                label = f"{world_name}-{name}"
                runs = [_rounds(bench, plan, label, world, policy, seed) for seed in plan.seeds]
                summary = found[world_name][name] = _summary(runs, ends, wanted, world)
                # A run takes hours; what is finished can be read before its end.
                done = {"world": world_name, "policy": name, **summary}
                print(json.dumps(done), file=sys.stderr, flush=True)
    return {"ends": ends, "worlds": found}


def _rounds(
    bench: Workbench, plan: Plan, name: str, world: World, policy: Policy, seed: int
) -> list[Round]:
    label = f"{name}-{seed}".replace("=", "")
    return run_rounds(
        bench, label, world, policy, rounds=ROUNDS, sessions=plan.sessions, users=USERS, seed=seed
    )


def _summary(
    runs: Sequence[Sequence[Round]],
    ends: Mapping[str, float],
    wanted: set[str],
    world: World,
) -> dict[str, Any]:
    last = [run[-1] for run in runs]
    closed = [(r.mrr - ends["bm25"]) / (ends["labels"] - ends["bm25"]) for r in last]
    summary = {
        "gap_closed": fmean(closed),
        "gap_closed_error": _error(closed),
        "mrr": _by_round(runs, "mrr"),
        "mrr_serving": _by_round(runs, "serving"),
        "right": _by_round(runs, "right"),
        "right_weight": _by_round(runs, "right_weight"),
        "found": [
            [fmean(of.found[i] for of in number) for i in range(3)]
            for number in zip(*runs, strict=True)
        ],
        "coverage": fmean(len(r.shown & wanted) / len(wanted) for r in last),
        "clicks": round(fmean(r.clicks for r in last)),
    }
    if world.eta is not None:
        summary["eta"] = fmean(r.eta for r in last)
        summary["eta_interval"] = [fmean(r.eta_interval[i] for r in last) for i in (0, 1)]
    return summary


def _by_round(runs: Sequence[Sequence[Round]], name: str) -> list[float]:
    """Return the mean of a figure after each round."""
    return [fmean(getattr(of, name) for of in number) for number in zip(*runs, strict=True)]


def _error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean; None of a single value."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None


def measure_experiments(bench: Workbench) -> dict[str, Any]:
    """Run experiments between rankings of a known difference, in the world η = 1."""
    better = bench.rankings(bench.train("labels"))
    worse = bench.rankings(bench.train("bm25", recipe="bm25"))
    answers = bench.collection.answers
    gaps = reciprocal_ranks(answers, better) - reciprocal_ranks(answers, worse)
    world = WORLDS[_BASE]()
    found: dict[str, Any] = {}
    for name, (difference, runs) in _EXPERIMENTS.items():
        outcomes = []
        for seed in range(runs):
            sides = mixed(better, worse, difference, gaps, np.random.default_rng([7, seed]))
            outcomes.append(
                run_experiment(
                    bench.collection, *sides, world, sessions=_EXPERIMENT_SESSIONS, users=USERS,
                    seed=seed,
                )
            )  # fmt: skip
        found[f"promoted_{name}"] = fmean(o.verdict is Verdict.PROMOTE for o in outcomes)
        found[f"votes_{name}"] = fmean(o.votes for o in outcomes)
        found[f"runs_{name}"] = runs
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parser().parse_args(arguments)
    time = given.time or (TIME if given.recipe is None else None)
    parts = given.parts.split(",") if given.parts else PARTS
    worlds = given.worlds.split(",") if given.worlds else list(WORLDS)[:-1]
    plan = Plan(worlds, given.policies.split(","), given.seeds, given.sessions)
    with tempfile.TemporaryDirectory(prefix="fullrank-loop-") as scratch:
        work = (given.work or Path(scratch)).resolve()
        source = data_folder() / "tldr" / "en"
        bench = Workbench(source, work, time, given.recipe)
        result: dict[str, Any] = {
            "benchmark": "loop",
            "machine": machine(["fullrank", "numpy", "numba"]),
            "seeds": list(plan.seeds),
            "time": time,
            "recipe": given.recipe,
        }
        if "rounds" in parts:
            rounds = measure_rounds(bench, plan)
            result |= rounds | _headline(rounds["worlds"])
            if given.plot is not None:
                plot(given.plot, rounds)
        if "experiments" in parts:
            result |= measure_experiments(bench)
    show(result, given.json)


def _headline(worlds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the world η = 1."""
    base = worlds.get(_BASE, {})
    found = {"clean_gap_closed": worlds["clean"]["weighted"]["gap_closed"]}
    if "weighted" in base:
        found |= {
            name: base["weighted"][name] for name in ("gap_closed", "eta_interval", "coverage")
        }
    if "naive" in base:
        found["naive_gap_closed"] = base["naive"]["gap_closed"]
    return found


def plot(path: Path, rounds: Mapping[str, Any]) -> Path:
    """Draw MRR by round: a panel a world, a line a policy."""
    ends = rounds["ends"]
    panels: dict[str, dict[str, Curve]] = {}
    for world, policies in rounds["worlds"].items():
        panels[world] = {
            name: (range(len(policy["mrr"]) + 1), [ends["bm25"], *policy["mrr"]])
            for name, policy in policies.items()
        }
        last = max(len(policy["mrr"]) for policy in policies.values())
        panels[world]["true labels"] = ([0, last], [ends["labels"]] * 2)
    return curves(path, panels, x="round", y="MRR, test queries")


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found.add_argument("--json", action="store_true", help="one line of JSON")
    found.add_argument("--sessions", type=int, default=SESSIONS, help="searches of a round")
    found.add_argument("--worlds", help=f"comma-separated: {', '.join(WORLDS)}; default all")
    found.add_argument("--policies", default=",".join(POLICIES), help="comma-separated")
    found.add_argument("--parts", help=f"comma-separated: {', '.join(PARTS)}; default all")
    found.add_argument("--seeds", type=numbers, default=[1, 2, 3, 4, 5], help="comma-separated")
    found.add_argument(
        "--time",
        help=f"of each training; default {TIME}, with --recipe no limit",
    )
    found.add_argument("--recipe", help="default auto")
    found.add_argument("--work", type=Path, help="folder that keeps what is trained")
    found.add_argument("--plot", type=Path, help="SVG file of MRR by round")
    return found


if __name__ == "__main__":
    main()
