"""The kinds of models: `config["kind"]` of a bundle names its loader here."""

from __future__ import annotations

from collections.abc import Callable

from fullrank.errors import BundleError
from fullrank.models import (
    expansion,
    language,
    linear,
    memory,
    mentions,
    mixed,
    pairs,
    translation,
    unseen,
)
from fullrank.models.contract import Model, Parts

KINDS: dict[str, Callable[[Parts], Model]] = {
    expansion.KIND: expansion.ExpansionModel.from_parts,
    language.KIND: language.LanguageModel.from_parts,
    linear.KIND: linear.LinearModel.from_parts,
    memory.KIND: memory.MemoryModel.from_parts,
    memory.LINKS: memory.LinkModel.from_parts,
    mentions.KIND: mentions.MentionsModel.from_parts,
    pairs.KIND: pairs.PairModel.from_parts,
    mixed.KIND: lambda parts: mixed.MixedModel.from_parts(parts, load_model),
    unseen.KIND: lambda parts: unseen.OpenModel.from_parts(parts, load_model),
    translation.KIND: translation.TranslationModel.from_parts,
}


def load_model(parts: Parts) -> Model:
    """Load a model. Raises BundleError where the kind is unknown, or the parts do not fit together."""
    kind = parts.config.get("kind")
    load = KINDS.get(kind) if isinstance(kind, str) else None
    if load is None:
        raise BundleError(f"model: unknown kind {kind!r}; known kinds: {', '.join(sorted(KINDS))}")
    try:
        return load(parts)
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"model of kind {kind!r} does not load: {error!r}") from error
