"""Test the direction of imports: trainer → fullrank ← service, fleet above them, and each library in its package."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.walls.source import PACKAGES, ROOT, folder_of, imports, python_files, relative

OWN = frozenset({*PACKAGES, "tests"})
MAY_IMPORT = {
    "fullrank": {"fullrank"},
    "fullrank_trainer": {"fullrank_trainer", "fullrank"},
    "fullrank_service": {"fullrank_service", "fullrank"},
    "fullrank_fleet": {"fullrank_fleet", "fullrank", "fullrank_trainer", "fullrank_service"},
    "benchmarks": {*PACKAGES} - {"examples"},
    "examples": {*PACKAGES} - {"benchmarks"},
}
# The packages or folders that own a library; benchmarks may measure any of them.
ONLY_IN = {
    "cachetools": ("service",),
    "fastapi": ("service",),
    "starlette": ("service",),
    "uvicorn": ("service",),
    "redis": ("service",),
    "pydantic": ("service",),
    "pydantic_settings": ("service",),
    "prometheus_client": ("service",),
    "opentelemetry": ("service",),
    "httpx": ("fullrank/client", "examples"),
    "lightgbm": ("trainer",),
    "markdown_it": ("trainer",),
    "yaml": ("trainer",),
    "psycopg": ("fullrank/engines", "service/fullrank_service/documents"),
    "qdrant_client": ("fullrank/engines",),
    "qdrant_edge": ("fullrank/engines",),
    "fsspec": ("fleet",),
    "ray": ("fleet",),
    "llvmlite": ("fullrank/kernels",),
    "numba": ("fullrank/kernels", "trainer"),
}
# Modules without a leading underscore that their libraries do not document for use by others.
NOT_PUBLIC = (
    "fastapi.dependencies",
    "fastapi.routing.serialize_response",
    "fastapi.utils",
    "prometheus_client.mmap_dict",
    "redis._parsers",
    "starlette._utils",
    "typer.core",
    "typer.main",
    "typer.rich_utils",
    "uvicorn.lifespan",
    "uvicorn.protocols",
    "uvicorn.server",
    "uvicorn.supervisors",
)
# uvicorn takes a class of connections, but documents none to begin with, and limits no head of a request.
EXCEPTIONS = {
    (
        "service/fullrank_service/process/worker.py",
        "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol",
    )
}


def crossings(path: str, source: str) -> list[str]:
    """List what a file imports from behind a wall, as "path:line imports module"."""
    package = next(name for name in PACKAGES if path.startswith(f"{folder_of(name)}/"))
    found = []
    for item in imports(source):
        upwards = item.package in OWN and item.package not in MAY_IMPORT[package]
        owners = (*ONLY_IN.get(item.package, (folder_of(package),)), "benchmarks")
        misplaced = not any(path.startswith(f"{owner}/") for owner in owners)
        if upwards or misplaced:
            found.append(f"{path}:{item.line} imports {item.module}")
    return found


def private_imports(path: str, source: str) -> list[str]:
    """List the private names and modules of other projects that a file imports."""
    found = []
    for item in imports(source):
        if item.package in OWN or item.package == "__future__":
            continue
        whole = str(item)
        underscored = any(part.startswith("_") for part in whole.split("."))
        listed = any(whole == name or whole.startswith(f"{name}.") for name in NOT_PUBLIC)
        if (underscored or listed) and (path, whole) not in EXCEPTIONS:
            found.append(f"{path}:{item.line} imports {whole}")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_imports_across_a_wall(package: str) -> None:
    found: list[str] = []
    for file in python_files(package):
        found += crossings(relative(file), file.read_text("utf-8"))
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_private_of_a_library_is_imported(package: str) -> None:
    found: list[str] = []
    for file in python_files(package):
        found += private_imports(relative(file), file.read_text("utf-8"))
    assert found == []


def test_tracing_is_imported_only_where_it_is_used() -> None:
    """The service without its extra, and without the time that the import takes."""
    for file in python_files("fullrank_service"):
        for node in ast.parse(file.read_text("utf-8")).body:
            names = [alias.name for alias in getattr(node, "names", ())]
            whole = f"{getattr(node, 'module', '')} {names}"
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            assert not (is_import and "opentelemetry" in whole), relative(file)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("fullrank/text/words.py", "import fullrank_trainer"),
        ("fullrank/text/words.py", "def f():\n    from fullrank_service.app import create_app"),
        ("fullrank/cli/search.py", "def search():\n    from fullrank_trainer.train import train"),
        (
            "trainer/fullrank_trainer/commands/demo.py",
            "def demo():\n    from fullrank_service.process.run import serve",
        ),
        ("fullrank/text/words.py", "if TYPE_CHECKING:\n    import fullrank_trainer.train"),
        ("fullrank/text/words.py", "import numba"),
        ("fullrank/text/words.py", "from tests import planted"),
        ("trainer/fullrank_trainer/training/fit.py", "from fullrank_service import app"),
        ("trainer/fullrank_trainer/training/fit.py", "import redis"),
        ("service/fullrank_service/app.py", "if True:\n    import fullrank_trainer.train"),
        ("service/fullrank_service/app.py", "from numba import njit"),
        ("service/fullrank_service/app.py", "from fullrank_fleet.sets import open_set"),
        ("trainer/fullrank_trainer/commands/index.py", "import ray"),
    ],
)
def test_an_import_across_a_wall_is_found(path: str, source: str) -> None:
    assert len(crossings(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "trainer/fullrank_trainer/commands/train.py",
            "from fullrank.cli.output import print_json",
        ),
        (
            "trainer/fullrank_trainer/training/fit.py",
            "import numba\nfrom fullrank.text.words import words",
        ),
        ("service/fullrank_service/app.py", "import fastapi\nfrom .routes import search"),
        ("benchmarks/performance/http.py", "import fastapi\nimport numba"),
        ("fullrank/text/words.py", "import redistribution"),
    ],
)
def test_an_allowed_import_passes(path: str, source: str) -> None:
    assert crossings(path, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "from uvicorn._types import ASGI3Application",
        "from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol",
        "import starlette._utils",
        "from fastapi.dependencies.utils import solve_dependencies",
        "from fastapi import _compat",
        "def f():\n    from numpy import _core",
    ],
)
def test_a_private_import_is_found(source: str) -> None:
    assert len(private_imports("service/fullrank_service/app.py", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import uvicorn",
        "from fastapi.responses import JSONResponse",
        "from fullrank.cli.output import _json",
        "from __future__ import annotations",
    ],
)
def test_a_public_import_passes(source: str) -> None:
    assert private_imports("service/fullrank_service/app.py", source) == []


@pytest.mark.parametrize("module", ["fullrank.bundle.catalog", "fullrank_trainer.importing"])
def test_catalogs_and_sources_are_read_without_compiled_kernels(module: str) -> None:
    code = f"import sys, {module}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
