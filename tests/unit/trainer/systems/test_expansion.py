"""Query expansion as a recipe: trials share the index, and unsuitable settings are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.bundle import open_bundle
from fullrank.errors import RecipeError
from fullrank.progress import Reporter
from fullrank_trainer.train import train
from tests.planted import write_planted

QUIET = Reporter(quiet=True)


def test_the_weight_and_the_number_are_chosen_on_validation(tmp_path: Path) -> None:
    """The best trial is no worse than tf-idf, which is the first trial."""
    collection = write_planted(tmp_path / "collection")
    result = train(
        collection, tmp_path / "out", "m", recipe="query-expansion", threads=1, reporter=QUIET
    )
    card = open_bundle(result.path).card
    trials = {trial["overrides"]: trial["map"] for trial in card["training"]["trials"]}
    assert len(trials) == 8
    rows = {row["system"]: row["map"] for row in card["table"]}
    assert trials["beta=0"] == rows["tfidf"]
    assert rows["query-expansion"] == max(trials.values())


@pytest.mark.parametrize("override", ["buckets=3", "latent=lsi", "loss=margin"])
def test_query_expansion_without_words_to_add_is_refused(tmp_path: Path, override: str) -> None:
    collection = write_planted(tmp_path / "collection")
    with pytest.raises(RecipeError, match="query expansion adds words"):
        train(
            collection,
            tmp_path / "out",
            "m",
            recipe="query-expansion",
            overrides=[override],
            threads=1,
            reporter=QUIET,
        )
