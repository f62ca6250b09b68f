"""Recipes: all shipped ones are valid, values get the type of their setting, errors name the setting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fullrank.errors import RecipeError
from fullrank_trainer.recipes.recipe import (
    load_recipe,
    parse_recipe,
    recipe_names,
    stored_recipe,
    validate,
)


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_valid(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.about.endswith(".")
    assert len(recipe.about) <= 55  # the list fits into 80 columns
    validate(recipe)
    for overrides in recipe.auto.trials:
        assert recipe.override(overrides.split(",")).name == name
    facts = json.loads(json.dumps(recipe.as_dict(), allow_nan=False))
    assert facts["name"] == name
    assert set(facts) == {"name", "about", "system", "paper", *recipe.sections}


def test_best_is_the_default_without_a_time_limit() -> None:
    best, auto = load_recipe("best"), load_recipe("auto")
    assert best.own == auto.own
    assert best.auto.seconds == 0 < auto.auto.seconds


@pytest.mark.parametrize(
    ("override", "section", "key", "wanted"),
    [
        ("dimension=32", "model", "dimension", 32),
        ("model.dimension = 32", "model", "dimension", 32),
        ("tied=true", "model", "tied", True),
        ("tied=false", "model", "tied", False),
        ("alpha=0.25", "model", "alpha", 0.25),
        ("alpha=1", "model", "alpha", 1.0),
        ("k3=inf", "model", "k3", float("inf")),
        ("match=bm25", "model", "match", "bm25"),
        ("rates=0.1,1", "train", "rates", (0.1, 1.0)),
        ("rates=0.5", "train", "rates", (0.5,)),
        ("train.seconds=7.5", "train", "seconds", 7.5),
        ("auto.seconds=7", "auto", "seconds", 7.0),
        ("trials=alpha=0.1;alpha=0.2,k1=2", "auto", "trials", ("alpha=0.1", "alpha=0.2,k1=2")),
        ("trials=alpha=0.1,k1=2", "auto", "trials", ("alpha=0.1,k1=2",)),
        ("mixed.recipes=clicked;bm25", "mixed", "recipes", ("clicked", "bm25")),
        ("mixed.recipes=clicked,bm25 k1=2", "mixed", "recipes", ("clicked", "bm25 k1=2")),
        ("mixed.recipes=ssi rates=1,2;bm25", "mixed", "recipes", ("ssi rates=1,2", "bm25")),
    ],
)
def test_an_override_is_converted_to_the_type_of_its_setting(
    override: str, section: str, key: str, wanted: object
) -> None:
    recipe = load_recipe("cross-language-mixed" if section == "mixed" else "ssi")
    found = getattr(recipe.override([override]).sections[section], key)
    assert found == wanted
    assert type(found) is type(wanted)


def test_toml_and_overrides_give_the_same_recipe() -> None:
    text = """
        about = "x"
        [model]
        latent = "learned"
        dimension = 7
        alpha = 1
        tied = true
        [train]
        loss = "margin"
        rates = [1, 0.5]
        [auto]
        trials = ["k1=1", "k1=2"]
    """
    recipe = parse_recipe("mine", text)
    same = parse_recipe("mine", 'about = "x"').override(["match=tfidf"])
    same = same.override(
        ["loss=margin", "latent=learned", "dimension=7", "alpha=1", "tied=true", "rates=1,0.5",
         "trials=k1=1;k1=2"]
    )  # fmt: skip
    assert recipe == same
    assert isinstance(recipe.model.alpha, float)


def test_a_setting_of_another_system_is_refused() -> None:
    with pytest.raises(
        RecipeError, match=r"unknown setting 'htr\.gamma'; settings are: model\.fields"
    ):
        load_recipe("ssi").override(["htr.gamma=2"])
    with pytest.raises(RecipeError, match="unknown section 'htr'"):
        parse_recipe("mine", "[htr]\ngamma = 2")


def test_later_overrides_win_and_the_original_stays() -> None:
    recipe = load_recipe("ssi")
    assert recipe.override(["dimension=3", "dimension=4"]).model.dimension == 4
    assert recipe.model.dimension == 100


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("dimension", r"'dimension' is not of the form key=value"),
        ("dimensions=3", r"unknown setting 'dimensions'; settings are: .*model\.dimension"),
        ("train.dimension=3", r"unknown setting 'train\.dimension'"),
        ("nowhere.dimension=3", r"unknown setting 'nowhere\.dimension'"),
        ("seconds=3", r"ambiguous \(train, auto\) setting 'seconds'"),
        ("dimension=3.5", r"model\.dimension: '3\.5' is not a whole number"),
        ("dimension=many", r"model\.dimension: 'many' is not a whole number"),
        ("dimension=", r"model\.dimension: '' is not a whole number"),
        ("dimension=0", r"model\.dimension: 0 is not between 1 and 4096"),
        ("alpha=half", r"model\.alpha: 'half' is not a number"),
        ("alpha=1.5", r"model\.alpha: 1\.5 is not between 0 and 1"),
        ("alpha=nan", r"model\.alpha: nan is not between 0 and 1"),
        ("tied=yes", r"model\.tied: 'yes' is not true or false"),
        ("match=BM25", r"model\.match: 'BM25' is not one of tfidf, bm25, none"),
        ("latent=deep", r"model\.latent: 'deep' is not one of none, learned, lsi"),
        ("fields=title", r"model\.fields: 'title' is not one of each, joined"),
        ("trigrams=true", r"model\.trigrams: 'true' is not one of on, off, auto"),
        ("diagonal=0", r"model\.diagonal: '0' is not one of identity, learned"),
        ("loss=hinge", r"train\.loss: 'hinge' is not one of none, margin, softmax"),
        ("rates=0.1,fast", r"train\.rates: '0\.1,fast' is not a list"),
        ("rates=", r"train\.rates: the margin loss needs at least one rate"),
        ("layers=8", r"model\.layers and model\.cosine need .* softmax"),
        ("members=0", r"train\.members: 0 is not between"),
        ("clicked=on", r"model\.clicked needs train\.loss softmax"),
        ("layers=8,0", r"model\.layers: 0 is not between"),
        ("layers=8.5", r"model\.layers: '8\.5' is not a list"),
        ("skip=true", r"model\.skip: the last of model\.layers must be as wide"),
        ("loss=none", r"latent = learned needs train\.loss"),
        ("buckets=-1", r"model\.buckets: -1 is not between"),
        ("word_dropout=1", r"train\.word_dropout: 1\.0 is not between"),
        ("patience=0", r"train\.patience: 0 is not between"),
        ("trial=0", r"train\.trial: 0 is not between"),
        ("train.seconds=nan", r"train\.seconds: nan is not between"),
        ("k3=-1", r"model\.k3: -1\.0 is not between"),
        ("rates=0.1,-1", r"train\.rates: -1\.0 is not between"),
        ("latent=none match=none", r"needs model\.latent or model\.match"),
        ("latent=none diagonal=learned loss=none", r"diagonal = learned needs train\.loss"),
    ],
)
def test_bad_overrides_are_refused(overrides: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(load_recipe("ssi").override(overrides.split()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model", r"recipe mine: Expected"),
        ("[modle]\n", r"recipe mine: unknown section 'modle'"),
        ("model = 3", r"recipe mine: model is not a section"),
        ("[model]\ndimensions = 3", r"unknown setting 'model\.dimensions'"),
        ("[model]\ndimension = 3.5", r"model\.dimension: 3\.5 is not a whole number"),
        ("[model]\ndimension = true", r"model\.dimension: True is not a whole number"),
        ("[model]\nalpha = true", r"model\.alpha: True is not a number"),
        ("[model]\ntied = 1", r"model\.tied: 1 is not true or false"),
        ("[model]\nmatch = 3", r"model\.match: 3 is not a text"),
        ("[model]\nmatch = ['tfidf']", r"model\.match: \['tfidf'\] is not a text"),
        ("[model]\nlatent = 'learned'\n[train]\nloss = 'margin'\nrates = []", "at least one rate"),
        ("[train]\nrates = 3", r"train\.rates: 3 is not a list"),
        ("[auto]\ntrials = 3", r"auto\.trials: 3 is not a list"),
    ],
)
def test_a_recipe_file_with_a_bad_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(parse_recipe("mine", text))


def test_a_recipe_can_be_loaded_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[model]\nmatch = 'bm25'\n", "utf-8")
    recipe = load_recipe(path)
    assert (recipe.name, recipe.model.match) == ("mine", "bm25")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match=r"mine\.toml cannot be read"):
        load_recipe(path)
    with pytest.raises(RecipeError, match=r"absent\.toml cannot be read"):
        load_recipe(tmp_path / "absent.toml")


def test_an_unknown_recipe_lists_the_known_ones() -> None:
    with pytest.raises(RecipeError, match=r"no recipe 'magic'; there are: auto, .*bm25, .*\.toml"):
        load_recipe("magic")


def test_a_stored_recipe_may_have_settings_that_left() -> None:
    """At their default they change nothing; training cannot follow another value."""
    recipe = load_recipe("s2net")
    facts = recipe.as_dict()
    facts["projection"] |= {"optimiser": "lbfgs", "scale": 10.0}
    facts["model"]["context"] = "document"
    assert stored_recipe(json.loads(json.dumps(facts))) == recipe
    facts["projection"]["optimiser"] = "adagrad"
    with pytest.raises(RecipeError, match=r"unknown setting 'projection\.optimiser'"):
        stored_recipe(facts)
