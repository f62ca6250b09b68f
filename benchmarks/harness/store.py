"""Finished results on disk, so that an experiment resumes where it stopped.

    out/<experiment>/<task>/<system>.json   settings, measures, seconds, machine; one object
    out/<experiment>/<task>/<system>.npz    the per-query values behind the measures

A result stands for as long as its identity does: the settings, the seed and the data it came from. Both files are
written beside their place and renamed, the JSON last, and each carries the digest of the other's making, so a run that
is stopped at any moment leaves whole results or none.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fullrank.measures import Estimate, Float64, estimate
from trainer.recipes.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Result:
    """One system on one task.

    facts    what the JSON file holds
    queries  ids, in the order of the values
    values   measure → float64, one per query
    """

    facts: dict[str, Any]
    queries: list[str]
    values: dict[str, Float64]

    def estimate(self, measure: str) -> Estimate:
        """Mean and standard error of a measure. Raises KeyError where it was not measured."""
        return estimate(self.values[measure])


class Store:
    """The results of one experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, task: str, system: str) -> Path:
        return self.folder / slug(task) / f"{slug(system)}.json"

    def load(self, task: str, system: str, identity: Mapping[str, Any]) -> Result | None:
        """The stored result, None where there is none or it was made from something else."""
        path = self._path(task, system)
        try:
            facts: dict[str, Any] = json.loads(path.read_text("utf-8"))
            if _filled(facts["identity"]) != _filled(_json(identity)):
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
        """Write a result and give it back as load() will."""
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
        beside = path.with_suffix(".npz.part")
        with beside.open("wb") as file:
            np.savez_compressed(file, **arrays)
        beside.replace(path.with_suffix(".npz"))
        write_json(path, line)
        return Result(_json(line), list(queries), dict(values))


def write_json(path: Path, value: Any) -> None:
    """One JSON object, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(path.suffix + ".part")
    beside.write_text(json.dumps(_json(value), ensure_ascii=False, indent=1) + "\n", "utf-8")
    beside.replace(path)


def slug(name: str) -> str:
    """A file name of a name."""
    return re.sub(r"[^\w.+-]+", "-", name.lower()).strip("-")


def _json(value: Any) -> Any:
    """As it comes back from a file: tuples are lists, keys are text, what JSON has not is null."""
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _json(value.tolist())
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _filled(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity whose recipe names every setting there is today.

    A setting that came after a result was stored does not make it stale where it has its default.
    """
    found = dict(identity)
    if "recipe" in found:
        defaults = recipe_identity(Recipe(""))
        kept = {name: part for name, part in found["recipe"].items() if name not in defaults}
        found["recipe"] = kept | {
            name: part | found["recipe"].get(name, {}) if isinstance(part, dict) else
            found["recipe"].get(name, part)
            for name, part in defaults.items()
        }  # fmt: skip
    return found


def recipe_identity(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe without what is said of it."""
    facts: dict[str, Any] = _json(recipe.as_dict())
    for said in ("name", "about", "paper"):
        facts.pop(said, None)
    return facts


def folder_fingerprint(folder: Path) -> str:
    """sha256 over the files that a collection folder is read from."""
    digest = hashlib.sha256()
    places = [folder] if any(folder.glob("corpus.jsonl*")) else [folder, folder.parent]
    for place in places:
        pattern = "corpus.jsonl*" if place != folder else "*"
        files = [*place.glob(pattern), *sorted((place / "qrels").glob("*.tsv*"))]
        for file in sorted(file for file in files if file.is_file()):
            digest.update(file.name.encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
