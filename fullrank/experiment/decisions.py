"""What `fullrank loop` decided: loop.json in the folder of bundles.

A bundle never changes, so its card cannot take what is decided about it later; `fullrank bundles show` prints both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from fullrank.errors import FullrankError
from fullrank.storage.files import replace_file

DECISIONS = "loop.json"
LOOP_LOCK = ".loop.lock"
"""Its time of modification is when `fullrank loop` last ended without a failure."""
_KEPT = 1000


def read_decisions(root: Path) -> list[dict[str, Any]]:
    """Return what the loop did, the oldest first. Raises FullrankError if the file is damaged."""
    path = root / DECISIONS
    try:
        found: list[dict[str, Any]] = orjson.loads(path.read_bytes())
        if not all({"at", "name", "did"} <= made.keys() for made in found):
            raise ValueError("an entry lacks a field")
        return found
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise FullrankError(f"{path}: {type(error).__name__}: {error}") from error


def write_decisions(root: Path, decisions: Sequence[dict[str, Any]]) -> None:
    """Replace the file by the newest 1,000."""
    replace_file(root / DECISIONS, orjson.dumps(decisions[-_KEPT:]).decode() + "\n")


def candidate_of(made: dict[str, Any]) -> str | None:
    """Return the version that a decision is about: the one on trial, or the one that a training published."""
    found: str | None = made.get("candidate") or (made.get("report") or {}).get("published")
    return found


def decisions_about(root: Path, version: str) -> list[dict[str, Any]]:
    """Return the decisions about a version, as candidate or as what served, the oldest first.

    Raises:
        FullrankError: The file is damaged.
    """
    return [
        made
        for made in read_decisions(root)
        if version in (candidate_of(made), made.get("active"), made.get("retrained"))
    ]


def one_line(made: dict[str, Any]) -> str:
    """Return a decision as ``promoted: shop-2 against shop-1, 31 votes to 9, e-value 28.4``; failed gates follow."""
    candidate, active = candidate_of(made), made.get("active") or made.get("retrained")
    line: str = made["did"] + (f": {candidate}" if candidate else "")
    line += f" against {active}" if candidate and active else ""
    line += f", {made['wins']} votes to {made['losses']}" if "wins" in made else ""
    line += f", e-value {made['e_value']:.3g}" if "e_value" in made else ""
    gates = (made.get("report") or {}).get("gates") or ()
    failed = [f"{gate['name']}: {gate['reason']}" for gate in gates if not gate["passed"]]
    return line + (f"; failed gates: {'; '.join(failed)}" if failed else "")


def moment(at: float) -> str:
    """Return seconds since 1970 as a date and a time of UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
