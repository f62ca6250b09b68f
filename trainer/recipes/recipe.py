"""Recipes: every knob of a model and its training, from a TOML file and ``--set section.key=value``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fullrank.errors import RecipeError
from trainer.recipes.settings import (
    AutoSettings,
    ExpansionSettings,
    HtrSettings,
    LanguageSettings,
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
    """A named set of settings, one section of them per attribute that is a dataclass.

    about   one line of what it is
    system  how it is fitted: a name of trainer.systems.SYSTEMS
    paper   where it comes from
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
    mixed: MixedSettings = field(default_factory=MixedSettings)
    auto: AutoSettings = field(default_factory=AutoSettings)

    def as_dict(self) -> dict[str, Any]:
        """JSON form, every knob named; an infinite value, which JSON has not, as text."""
        facts = asdict(self)
        for section in SECTIONS:
            for key, value in facts[section].items():
                if isinstance(value, float) and math.isinf(value):
                    facts[section][key] = str(value)
        return facts

    def override(self, overrides: Sequence[str]) -> Recipe:
        """This recipe with ``section.key=value`` settings; a key alone finds its section.

        Raises RecipeError for unknown keys and impossible values.
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
    """The recipes that come with Fullrank."""
    folder = files("trainer") / "recipes"
    return sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".toml"))


def load_recipe(name: str | Path) -> Recipe:
    """A recipe by name, or from a TOML file. Raises RecipeError saying what there is."""
    path = Path(name)
    if path.suffix == ".toml":
        try:
            text, label = path.read_text("utf-8"), path.stem
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"recipe {path} cannot be read: {error}") from error
    elif str(name) in recipe_names():
        text, label = (files("trainer") / "recipes" / f"{name}.toml").read_text("utf-8"), str(name)
    else:
        there = ", ".join(recipe_names())
        raise RecipeError(f"no recipe {str(name)!r}; there are: {there}, or a path to a .toml file")
    return parse_recipe(label, text)


def parse_recipe(name: str, text: str) -> Recipe:
    """A recipe from TOML text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"recipe {name}: {error}") from error
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
    """A value of the setting's type, from TOML or from text."""
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
            parts = value.split(";") if isinstance(value, str) else map(str, value)
            return tuple(part for part in parts if part)
    except (KeyError, TypeError, ValueError):
        pass
    raise RecipeError(f"{label}: {value!r} is not a {getattr(wanted, '__name__', wanted)}")


def _checked(recipe: Recipe) -> Recipe:
    for section in SECTIONS:
        check(section, getattr(recipe, section))
    model, train = recipe.model, recipe.train
    if recipe.system in ("linear", "translation"):
        if model.latent == "learned" and train.loss == "none":
            raise RecipeError("model.latent = learned needs train.loss margin or softmax")
        if model.diagonal == "learned" and train.loss == "none":
            raise RecipeError("model.diagonal = learned needs train.loss margin or softmax")
        if model.latent == "none" and model.match == "none":
            raise RecipeError("a model needs model.latent or model.match")
        if train.members > 1 and (model.layers or model.cosine or train.loss == "none"):
            raise RecipeError(
                "train.members: only fits of a loss, without model.layers or model.cosine, are averaged"
            )
        if model.clicked != "off" and train.loss != "softmax":
            raise RecipeError("model.clicked needs train.loss softmax")
        if (model.layers or model.cosine) and (model.latent, train.loss) != ("learned", "softmax"):
            raise RecipeError(
                "model.layers and model.cosine need model.latent learned and train.loss softmax"
            )
        if model.skip and model.layers[-1:] != (model.dimension,):
            raise RecipeError(
                "model.skip: the last of model.layers must be as wide as model.dimension"
            )
    if model.trigrams == "only" and model.hashing != "none":
        raise RecipeError("model.hashing: with trigrams only there are no words to hash")
    hashed = model.hashing != "none" or model.bigrams > 0
    if hashed and (recipe.system, model.latent) != ("linear", "learned"):
        raise RecipeError("model.hashing and model.bigrams need a linear model.latent = learned")
    if model.bigrams and model.buckets:
        raise RecipeError("model.bigrams: 2-grams would fall into model.buckets; use one of them")
    if model.tied and model.vocabularies == "two":
        raise RecipeError("model.tied: one table cannot have two vocabularies")
    joint = train.monolingual and recipe.system == "linear"
    if joint and (train.loss, model.latent, model.tied) != ("margin", "learned", False):
        raise RecipeError(
            "train.monolingual needs train.loss = margin, model.latent = learned and a U apart from V"
        )
    if recipe.system == "mixed" and len(recipe.mixed.recipes) != 2:
        raise RecipeError("mixed.recipes: a mix is of two recipes, with a semicolon between")
    if recipe.system == "translation" and train.loss != "none" and not train.monolingual:
        raise RecipeError(
            "train.loss: behind a translation, train.monolingual is what can be learned"
        )
    if train.loss == "margin" and not train.rates:
        raise RecipeError("train.rates: the margin loss needs at least one rate")
    return recipe
