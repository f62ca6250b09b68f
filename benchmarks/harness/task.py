"""Tasks and systems: what an experiment compares, and on which collection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class System:
    """One line of a table.

    name       of the line and of its file; also the recipe's, unless ``recipe`` says another
    overrides  settings beside the recipe's
    formula    as the papers write it
    paper      measure → what the paper reports, as a fraction
    time_factor  factor on --seconds of its fit
    """

    name: str
    recipe: str = ""
    overrides: tuple[str, ...] = ()
    formula: str = ""
    paper: Mapping[str, float] = field(default_factory=dict)
    time_factor: float = 1.0

    @property
    def recipe_name(self) -> str:
        """Return the name of the recipe."""
        return self.recipe or self.name


@dataclass(frozen=True)
class Task:
    """What systems are compared on.

    name       of the table and of the folder of its results
    overrides  settings of every system here
    exclude    splits whose links are no candidates, where the collection has them
    """

    name: str
    folder: Path
    overrides: tuple[str, ...] = ()
    split: str = "test"
    exclude: tuple[str, ...] = ("train", "valid")
