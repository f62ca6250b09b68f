"""The plan of a training: it knows the parameters, lowers what it may, and refuses in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fullrank.errors import RecipeError, TrainingError
from fullrank_trainer import plan as planning
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import Corpus, count_collection
from fullrank_trainer.features.matrices import build_features
from fullrank_trainer.plan import make_plan, parse_size, parts_of, resident_bytes
from fullrank_trainer.recipes.recipe import load_recipe, validate
from fullrank_trainer.systems.linear.parameters import start
from tests.planted import write_planted, write_planted_links


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = write_planted(tmp_path_factory.mktemp("plan"))
    return count_collection(read_collection(folder), processes=1)


@pytest.fixture(autouse=True)
def same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the memory of this process the same in all plans of a test, so that they can be compared to the byte."""
    bytes_now = resident_bytes()
    monkeypatch.setattr(planning, "resident_bytes", lambda: bytes_now)


@pytest.mark.parametrize(
    ("text", "size"),
    [("500M", 500 << 20), ("4G", 4 << 30), (" 1.5gib ", 3 << 29), ("2TB", 2 << 40)],
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "4", "0G", "-1G", "G", "4X", "1,5G"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="write 500M or 4G"):
        parse_size(text)


@pytest.mark.parametrize("name", ["ssi", "ssi-tied", "fielded"])
def test_the_parameters_are_those_that_a_fit_starts_with(name: str, corpus: Corpus) -> None:
    recipe = load_recipe(name)
    parameters = start(build_features(corpus, recipe.model), recipe.train, np.random.default_rng(1))
    tables = {id(table): table.nbytes for table in (parameters.U, parameters.V)}
    plan = make_plan(corpus, recipe, 1)
    # Words that only queries without a judgement have are counted too.
    assert sum(tables.values()) <= plan.parameter_bytes <= 1.3 * sum(tables.values())
    assert plan.memory_bytes > resident_bytes() / 2
    assert plan.seconds > 0


def test_a_lower_limit_takes_single_fits_then_small_batches(corpus: Corpus) -> None:
    recipe = load_recipe("auto").override(
        ["blend.recipes=bm25;fielded dimension=4096 members=100 batch=256 candidates=2000"]
    )
    whole = make_plan(corpus, recipe, 1)
    assert whole.recipe == recipe
    single = make_plan(corpus, recipe, 1, limit=whole.memory_bytes - 1)
    assert single.lowered == ("one fit of each part",)
    assert [part.train.members for part in parts_of(corpus, single.recipe)] == [1, 1]
    small = make_plan(corpus, recipe, 1, limit=single.memory_bytes - 1)
    assert len(small.lowered) == 2
    assert parts_of(corpus, small.recipe)[1].train.batch == 64
    assert whole.memory_bytes > single.memory_bytes > small.memory_bytes
    validate(small.recipe)


def test_averaged_fits_stay_if_fewer_would_not_need_less(corpus: Corpus) -> None:
    """They are fitted one after another, so steps can need more than their average."""
    recipe = load_recipe("fielded").override(["dimension=4096", "members=2", "batch=512"])
    whole = make_plan(corpus, recipe, 1)
    small = make_plan(corpus, recipe, 1, limit=whole.memory_bytes - 1)
    assert small.lowered == ("a quarter of the queries and candidates of a step",)
    assert small.recipe.train.members == 2


def test_linked_documents_lower_their_own_list(tmp_path: Path) -> None:
    links = count_collection(read_collection(write_planted_links(tmp_path)), processes=1)
    recipe = load_recipe("auto").override(
        ["blend.linked=bm25;fielded members=100 dimension=4096 batch=64 candidates=500"]
    )
    plan = make_plan(links, recipe, 1, limit=make_plan(links, recipe, 1).memory_bytes - 1)
    assert plan.recipe.own.linked[1] == (
        "fielded members=100 dimension=4096 batch=64 candidates=500 members=1"
    )
    assert plan.recipe.own.recipes == recipe.own.recipes


def test_too_little_memory_is_refused_in_one_line(corpus: Corpus) -> None:
    with pytest.raises(
        TrainingError, match=r"--memory 1M: auto needs about .* for parameters"
    ) as e:
        make_plan(corpus, load_recipe("auto"), 1, limit=1 << 20)
    assert "\n" not in str(e.value)


def test_a_time_limit_leaves_time_to_write(corpus: Corpus) -> None:
    for name in ("auto", "ssi"):
        plan = make_plan(corpus, load_recipe(name), 1, seconds=60)
        limit = plan.recipe.auto.seconds
        assert limit == plan.recipe.train.seconds == plan.limit
        assert 50 < limit < 60
        assert plan.seconds <= 60
