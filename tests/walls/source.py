"""Read the project's source files and what they import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "fullrank",
    "fullrank_trainer",
    "fullrank_service",
    "fullrank_fleet",
    "benchmarks",
    "examples",
)


@dataclass(frozen=True)
class Import:
    """One imported module, or one name from it."""

    module: str
    name: str | None
    line: int

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


@cache
def python_files(package: str) -> tuple[Path, ...]:
    """List the Python files of a package of the project, sorted."""
    files = tuple(sorted((ROOT / folder_of(package)).rglob("*.py")))
    assert files, f"no Python files of {package}"
    return files


def folder_of(package: str) -> str:
    """Give the folder of a package: that of `fullrank_service` is service/fullrank_service."""
    part = package.removeprefix("fullrank_")
    return package if part == package else f"{part}/{package}"


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@cache
def imports(source: str) -> tuple[Import, ...]:
    return tuple(_imports(source))


def _imports(source: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            for alias in node.names:
                yield Import(node.module, alias.name, node.lineno)


def imports_of(file: Path) -> tuple[Import, ...]:
    return imports(file.read_text("utf-8"))
