"""Documents on their way into a collection: ids are checked, bad ones refused or set aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank_trainer.lines import id_problem

SKIPPED = "skipped.jsonl"


@dataclass(frozen=True)
class Row:
    """A document of a place in a file, or what is wrong with it.

    Attributes:
        is_part: Whether it is a part of the page that the row before it is or is part of.
    """

    place: str
    fields: dict[str, Any]
    problem: str | None = None
    is_part: bool = False


@dataclass
class Checked:
    """Passes on the rows with a new id, and refuses or counts the others.

    Attributes:
        skipped_to: Where to write bad rows; None: the first one is an error.
    """

    skipped_to: Path | None
    skipped: int = 0
    first_skipped: str | None = None
    _seen: set[bytes] = field(default_factory=set)

    def good(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the documents. Raises FullrankError for the first bad row unless such rows are skipped."""
        for row in rows:
            problem = row.problem or self._problem(row.fields.get("_id"))
            if problem is None:
                yield row
            elif self.skipped_to is not None:
                self.skipped += 1
                self.first_skipped = self.first_skipped or f"{row.place}: {problem}"
                line = {"place": row.place, "problem": problem, "row": row.fields}
                with self.skipped_to.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
            else:
                raise FullrankError(f"{row.place}: {problem}; --skip-bad sets such rows aside")

    def _problem(self, id: object) -> str | None:
        if not isinstance(id, str) or (problem := id_problem(id)) == "empty":
            return "no id"
        if problem:
            return f"the id {problem}"
        if self.has(id):
            return f"the id {id!r} occurs twice"
        self._seen.add(_digest(id))
        return None

    def has(self, id: str) -> bool:
        """Return whether a document with this id was passed on."""
        return _digest(id) in self._seen


def _digest(id: str) -> bytes:
    # Hashes, because a catalogue may have millions of ids.
    return blake2b(id.encode("utf-8", "surrogatepass"), digest_size=12).digest()
