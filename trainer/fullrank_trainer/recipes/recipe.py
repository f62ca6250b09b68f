"""Recipes: all settings of a model and its training, from a TOML file and ``--set section.key=value``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fullrank.errors import RecipeError
from fullrank_trainer.recipes.settings import (
    AutoSettings,
    ModelSettings,
    TrainSettings,
    check,
    require,
)
from fullrank_trainer.recipes.systems import NoSettings, System, systems

_FOLDER = files("fullrank_trainer") / "recipes"
_TEXTS = {"about", "system", "paper"}


@dataclass(frozen=True)
class Recipe:
    """A named set of settings."""

    name: str
    about: str = ""
    system: str = "linear"
    paper: str = ""
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    auto: AutoSettings = field(default_factory=AutoSettings)
    own: Any = field(default_factory=NoSettings)

    @property
    def sections(self) -> dict[str, Any]:
        section = system_of(self).section
        own = {section: self.own} if section else {}
        return {"model": self.model, "train": self.train, **own, "auto": self.auto}

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form with all settings. Infinity is text, because JSON has no such number."""
        facts: dict[str, Any] = {"name": self.name, **{key: getattr(self, key) for key in _TEXTS}}
        for section, values in self.sections.items():
            facts[section] = {
                key: str(value) if isinstance(value, float) and math.isinf(value) else value
                for key, value in asdict(values).items()
            }
        return facts

    def with_train(self, **settings: Any) -> Recipe:
        """Return this recipe with other settings of the section ``train``, unchecked."""
        return replace(self, train=replace(self.train, **settings))

    def override(self, overrides: Sequence[str]) -> Recipe:
        """Return this recipe with some settings changed.

        Args:
            overrides: "section.key=value", or "key=value" if only one section has the key. Commas separate the items
                of a list. Semicolons do too, and must if an item itself contains a comma.

        Raises:
            RecipeError: a key is unknown or a value is not allowed.

        Example:
            >>> load_recipe("ssi").override(["dimension=50", "rates=0.03,0.05"]).train.rates
            (0.03, 0.05)
        """
        sections = self.sections
        for text in overrides:
            key, found, value = text.partition("=")
            if not found:
                raise RecipeError(f"override {text!r} is not of the form key=value")
            section, name = _locate(key.strip(), sections)
            values = sections[section]
            parsed = _parse(type(values), name, value.strip(), f"{section}.{name}")
            sections[section] = replace(values, **{name: parsed})
        return _with_sections(self, sections)


def system_of(recipe: Recipe) -> System:
    """Return the system that fits a recipe. Raises RecipeError that names the known systems."""
    try:
        return systems()[recipe.system]
    except KeyError:
        raise RecipeError(
            f"recipe {recipe.name}: no system {recipe.system!r}; there are: {', '.join(systems())}"
        ) from None


def learns(recipe: Recipe) -> bool:
    """Return whether a recipe learns in epochs, so that a time limit holds."""
    return system_of(recipe).learns(recipe)


def validate(recipe: Recipe) -> None:
    """Check that the settings of a recipe, and of every trial of its search, go together. Raises RecipeError."""
    system, model, train = system_of(recipe), recipe.model, recipe.train
    require(
        not (model.tied and model.vocabularies == "two"),
        "model.tied: one table cannot have two vocabularies",
    )
    require(
        train.loss != "margin" or bool(train.rates),
        "train.rates: the margin loss needs at least one rate",
    )
    require(
        not train.vectors or system.parts is not None or system.takes_vectors(recipe),
        "train.vectors needs a linear recipe with model.latent = learned and words: "
        "model.trigrams = only has none",
    )
    require(
        not train.vectors or Path(train.vectors).is_file(),
        f"train.vectors: there is no file {train.vectors}",
    )
    require(
        (model.hashing == "none" and model.bigrams == 0) or system.hashes_words(recipe),
        "model.hashing and model.bigrams need a linear model.latent = learned",
    )
    system.validate(recipe)
    for trial in recipe.auto.trials:
        alone = replace(recipe, auto=replace(recipe.auto, trials=()))
        validate(alone.override(trial.split(",")))


def recipe_names() -> list[str]:
    return sorted(item.name[:-5] for item in _FOLDER.iterdir() if item.name.endswith(".toml"))


def load_recipe(name: str | Path) -> Recipe:
    """Load a recipe that comes with Fullrank, or a .toml file. Raises RecipeError."""
    path = Path(name)
    if path.suffix != ".toml":
        return _packaged(str(name))
    try:
        return parse_recipe(path.stem, path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe {path} cannot be read: {error}") from error


@cache
def _packaged(name: str) -> Recipe:
    if name not in (known := recipe_names()):
        raise RecipeError(
            f"no recipe {name!r}; there are: {', '.join(known)}, or a path to a .toml file"
        )
    return parse_recipe(name, (_FOLDER / f"{name}.toml").read_text("utf-8"))


def parse_recipe(name: str, text: str) -> Recipe:
    """Parse a recipe from TOML text. Raises RecipeError."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"recipe {name}: {error}") from error
    return _from_table(name, table)


_LEFT: dict[str, dict[str, Any]] = {
    "model": {"context": "document"},
    "train": {"document_dropout": 0.0, "hardest_of": 1},
    "htr": {"neighbours": 10},
    "memory": {"kappa": 3.0},
    "language": {
        "topic_prior": 1.1,
        "word_prior": 1.01,
        "folding": 20,
        "translation_floor": 1e-4,
        "mix_queries": 200,
    },
    "projection": {
        "noise": 1.0,
        "scale": 10.0,
        "optimiser": "lbfgs",
        "iterations": 10,
        "others": 4,
    },
    "translation": {"iterations": 5},
}
"""Settings that older bundles store, and the value that training has had for each since the setting left."""


def stored_recipe(facts: Mapping[str, Any]) -> Recipe:
    """Return the recipe that ``Recipe.as_dict`` wrote. Raises RecipeError if training can no longer follow it.

    Bundles of 0.1 have the sections of all systems; those of other systems are left out.
    """
    own = systems().get(facts.get("system", ""))
    left = {"name", *(system.section for system in systems().values())} - {own and own.section}
    table = {key: value for key, value in facts.items() if key not in left}
    for section, gone in _LEFT.items():
        if isinstance(table.get(section), dict):
            table[section] = dict(i for i in table[section].items() if i not in gone.items())
    return _from_table(str(facts["name"]), table)


def _from_table(name: str, table: Mapping[str, Any]) -> Recipe:
    texts: dict[str, Any] = {key: str(table[key]) for key in _TEXTS & table.keys()}
    recipe = Recipe(name, **texts)
    recipe = replace(recipe, own=system_of(recipe).settings())
    sections = recipe.sections
    if unknown := set(table) - set(sections) - _TEXTS:
        raise RecipeError(f"recipe {name}: unknown section {sorted(unknown)[0]!r}")
    for section in table.keys() & sections.keys():
        if not isinstance(table[section], dict):
            raise RecipeError(f"recipe {name}: {section} is not a section")
        kind, values = type(sections[section]), {}
        for key, value in table[section].items():
            label = f"{section}.{key}"
            _locate(label, sections)
            values[key] = _parse(kind, key, value, label)
        sections[section] = kind(**values)
    return _with_sections(recipe, sections)


def _with_sections(recipe: Recipe, sections: Mapping[str, Any]) -> Recipe:
    for section, values in sections.items():
        check(section, values)
    shared = {key: sections[key] for key in ("model", "train", "auto")}
    own = sections.get(system_of(recipe).section, recipe.own)
    return replace(recipe, **shared, own=own)


def _locate(key: str, sections: Mapping[str, Any]) -> tuple[str, str]:
    section, _, name = key.rpartition(".")
    names = {s: [f.name for f in fields(values)] for s, values in sections.items()}
    found = [s for s in names if section in ("", s) and name in names[s]]
    if len(found) != 1:
        known = ", ".join(f"{s}.{own}" for s in names for own in names[s])
        problem = "unknown" if not found else f"ambiguous ({', '.join(found)})"
        raise RecipeError(f"{problem} setting {key!r}; settings are: {known}")
    return found[0], name


_types = cache(get_type_hints)


def _parse(kind: Any, name: str, value: Any, label: str) -> Any:
    """Convert a value from TOML or from text to the type of its setting. Raises RecipeError."""
    wanted = _types(kind)[name]
    try:
        if wanted is bool:
            return value if isinstance(value, bool) else {"true": True, "false": False}[value]
        if wanted is int and not isinstance(value, bool | float):
            return int(value)
        if wanted is float and not isinstance(value, bool):
            return float(value)
        if wanted is str and isinstance(value, str):
            return value
        if wanted in (tuple[float, ...], tuple[int, ...]):
            parts = filter(None, value.split(",")) if isinstance(value, str) else value
            return tuple(map(get_args(wanted)[0], parts))
        if wanted == tuple[str, ...]:
            parts = _split_texts(name, value) if isinstance(value, str) else map(str, value)
            return tuple(part for part in parts if part)
    except (KeyError, TypeError, ValueError):
        pass
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    what = names.get(wanted) or f"a list, each item {names[get_args(wanted)[0]]}"
    raise RecipeError(f"{label}: {value!r} is not {what}")


def _split_texts(name: str, text: str) -> list[str]:
    """Split a list of texts at commas; at semicolons if it has any, or if its items have commas."""
    return text.split(";" if ";" in text or name == "trials" else ",")
