"""The walls: trainer → fullrank ← service, and each library only where it belongs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fullrank", "trainer", "service")
COMPOSITION_ROOT = "fullrank/cli/"

MAY_IMPORT = {
    "fullrank": {"fullrank"},
    "trainer": {"trainer", "fullrank"},
    "service": {"service", "fullrank"},
}
ONLY_IN = {
    "fastapi": "service",
    "starlette": "service",
    "uvicorn": "service",
    "redis": "service",
    "pydantic": "service",
    "pydantic_settings": "service",
    "prometheus_client": "service",
    "numba": "trainer",
    "llvmlite": "trainer",
}


@dataclass(frozen=True)
class Import:
    """One imported module; lazy where only a call or the type checker imports it."""

    module: str
    line: int
    lazy: bool

    @property
    def root(self) -> str:
        return self.module.partition(".")[0]


def imports(source: str) -> Iterator[Import]:
    yield from _imports(ast.parse(source), lazy=False)


def _imports(node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for name in child.names:
                yield Import(name.name, child.lineno, lazy)
        elif isinstance(child, ast.ImportFrom):
            # A relative import stays inside its package.
            if child.level == 0 and child.module is not None:
                yield Import(child.module, child.lineno, lazy)
        else:
            defers = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing_only = (
                isinstance(child, ast.If)
                and isinstance(child.test, ast.Name)
                and child.test.id == "TYPE_CHECKING"
            )
            yield from _imports(child, lazy=lazy or defers or typing_only)


def broken_walls(path: str, source: str) -> list[str]:
    """What one file imports from behind a wall, as "path:line imports module"."""
    package = path.partition("/")[0]
    broken = []
    for item in imports(source):
        crosses = item.root in PACKAGES and item.root not in MAY_IMPORT[package]
        if crosses and path.startswith(COMPOSITION_ROOT) and item.lazy:
            crosses = False
        misplaced = item.root in ONLY_IN and ONLY_IN[item.root] != package
        if crosses or misplaced:
            broken.append(f"{path}:{item.line} imports {item.module}")
    return broken


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_imports_across_a_wall(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"no files under {package}/"
    broken = [
        line
        for file in files
        for line in broken_walls(file.relative_to(ROOT).as_posix(), file.read_text("utf-8"))
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("fullrank/text.py", "import trainer"),
        ("fullrank/text.py", "def f():\n    from service.app import create_app"),
        ("fullrank/cli/training.py", "from trainer.train import train"),
        ("fullrank/text.py", "if TYPE_CHECKING:\n    import trainer.train"),
        ("fullrank/text.py", "import numba"),
        ("trainer/fit.py", "from service import app"),
        ("trainer/fit.py", "import redis"),
        ("service/app.py", "if True:\n    import trainer.train"),
        ("service/app.py", "from numba import njit"),
    ],
)
def test_a_crossing_is_seen(path: str, source: str) -> None:
    assert len(broken_walls(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("fullrank/cli/training.py", "def train():\n    from trainer.train import train"),
        ("fullrank/cli/training.py", "if TYPE_CHECKING:\n    from trainer.train import train"),
        ("trainer/fit.py", "import numba\nfrom fullrank.text.words import words"),
        ("service/app.py", "import fastapi\nfrom .routes import search"),
        ("fullrank/text.py", "import redistribution"),
    ],
)
def test_a_lawful_import_passes(path: str, source: str) -> None:
    assert broken_walls(path, source) == []
