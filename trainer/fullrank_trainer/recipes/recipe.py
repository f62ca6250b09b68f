"""Recipes: all settings of a model and its training, from a TOML file and ``--set section.key=value``.

This module checks each setting by itself. The recipe's system checks combinations of settings, see
fullrank_trainer.systems.registry.validate.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fullrank.errors import RecipeError
from fullrank_trainer.recipes.settings import (
    AutoSettings,
    BlendSettings,
    ExpansionSettings,
    HtrSettings,
    LanguageSettings,
    MemorySettings,
    MixedSettings,
    ModelSettings,
    PairSettings,
    ProjectionSettings,
    TrainSettings,
    TranslationSettings,
    check,
)


@dataclass(frozen=True)
class Recipe:
    """A named set of settings; every attribute that is a dataclass is a section.

    Attributes:
        name: of the recipe.
        about: one line for the list of recipes.
        system: which system fits it: a name of fullrank_trainer.systems.registry.SYSTEMS.
        paper: its source.
    """

    name: str
    about: str = ""
    system: str = "linear"
    paper: str = ""
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    pairs: PairSettings = field(default_factory=PairSettings)
    htr: HtrSettings = field(default_factory=HtrSettings)
    language: LanguageSettings = field(default_factory=LanguageSettings)
    projection: ProjectionSettings = field(default_factory=ProjectionSettings)
    expansion: ExpansionSettings = field(default_factory=ExpansionSettings)
    translation: TranslationSettings = field(default_factory=TranslationSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    mixed: MixedSettings = field(default_factory=MixedSettings)
    blend: BlendSettings = field(default_factory=BlendSettings)
    auto: AutoSettings = field(default_factory=AutoSettings)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form with all settings. Infinity is text, because JSON has no such number."""
        facts = asdict(self)
        for section in SECTIONS:
            for key, value in facts[section].items():
                if isinstance(value, float) and math.isinf(value):
                    facts[section][key] = str(value)
        return facts

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
        sections: dict[str, Any] = {s: getattr(self, s) for s in SECTIONS}
        for text in overrides:
            key, found, value = text.partition("=")
            if not found:
                raise RecipeError(f"override {text!r} is not of the form key=value")
            section, name = _locate(key.strip())
            parsed = _parse(SECTIONS[section], name, value.strip(), f"{section}.{name}")
            sections[section] = replace(sections[section], **{name: parsed})
        return _checked(replace(self, **sections))


SECTIONS: dict[str, Any] = {
    name: kind for name, kind in get_type_hints(Recipe).items() if is_dataclass(kind)
}


_TEXTS = {"about", "system", "paper"}


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with Fullrank."""
    folder = files("fullrank_trainer") / "recipes"
    return sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".toml"))


def load_recipe(name: str | Path) -> Recipe:
    """Load a recipe.

    Args:
        name: of a recipe that comes with Fullrank, or the path of a .toml file.

    Raises:
        RecipeError: there is no such recipe, the file cannot be read, or a setting is not allowed.
    """
    path = Path(name)
    if path.suffix == ".toml":
        try:
            text, label = path.read_text("utf-8"), path.stem
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"recipe {path} cannot be read: {error}") from error
    elif str(name) in recipe_names():
        text, label = (
            (files("fullrank_trainer") / "recipes" / f"{name}.toml").read_text("utf-8"),
            str(name),
        )
    else:
        known = ", ".join(recipe_names())
        raise RecipeError(f"no recipe {str(name)!r}; there are: {known}, or a path to a .toml file")
    return parse_recipe(label, text)


def parse_recipe(name: str, text: str) -> Recipe:
    """Parse a recipe from TOML text. Raises RecipeError."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"recipe {name}: {error}") from error
    return _of_table(name, table)


_LEFT: dict[str, dict[str, Any]] = {
    "model": {"context": "document"},
    "train": {"document_dropout": 0.0},
    "htr": {"neighbours": 10},
    "language": {
        "topic_prior": 1.1,
        "word_prior": 1.01,
        "folding": 20,
        "translation_floor": 1e-4,
        "mix_queries": 200,
    },
    "projection": {"noise": 1.0, "scale": 10.0, "optimiser": "lbfgs", "iterations": 10},
}
"""Settings that older bundles store, and the value that training has had for each since the setting left."""


def stored_recipe(facts: Mapping[str, Any]) -> Recipe:
    """Return the recipe that ``Recipe.as_dict`` wrote. Raises RecipeError if training can no longer follow it."""
    table = {key: value for key, value in facts.items() if key != "name"}
    for section, left in _LEFT.items():
        if isinstance(table.get(section), dict):
            table[section] = dict(i for i in table[section].items() if i not in left.items())
    return _of_table(str(facts["name"]), table)


def _of_table(name: str, table: Mapping[str, Any]) -> Recipe:
    unknown = set(table) - set(SECTIONS) - _TEXTS
    if unknown:
        raise RecipeError(f"recipe {name}: unknown section {sorted(unknown)[0]!r}")
    for section in table.keys() & SECTIONS.keys():
        if not isinstance(table[section], dict):
            raise RecipeError(f"recipe {name}: {section} is not a section")
    sections = {
        section: kind(**_typed(kind, table.get(section, {}), section))
        for section, kind in SECTIONS.items()
    }
    texts = {key: str(table[key]) for key in _TEXTS & table.keys()}
    return _checked(Recipe(name, **{**texts, **sections}))


def _typed(kind: Any, table: Mapping[str, Any], section: str) -> dict[str, Any]:
    values = {}
    for key, value in table.items():
        _locate(f"{section}.{key}")
        values[key] = _parse(kind, key, value, f"{section}.{key}")
    return values


def _locate(key: str) -> tuple[str, str]:
    """Return (section, name) of a setting. Raises RecipeError if the key is unknown or ambiguous."""
    section, _, name = key.rpartition(".")
    found = [
        s for s, kind in SECTIONS.items()
        if section in ("", s) and name in {f.name for f in fields(kind)}
    ]  # fmt: skip
    if len(found) != 1:
        known = ", ".join(f"{s}.{f.name}" for s, kind in SECTIONS.items() for f in fields(kind))
        problem = "unknown" if not found else f"ambiguous ({', '.join(found)})"
        raise RecipeError(f"{problem} setting {key!r}; settings are: {known}")
    return found[0], name


def _parse(kind: Any, name: str, value: Any, label: str) -> Any:
    """Convert a value from TOML or from text to the type of its setting. Raises RecipeError."""
    wanted = get_type_hints(kind)[name]
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
    raise RecipeError(f"{label}: {value!r} is not {_type_name(wanted)}")


def _type_name(kind: Any) -> str:
    """Name the type of a setting for an error message."""
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(kind) or f"a list, each item {names[get_args(kind)[0]]}"


def _split_texts(name: str, text: str) -> list[str]:
    """Split a list of texts at commas; at semicolons if it has any, or if its items have commas."""
    separator = ";" if ";" in text or name == "trials" else ","
    return text.split(separator)


def _checked(recipe: Recipe) -> Recipe:
    """Return the recipe if every setting is allowed. Raises RecipeError."""
    for section in SECTIONS:
        check(section, getattr(recipe, section))
    return recipe
