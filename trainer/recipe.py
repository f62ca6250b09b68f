"""Recipes: every knob of a model and its training, from a TOML file and ``--set section.key=value``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any, get_type_hints

from fullrank.errors import RecipeError


@dataclass(frozen=True)
class ModelSettings:
    """What the model is: f(q, d) = (Uq)·(Vd) + Σ_f q·D_f·d_f + b_d, or part of it."""

    fields: str = "each"  # "each" text field has its own diagonal; "joined" makes them one
    words: int = 0  # keep so many of the most frequent words (the papers' 30,000); 0 keeps all
    min_df: int = 1  # leave out words that stand in fewer texts
    buckets: int = 0  # rows that unseen words are hashed into, in the exact-match part
    latent: str = "none"  # "none", "learned" (U, V) or "lsi" (singular vectors of tf-idf)
    dimension: int = 256  # N
    tied: bool = False  # UᵀU instead of UᵀV
    latent_words: int = 0  # (UᵀV)ₙ: only the n most frequent words have a latent vector; 0: all
    trigrams: str = "off"  # letter trigrams in the latent part: "on", "off", "auto" (short queries)
    latent_terms: int = 0  # strongest words per text in the latent part; 0 keeps all
    match: str = "tfidf"  # weights of the exact-match part: "tfidf", "bm25" or "none"
    match_terms: int = 0  # strongest words of a query in the exact-match part; 0 keeps all
    diagonal: str = "identity"  # D: "identity" or "learned"
    phrases: bool = False  # a document's whole title as an exact-match feature
    bias: bool = False  # b_d
    alpha: float = 1.0  # lsi: share of the latent part; 1 − alpha is tf-idf's
    k1: float = 1.2  # BM25
    b: float = 0.75  # BM25
    k3: float = 1.0  # BM25's damping of repeated query words


@dataclass(frozen=True)
class TrainSettings:
    """How the model is fitted."""

    loss: str = "none"  # "none", "margin" (the papers') or "softmax"
    epochs: int = 8
    patience: int = 3  # epochs without a better validation MAP before stopping
    seconds: float = 0.0  # stop after so long; 0: no limit
    valid_queries: int = 800  # validation queries measured after each epoch, at most; 0: all
    init: float = 0.05  # standard deviation of U and V at the start
    rate: float = 0.03  # softmax: AdaGrad's rate for U, V; falls to a tenth over the epochs
    rates: tuple[float, ...] = (0.001, 0.01, 0.1)  # margin: fixed rates tried by training error
    trial: int = 20_000  # margin: triples per tried rate
    triples: int = 0  # margin: triples per epoch; 0: one per judged pair
    diagonal_rate: float = 0.05  # softmax: AdaGrad's rate for D, relative to its start
    bias_rate: float = 0.05  # softmax: AdaGrad's rate for b
    batch: int = 512  # softmax: queries per step
    candidates: int = 2500  # softmax: documents each query of a batch is ranked against
    word_dropout: float = 0.33  # softmax: share of a query's words left out while training
    document_dropout: float = 0.0  # softmax: likewise for documents, latent part only
    start: float = 2.0  # softmax: mean exact-match score per field of a judged pair at the start


@dataclass(frozen=True)
class AutoSettings:
    """The search that ``auto`` makes over overrides of this recipe."""

    seconds: float = 0.0  # time for all trials together; 0: this recipe is not a search
    trials: tuple[str, ...] = ()  # each a comma-separated list of overrides


@dataclass(frozen=True)
class Recipe:
    """A named set of settings."""

    name: str
    about: str = ""
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    auto: AutoSettings = field(default_factory=AutoSettings)

    def as_dict(self) -> dict[str, Any]:
        """JSON form, every knob named; an infinite value, which JSON has not, as text."""
        facts = asdict(self)
        for section in _SECTIONS:
            for key, value in facts[section].items():
                if isinstance(value, float) and math.isinf(value):
                    facts[section][key] = str(value)
        return facts

    def override(self, overrides: Sequence[str]) -> Recipe:
        """This recipe with ``section.key=value`` settings; a key alone finds its section.

        Raises RecipeError for unknown keys and impossible values.
        """
        sections: dict[str, Any] = {s: getattr(self, s) for s in _SECTIONS}
        for text in overrides:
            key, found, value = text.partition("=")
            if not found:
                raise RecipeError(f"override {text!r} is not of the form key=value")
            section, name = _locate(key.strip())
            parsed = _parse(_SECTIONS[section], name, value.strip(), f"{section}.{name}")
            sections[section] = replace(sections[section], **{name: parsed})
        return _checked(replace(self, **sections))


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    return str(value) if isinstance(value, float) and not isfinite(value) else value


_SECTIONS: dict[str, Any] = {
    "model": ModelSettings,
    "train": TrainSettings,
    "auto": AutoSettings,
}

_CHOICES = {
    "model.fields": ("each", "joined"),
    "model.latent": ("none", "learned", "lsi"),
    "model.trigrams": ("on", "off", "auto"),
    "model.match": ("tfidf", "bm25", "none"),
    "model.diagonal": ("identity", "learned"),
    "train.loss": ("none", "margin", "softmax"),
}


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
    unknown = set(table) - set(_SECTIONS) - {"about"}
    if unknown:
        raise RecipeError(f"recipe {name}: unknown section {sorted(unknown)[0]!r}")
    for section in table.keys() & _SECTIONS.keys():
        if not isinstance(table[section], dict):
            raise RecipeError(f"recipe {name}: {section} is not a section")
    sections = {
        section: kind(**_typed(kind, table.get(section, {}), section))
        for section, kind in _SECTIONS.items()
    }
    return _checked(Recipe(name, str(table.get("about", "")), **sections))


def _typed(kind: Any, table: Mapping[str, Any], section: str) -> dict[str, Any]:
    values = {}
    for key, value in table.items():
        _locate(f"{section}.{key}")
        values[key] = _parse(kind, key, value, f"{section}.{key}")
    return values


def _locate(key: str) -> tuple[str, str]:
    section, _, name = key.rpartition(".")
    found = [
        s for s, kind in _SECTIONS.items()
        if section in ("", s) and name in {f.name for f in fields(kind)}
    ]  # fmt: skip
    if len(found) != 1:
        known = ", ".join(f"{s}.{f.name}" for s, kind in _SECTIONS.items() for f in fields(kind))
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
        if wanted == tuple[float, ...]:
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(float(part) for part in parts)
        if wanted == tuple[str, ...]:
            return tuple(value.split(";") if isinstance(value, str) else map(str, value))
    except (KeyError, TypeError, ValueError):
        pass
    raise RecipeError(f"{label}: {value!r} is not a {getattr(wanted, '__name__', wanted)}")


def _checked(recipe: Recipe) -> Recipe:
    for label, choices in _CHOICES.items():
        section, name = label.split(".")
        value = getattr(getattr(recipe, section), name)
        if value not in choices:
            raise RecipeError(f"{label}: {value!r} is none of {', '.join(choices)}")
    model, train = recipe.model, recipe.train
    bounds = [
        ("model.dimension", model.dimension, 1, 4096),
        ("model.alpha", model.alpha, 0, 1),
        ("model.b", model.b, 0, 1),
        ("model.k1", model.k1, 0, 100),
        ("train.epochs", train.epochs, 1, 100_000),
        ("train.batch", train.batch, 1, 1_000_000),
        ("train.candidates", train.candidates, 2, 10_000_000),
        ("train.word_dropout", train.word_dropout, 0, 0.95),
        ("train.document_dropout", train.document_dropout, 0, 0.95),
        ("train.init", train.init, 0, 100),
        ("train.rate", train.rate, 0, 100),
        ("model.k3", model.k3, 0, math.inf),
        ("train.patience", train.patience, 1, 100_000),
        ("train.seconds", train.seconds, 0, math.inf),
        ("train.valid_queries", train.valid_queries, 0, 1 << 30),
        ("train.trial", train.trial, 1, 1 << 30),
        ("train.triples", train.triples, 0, 1 << 30),
        ("train.diagonal_rate", train.diagonal_rate, 0, 100),
        ("train.bias_rate", train.bias_rate, 0, 100),
        ("train.start", train.start, 0, 1000),
        ("auto.seconds", recipe.auto.seconds, 0, math.inf),
        *(("train.rates", rate, 0, 1000) for rate in train.rates),
    ]
    sizes = ("words", "min_df", "buckets", "latent_words", "latent_terms", "match_terms")
    bounds += [(f"model.{name}", getattr(model, name), 0, 1 << 30) for name in sizes]
    for label, value, low, high in bounds:
        if not low <= value <= high:
            raise RecipeError(f"{label}: {value} is not between {low} and {high}")
    if model.latent == "learned" and train.loss == "none":
        raise RecipeError("model.latent = learned needs train.loss margin or softmax")
    if model.diagonal == "learned" and train.loss == "none":
        raise RecipeError("model.diagonal = learned needs train.loss margin or softmax")
    if model.latent == "none" and model.match == "none":
        raise RecipeError("a model needs model.latent or model.match")
    if train.loss == "margin" and not train.rates:
        raise RecipeError("train.rates: the margin loss needs at least one rate")
    return recipe
