"""Read the project's source files and what they import."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fullrank", "trainer", "service", "fleet", "benchmarks", "examples")


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
def python_files(folder: str) -> tuple[Path, ...]:
    """List the Python files of a folder of the project, sorted."""
    files = tuple(sorted((ROOT / folder).rglob("*.py")))
    assert files, f"no Python files under {folder}/"
    return files


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Outline:
    """What the checks look for in a file, found by parsing it once.

    Attributes:
        imports: Every absolute import, those inside functions and type checks too.
        names: The line and name of each function, class, argument and module constant.
    """

    imports: tuple[Import, ...]
    names: tuple[tuple[int, str], ...]


@cache
def outline(source: str) -> Outline:
    """Parse a file."""
    tree = ast.parse(source)
    nodes = [*ast.walk(tree)]
    return Outline(tuple(_imports(nodes)), (*_definitions(nodes), *_constants(tree)))


def _imports(nodes: Iterable[ast.AST]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            for alias in node.names:
                yield Import(node.module, alias.name, node.lineno)


def _definitions(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def _constants(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.lineno, node.id


def imports(source: str) -> tuple[Import, ...]:
    """List every absolute import, those inside functions and type checks too."""
    return outline(source).imports


def imports_of(file: Path) -> tuple[Import, ...]:
    return imports(file.read_text("utf-8"))
