"""Train candidates from the log of events, choose one, and publish it if it passes the gates.

Everything happens in a folder of its own beside the bundles until the candidate is renamed to its place, so a run that
is killed changes nothing, and the next one begins anew.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fullrank.bundle import Bundle, open_bundle
from fullrank.bundle.bundle import write_corpus
from fullrank.bundle.catalog import publish
from fullrank.errors import CollectionError, FullrankError
from fullrank.events.log import EventLog
from fullrank.events.records import normalised
from fullrank.progress import Reporter
from fullrank.storage.files import locked
from fullrank_trainer.clicks import Votes, fit_propensities, join, rank_by_text, write_collection
from fullrank_trainer.clicks.export import split_of, split_votes
from fullrank_trainer.clicks.weights import DEFAULT, Rule, has_only_clicks
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.collection.judgements import PEOPLE, WEIGHTS
from fullrank_trainer.features.corpus import relevant_pairs
from fullrank_trainer.promotion.gates import (
    Clicks,
    Gate,
    clicks_gate,
    common_gates,
    passed,
    replay,
    weighted_mrr,
    with_documents,
)
from fullrank_trainer.recipes.recipe import (
    Recipe,
    load_recipe,
    recipe_names,
    stored_recipe,
    system_of,
)
from fullrank_trainer.train import train
from fullrank_trainer.training.warm import WarmStart, trained_card


class RetrainRuns(FullrankError):
    """Another process trains a new version of the same model."""


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Lock a folder, remove what a killed run left in it, and remove it in the end. Raises RetrainRuns."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, because a lock within it would be removed with it.
    with locked(folder.with_name(f".{folder.name}.lock"), 0) as is_ours:
        if not is_ours:
            raise RetrainRuns(
                f"{folder}: another fullrank retrain of {folder.name} runs; try again when it has ended"
            )
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


RULES: tuple[Rule, ...] = ("naive", DEFAULT)
OVERRIDES = ("train.valid_queries=3000", "blend.learn_valid=true")
"""Of the recipe: a click far down counts ten times, so more queries are needed to choose well; clicks are too few to
learn only from those that do not choose."""
SCRATCH = ".retrain"


@dataclass(frozen=True)
class Retrained:
    """What a run did.

    Attributes:
        active: Version that the candidate was compared with.
        published: Folder of the new version, None if the candidate did not pass the gates. It is the candidate, trained
            once more with the clicks that judged it.
        rule: How clicks became weights of the better candidate.
        candidates: Weighted MRR of the clicks that chose between them, by rule; 0 without a choice.
        anew_clicks: Those when the weights of the active version were last left aside; `clicks` if they were now.
        until: Time of the newest vote, in seconds since 1970.
        counts: Of what was joined and, by reason, left out.
    """

    active: str
    published: Path | None
    rule: str
    candidates: Mapping[Rule, float]
    gates: list[Gate]
    clicks: int
    anew_clicks: int
    until: float
    counts: dict[str, int]
    propensities: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        name = None if self.published is None else self.published.name
        return {"published": name, **self.card_facts()}

    def card_facts(self) -> dict[str, Any]:
        """Return what the model card of the new version says."""
        facts = asdict(self)
        del facts["published"]
        return facts


def retrain(
    bundles: Path,
    active: Path,
    log: EventLog,
    *,
    judged: Path | None = None,
    recipe: str | Path | None = None,
    seconds: float | None = None,
    seed: int = 1,
    reporter: Callable[[], Reporter] = Reporter,
) -> Retrained:
    """Train from the log; publish the better candidate if it passes the gates.

    Training goes on from the weights of the active version if `goes_on` says so.

    Args:
        log: Of events. Lists of other models in it do not count.
        recipe: Of both candidates; by default that of `recipe_of`.
        seconds: Limit of each of three trainings; by default the recipe's.

    Raises:
        RetrainRuns: Another process trains the same model.
        FullrankError: There are no clicks to learn from, or a step fails; nothing was published.
    """
    opened = open_bundle(active)
    card = trained_card(opened)
    other = None if judged is None else _judgements(judged)
    votes = join(log.lists(), log.events(), opened.name)
    propensities = fit_propensities(votes.coins)
    clicks = int(votes.clicked.sum())
    wanted = for_clicks(recipe_of(card) if recipe is None else load_recipe(recipe))
    start = active if goes_on(opened, wanted, clicks) else None
    # The active version may have learned from all clicks until then.
    after = card.get("clicks", {}).get("until", -math.inf)
    is_recent = split_votes(votes, after=after)["recent"]
    # Without what was shown, all rules count clicks.
    rules = RULES[:1] if has_only_clicks(votes) else RULES
    # Half of the people choose between two candidates; the clicks of the others judge the chosen one.
    chooses = is_recent & (votes.person % 2 == 0) & (len(rules) > 1)
    choosing, recent = (
        Clicks.of(votes.take(rows), propensities) for rows in (chooses, is_recent & ~chooses)
    )
    with scratch_folder(bundles / SCRATCH / opened.name) as scratch:
        corpus = scratch / "corpus"
        corpus.mkdir(parents=True)
        with reporter() as report:
            write_corpus(opened, corpus / "corpus.jsonl", report)

        def ranked(learned: Votes) -> Votes:
            with reporter() as report:
                return rank_by_text(
                    votes, propensities, corpus, scratch, report, learned=learned, seed=seed
                )

        known = ranked(votes.take(~is_recent))

        def fit(rule: Rule, *, final: bool = False) -> Path:
            weighed = ranked(votes) if final and rule == DEFAULT else known
            place = scratch / (f"{rule}-final" if final else rule)
            folder = place.with_name(f"{place.name}-collection")
            write_collection(
                weighed, propensities, corpus, folder, rule=rule, after=after, final=final
            )
            if other is not None and not add_judgements(
                folder, other, frozenset(opened.documents.ids), final=final
            ):
                raise FullrankError(f"{other.path}: judges no document of {opened.version}")
            with reporter() as report:
                return train(
                    folder, place, opened.name, recipe=wanted, start=start, seed=seed, seconds=seconds,
                    exported_from=active, reporter=report,
                ).path  # fmt: skip

        candidates = {rule: open_bundle(fit(rule)) for rule in rules}
        mrr = {
            rule: weighted_mrr(replay(one, choosing), choosing) for rule, one in candidates.items()
        }
        best = max(mrr, key=lambda rule: (mrr[rule], rule == DEFAULT))
        gates = [
            clicks_gate(replay(opened, recent), replay(candidates[best], recent), recent, seed)
        ]
        final = fit(best, final=True) if passed(gates) else None
        if final is not None:
            # It has learned from the newest clicks, too, so only the other gates can judge it.
            gates += common_gates(opened, open_bundle(final), votes.queries, other)
        anew, until = (
            card["clicks"]["anew_clicks"] if start else clicks,
            votes.time.max(initial=0.0),
        )
        found = Retrained(
            opened.version, None, best, mrr, gates, clicks, anew, float(until), dict(votes.counts),
            propensities.as_dict(),
        )  # fmt: skip
        if final is None or not passed(gates):
            return found
        published = publish(final, bundles, {"clicks": found.card_facts()})
        return replace(found, published=published)


def _judgements(folder: Path) -> Collection:
    judged = read_collection(folder)
    if judged.queries is None or "train" not in judged.splits:
        missing = "queries.jsonl" if judged.queries is None else "qrels/train.tsv"
        raise CollectionError(
            f"{folder}: --with needs judged queries, and there is no {missing}; add it, or leave out --with"
        )
    return judged


MOST_GROWTH = 1.25
"""A log that grew by more since the weights of the parts were chosen deserves another choice."""


def recipe_of(card: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a training; auto if it learned nothing from clicks, as BM25. Raises RecipeError.

    A search among settings that the recipe began with takes place again: new clicks may choose others.
    """
    facts = card.get("recipe")
    if facts is None:
        return load_recipe("auto")
    own = stored_recipe(facts)
    if system_of(own).is_fixed(own):
        return load_recipe("auto")
    return replace(own, auto=load_recipe(own.name).auto) if own.name in recipe_names() else own


def for_clicks(recipe: Recipe) -> Recipe:
    """Return a recipe with OVERRIDES, but for sections that it lacks."""
    return recipe.override([text for text in OVERRIDES if text.split(".")[0] in recipe.sections])


def goes_on(active: Bundle, recipe: Recipe, clicks: int) -> bool:
    """Return whether the active version was retrained by the same recipe, and from nearly as many clicks."""
    known = trained_card(active).get("clicks", {}).get("anew_clicks", 0)
    if clicks > MOST_GROWTH * known:
        return False
    try:
        return WarmStart.of(active).fits(recipe)
    except FullrankError:
        return False


def add_judgements(
    folder: Path, judged: Collection, documents: frozenset[str], *, final: bool = False
) -> int:
    """Add the judgements of the split `train`, and those of `valid` if they have weights, as clicks do.

    Returns their number. Queries that people ask, too, do not train where their clicks measure: in the splits `valid`
    and `test`.

    Args:
        final: The clicks of `test` train, as for ``write_collection``.
    """
    assert judged.queries is not None
    queries, count = list(judged.queries), 0
    judged = with_documents(judged, documents)
    ids = judged.document_ids
    measuring = ("valid",) if final else ("valid", "test")
    for split in ("train", "valid") if "valid" in judged.weights else ("train",):
        pairs = relevant_pairs(judged, split)
        names = ("queries.jsonl", *(f"{kind}/{split}.tsv" for kind in ("qrels", WEIGHTS, PEOPLE)))
        with ExitStack() as stack:
            texts, qrels, weights, people = (
                stack.enter_context((folder / name).open("a", encoding="utf-8")) for name in names
            )
            for i, row in enumerate(pairs.rows.tolist()):
                query = queries[row]
                if split == "train" and split_of(normalised(query.text)) in measuring:
                    continue
                # A query may be in both splits.
                id = f"judged:{split}:{query.id}"
                texts.write(json.dumps({"_id": id, "text": query.text}) + "\n")
                places = range(int(pairs.starts[i]), int(pairs.starts[i + 1]))
                for place in places:
                    name = f"{id}\t{ids[int(pairs.entries[place])]}"
                    # The default is that of training without a file of weights.
                    weight = len(places) ** -0.5 if pairs.weights is None else pairs.weights[place]
                    qrels.write(f"{name}\t1\n")
                    weights.write(f"{name}\t{weight:.6g}\n")
                    if pairs.people is not None and pairs.people[place]:
                        people.write(f"{name}\t{pairs.people[place]:.0f}\n")
                count += len(places)
    return count
