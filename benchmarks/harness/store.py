"""Results on disk, so that an experiment resumes where it stopped.

    out/<experiment>/<task>/<system>.json   settings, measures, seconds, machine; one object
    out/<experiment>/<task>/<system>.npz    the per-query values behind the measures

A result is valid for its identity: settings, seed and data. Both files are written under a temporary name and renamed,
the JSON last, and both carry the same digest, so an interrupted run leaves complete results or no result.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fullrank.measures import Estimate, Float64, estimate
from fullrank_trainer.recipes.recipe import Recipe


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


@dataclass(frozen=True, eq=False)
class Result:
    """The result of one system on one task.

    facts    what the JSON file holds
    queries  ids, in the order of the values
    values   measure → float64, one per query
    """

    facts: dict[str, Any]
    queries: list[str]
    values: dict[str, Float64]

    def estimate(self, measure: str) -> Estimate:
        """Return mean and standard error of a measure. Raises KeyError if it was not measured."""
        return estimate(self.values[measure])


class Store:
    """The results of one experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, task: str, system: str) -> Path:
        return self.folder / slug(task) / f"{slug(system)}.json"

    def load(self, task: str, system: str, identity: Mapping[str, Any]) -> Result | None:
        """Return the stored result, None if it is missing or has another identity."""
        path = self._path(task, system)
        try:
            facts: dict[str, Any] = json.loads(path.read_text("utf-8"))
            if facts["identity"] != _json(identity):
                return None
            with (
                path.with_suffix(".npz").open("rb") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):
                if str(arrays["digest"]) != facts["digest"]:
                    return None
                queries: list[str] = arrays["queries"].tolist()
                values = {name: arrays[f"value {name}"] for name in facts["measures"]}
        except (OSError, ValueError, KeyError, BadZipFile):
            return None
        return Result(facts, queries, values)

    def save(
        self,
        task: str,
        system: str,
        identity: Mapping[str, Any],
        queries: Sequence[str],
        values: Mapping[str, Float64],
        facts: Mapping[str, Any],
    ) -> Result:
        """Write a result and return it as load() will."""
        path = self._path(task, system)
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(os.urandom(16)).hexdigest()[:16]
        line = {
            "task": task,
            "system": system,
            "queries": len(queries),
            "measures": {name: estimate(value).as_dict() for name, value in values.items()},
            **facts,
            "identity": _json(identity),
            "digest": digest,
        }
        arrays: dict[str, Any] = {f"value {name}": value for name, value in values.items()}
        arrays |= {"queries": np.array(list(queries), np.str_), "digest": np.array(digest)}
        part = path.with_suffix(".npz.part")
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)
        part.replace(path.with_suffix(".npz"))
        write_json(path, line)
        return Result(_json(line), list(queries), dict(values))


def write_json(path: Path, value: Any) -> None:
    """Write one JSON object atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(json.dumps(_json(value), ensure_ascii=False, indent=1) + "\n", "utf-8")
    part.replace(path)


def slug(name: str) -> str:
    """Return a file name for a name."""
    return re.sub(r"[^\w.+-]+", "-", name.lower()).strip("-")


def _json(value: Any) -> Any:
    """Return a value as it returns from a file: tuples as lists, keys as text, other values as null."""
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _json(value.tolist())
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def recipe_identity(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of a recipe without its description."""
    facts: dict[str, Any] = _json(recipe.as_dict())
    for said in ("name", "about", "paper"):
        facts.pop(said, None)
    return facts


def folder_fingerprint(folder: Path) -> str:
    """Hash the files of a collection with sha256."""
    digest = hashlib.sha256()
    places = [folder] if any(folder.glob("corpus.jsonl*")) else [folder, folder.parent]
    for place in places:
        patterns = ("corpus.jsonl*", "schema.json") if place != folder else ("*",)
        files = [file for pattern in patterns for file in place.glob(pattern)]
        files += sorted((place / "qrels").glob("*.tsv*"))
        for file in sorted(file for file in files if file.is_file()):
            digest.update(file.name.encode())
            digest.update(bytes.fromhex(file_fingerprint(file)))
    return digest.hexdigest()


def file_fingerprint(file: Path) -> str:
    """Hash a file with sha256."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
