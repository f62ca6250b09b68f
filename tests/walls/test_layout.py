"""Test the layout: no circles of imports, no long files, no binaries or large files in git."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.walls.source import PACKAGES, ROOT, imports_of, python_files, relative

MAX_LINES = 700
MAX_BYTES = 1_000_000

Graph = dict[str, set[str]]


def module_of(file: Path) -> str:
    """Give a file's module name; a package's is that of its folder."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    if parts[0] != "fullrank" and parts[1].startswith("fullrank_"):
        parts = parts[1:]  # the folder of a package
    return ".".join(parts).removesuffix(".__init__")


def file_graph(package: str) -> Graph:
    """Give for each module of a package the modules of the same package that it imports."""
    modules = {module_of(file): file for file in python_files(package)}
    graph: Graph = {}
    for module, file in modules.items():
        whole = {str(item) for item in imports_of(file)}
        named = {item.module for item in imports_of(file) if str(item) not in modules}
        graph[module] = {found for found in whole | named if found in modules} - {module}
    return graph


def folder_graph(package: str, depth: int) -> Graph:
    """Merge the modules of each folder, `depth` folders below the package at most.

    A folder and one inside it are one house: imports between them count for neither.
    """
    packages = {module_of(f) for f in python_files(package) if f.name == "__init__.py"}

    def folder(module: str) -> str:
        inside = module if module in packages else module.rpartition(".")[0]
        return ".".join(inside.split(".")[: depth + 1])

    graph: Graph = {}
    for module, targets in file_graph(package).items():
        for target in targets:
            start, end = folder(module), folder(target)
            if not f"{start}.".startswith(f"{end}.") and not f"{end}.".startswith(f"{start}."):
                graph.setdefault(start, set()).add(end)
    return graph


def circle(graph: Graph) -> list[str]:
    """Give the modules of one circle, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def graphs(package: str) -> Iterator[Graph]:
    yield file_graph(package)
    deepest = max(module_of(file).count(".") for file in python_files(package))
    for depth in range(1, deepest + 1):
        yield folder_graph(package, depth)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_form_no_circle(package: str) -> None:
    assert [circle(graph) for graph in graphs(package) if circle(graph)] == []


@pytest.mark.parametrize(
    ("graph", "found"),
    [({"a": {"b"}, "b": {"a"}}, True), ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, False)],
)
def test_a_circle_is_found(graph: Graph, found: bool) -> None:
    assert bool(circle(graph)) is found


def test_the_graphs_see_the_imports() -> None:
    assert "fullrank.cli.output" in file_graph("fullrank")["fullrank.cli.search"]
    assert (
        "fullrank_trainer.features"
        in folder_graph("fullrank_trainer", 1)["fullrank_trainer.systems"]
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_is_longer_than_700_lines(package: str) -> None:
    lines = {relative(f): len(f.read_text("utf-8").splitlines()) for f in python_files(package)}
    too_long = {file for file, count in lines.items() if count > MAX_LINES}
    assert too_long == set()


def tracked_files() -> list[Path]:
    """List what git tracks; skip the test where the project is no checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip(f"git lists no files here: {listed.stderr.decode().strip()}")
    return [ROOT / name for name in listed.stdout.decode().rstrip("\0").split("\0")]


def test_git_tracks_no_binary_and_nothing_above_a_megabyte() -> None:
    files = [file for file in tracked_files() if file.is_file()]
    large = {relative(file) for file in files if file.stat().st_size > MAX_BYTES}
    binary = {relative(file) for file in files if b"\0" in file.read_bytes()}
    binary = {
        name
        for name in binary
        if not name.startswith(
            ("tests/golden/bundles/", "tests/golden/roots/", "docs/pictures/search-")
        )
    }
    assert (large, binary) == (set(), set())


def reachable(files: Iterable[Path]) -> dict[Path, Path]:
    """Follow imports through the project; give each file reached and the file that imports it."""
    known = {module_of(f): f for name in (*PACKAGES, "tests") for f in python_files(name)}
    found = {file: file for file in files}
    todo = list(found)
    while todo:
        file = todo.pop()
        for item in imports_of(file):
            target = known.get(str(item)) or known.get(item.module)
            if target is not None and target not in found:
                found[target] = file
                todo.append(target)
    return found


@pytest.mark.parametrize(
    "place", ["tests/unit/fullrank", "tests/unit/trainer", "tests/unit/cli", "tests/golden"]
)
def test_core_tests_import_no_web_framework(place: str) -> None:
    for file, importer in reachable(python_files(place)).items():
        named = {item.package for item in imports_of(file)}
        unwanted = named & {"fastapi", "starlette", "uvicorn", "redis"}
        assert not unwanted, f"{relative(file)}, imported by {relative(importer)}"
