"""The tree of a taxonomy of categories: what is below a category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fullrank.errors import AdError


class Taxonomy:
    """One taxonomy, numbered as in OpenRTB's ``cattax``.

    Args:
        number: Its number.
        parents: Parent by category.
    """

    def __init__(self, number: int, parents: Mapping[str, str]) -> None:
        self.number = number
        children: dict[str, list[str]] = {}
        for id, parent in parents.items():
            children.setdefault(parent, []).append(id)
        self._children = children
        self._below: dict[str, frozenset[str]] = {}

    @classmethod
    def read(cls, path: Path, number: int) -> Taxonomy:
        """Read a file of lines ``id<TAB>parent``; further columns and lines without a parent are ignored.

        Raises:
            AdError: The file cannot be read, a line has no tab, or a category is below itself.
        """
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise AdError(str(path), f"cannot be read: {error}") from error
        parents: dict[str, str] = {}
        for place, line in enumerate(lines, 1):
            columns = [column.strip() for column in line.split("\t")]
            if not columns[0]:
                continue
            if len(columns) < 2:
                raise AdError(f"{path}:{place}", "is not id, tab, parent")
            if columns[1]:
                parents[columns[0]] = columns[1]
        for id in parents:
            above, seen = parents.get(id), {id}
            while above is not None and above not in seen:
                seen.add(above)
                above = parents.get(above)
            if above is not None:
                raise AdError(str(path), f"the category {above} is below itself")
        return cls(number, parents)

    def below(self, ids: Iterable[str]) -> set[str]:
        """Return some categories and all those below them."""
        return set().union(*(self._below.get(id) or self._follow(id) for id in ids))

    def _follow(self, id: str) -> frozenset[str]:
        """Return a category and all those below it; those with children are kept."""
        found: set[str] = set()
        waiting = [id]
        while waiting:
            found.add(last := waiting.pop())
            waiting += self._children.get(last, ())
        below = frozenset(found)
        if id in self._children:
            self._below[id] = below
        return below
