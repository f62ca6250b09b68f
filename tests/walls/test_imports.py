"""Test the direction of imports: trainer → fullrank ← service, fleet above them, and each library in its package."""

from __future__ import annotations

import pytest

from tests.walls.source import PACKAGES, imports, python_files, relative

OWN = frozenset({*PACKAGES, "tests"})
MAY_IMPORT = {
    "fullrank": {"fullrank"},
    "trainer": {"trainer", "fullrank"},
    "service": {"service", "fullrank"},
    "fleet": {"fleet", "fullrank", "trainer", "service"},
    "benchmarks": {"benchmarks", "fullrank", "trainer", "service", "fleet"},
    "examples": {"examples", "fullrank", "trainer", "service", "fleet"},
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
    "psycopg": ("fullrank/engines", "service/documents"),
    "qdrant_client": ("fullrank/engines",),
    "qdrant_edge": ("fullrank/engines",),
    "pyarrow": ("trainer",),
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
    ("service/process/connection.py", "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol")
}


def crossings(path: str, source: str) -> list[str]:
    """List what a file imports from behind a wall, as "path:line imports module"."""
    package = path.partition("/")[0]
    found = []
    for item in imports(source):
        upwards = item.package in OWN and item.package not in MAY_IMPORT[package]
        owners = (*ONLY_IN.get(item.package, (package,)), "benchmarks")
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


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("fullrank/text/words.py", "import trainer"),
        ("fullrank/text/words.py", "def f():\n    from service.app import create_app"),
        ("fullrank/cli/search.py", "def search():\n    from trainer.train import train"),
        ("trainer/commands/demo.py", "def demo():\n    from service.process.run import serve"),
        ("fullrank/text/words.py", "if TYPE_CHECKING:\n    import trainer.train"),
        ("fullrank/text/words.py", "import numba"),
        ("fullrank/text/words.py", "from tests import planted"),
        ("trainer/training/fit.py", "from service import app"),
        ("trainer/training/fit.py", "import redis"),
        ("service/app.py", "if True:\n    import trainer.train"),
        ("service/app.py", "from numba import njit"),
        ("service/app.py", "from fleet.sets import open_set"),
        ("trainer/commands/index.py", "import ray"),
    ],
)
def test_an_import_across_a_wall_is_found(path: str, source: str) -> None:
    assert len(crossings(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("trainer/commands/train.py", "from fullrank.cli.output import print_json"),
        ("trainer/training/fit.py", "import numba\nfrom fullrank.text.words import words"),
        ("service/app.py", "import fastapi\nfrom .routes import search"),
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
    assert len(private_imports("service/app.py", source)) == 1


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
    assert private_imports("service/app.py", source) == []
