"""Test what a fresh clone relies on: pins that fit every Python version, and `make help`."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path
from typing import cast

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
COMMANDS = (
    "install",
    "demo",
    "test",
    "test-fast",
    "test-long",
    "test-slow",
    "check",
    "bench",
    "serve",
    "clean",
)
# Debian 12 ships Python 3.11.2; redis needs async-timeout below 3.11.3.
PYTHON_VERSIONS = ("3.11.0", "3.11.2", "3.11.3", "3.12.0", "3.13.0", "3.14.0")

PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([a-z0-9,-]+)\])?==(\S+)(?: ; ([^\\]+))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


@dataclass(frozen=True)
class Pin:
    """The pinned version of a package, and the extras that the pin names."""

    version: str
    extras: frozenset[str]


def pins(file: Path, environment: dict[str, str] | None = None) -> dict[str, Pin]:
    """Read the pin of each package; with an environment, only the pins that apply there."""
    found: dict[str, Pin] = {}
    for line in file.read_text("utf-8").splitlines():
        match = PIN.match(line)
        if match is None:
            continue
        name, extras, version, marker = match.groups()
        if environment is None or not marker or Marker(marker).evaluate(environment):
            assert name not in found, f"{file.name} pins {name} twice"
            found[name] = Pin(version, frozenset(extras.split(",") if extras else ()))
    return found


def environment_of(python: str) -> dict[str, str]:
    """Give the marker environment of a Python version on Linux."""
    environment = cast(dict[str, str], dict(default_environment()))
    minor = ".".join(python.split(".")[:2])
    return environment | {"python_version": minor, "python_full_version": python}


@cache
def own_requirements(extra: str) -> list[Requirement]:
    """Read what pyproject.toml asks for, without any extra and with one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = [*map(Requirement, project["dependencies"])]
    for need in map(Requirement, project["optional-dependencies"][extra]):
        own = need.name == project["name"]
        found += chain(*map(own_requirements, need.extras)) if own else [need]
    return found


@cache
def installed_requirements(name: str) -> tuple[SpecifierSet, list[Requirement]]:
    """Read an installed package's Python versions and requirements; anything fits if it is absent."""
    try:
        package = distribution(name)
    except PackageNotFoundError:  # pinned for another Python version than this one
        return SpecifierSet(), []
    python = SpecifierSet(",".join(package.metadata.get_all("Requires-Python") or []))
    return python, [Requirement(line) for line in package.requires or []]


def missing_pins(extra: str, file: Path, python: str) -> Iterator[str]:
    """Walk the requirements of an extra and yield each that the file does not satisfy."""
    environment = environment_of(python)
    pinned = pins(file, environment)
    todo = [(need, "") for need in own_requirements(extra)]
    seen: set[tuple[str, str]] = set()
    while todo:
        need, parent_extra = todo.pop()
        if need.marker and not need.marker.evaluate(environment | {"extra": parent_extra}):
            continue
        name = canonicalize_name(need.name)
        pin = pinned.get(name)
        if pin is None or not need.specifier.contains(pin.version, prereleases=True):
            yield f"{need} is not satisfied by pin {pin}"
        elif not need.extras <= pin.extras:
            yield f"{need} needs a pin that names its extras"
        versions, needs = installed_requirements(name)
        if not versions.contains(python):
            yield f"{name} needs Python {versions}"
        for part in {"", *need.extras} - {done for package, done in seen if package == name}:
            seen.add((name, part))
            todo += [(child, part) for child in needs]


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.name)
def test_every_line_is_a_hashed_pin_and_names_no_address(file: Path) -> None:
    for line in file.read_text("utf-8").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            assert PIN.match(line) or HASH.match(line), line
        assert "://" not in line
        assert not re.search(r"--(index|extra|find|trusted)|(^|\s)/|\bfile:/", line), line
    assert pins(file)


@pytest.mark.parametrize(
    ("extra", "file"),
    [
        ("service", "service"),
        ("trainer", "trainer"),
        ("ray", "fleet"),
        *(
            (extra, "dev")
            for extra in ("all", "import", "postgresql", "qdrant", "site", "tracing", "dev")
        ),
        *((extra, "integrations") for extra in ("langchain", "llamaindex", "haystack", "mcp")),
    ],
)
@pytest.mark.parametrize("python", PYTHON_VERSIONS)
def test_pins_satisfy_every_requirement_on_every_python(extra: str, file: str, python: str) -> None:
    found = missing_pins(extra, ROOT / "requirements" / f"{file}.txt", python)
    assert list(found) == []


def test_the_missing_pin_of_an_older_python_is_found(tmp_path: Path) -> None:
    text = (ROOT / "requirements" / "service.txt").read_text("utf-8")
    broken = tmp_path / "service.txt"
    broken.write_text(text.replace("async-timeout==", "another-package=="), "utf-8")
    assert any("async-timeout" in line for line in missing_pins("service", broken, "3.11.2"))
    assert list(missing_pins("service", broken, "3.11.3")) == []


def test_a_pin_without_an_extra_that_a_package_asks_for_is_found(tmp_path: Path) -> None:
    # pip before 23.3 takes the newest release for `coverage[toml]` if only `coverage` is pinned, and has no hash of it.
    text = (ROOT / "requirements" / "dev.txt").read_text("utf-8")
    broken = tmp_path / "dev.txt"
    broken.write_text(text.replace("coverage[toml]==", "coverage=="), "utf-8")
    assert any("coverage[toml]" in line for line in missing_pins("dev", broken, "3.11.2"))


def test_the_files_agree_on_every_version() -> None:
    names = [file.stem for file in REQUIREMENTS]
    assert names == ["build", "dev", "fleet", "integrations", "service", "trainer"]
    everything = pins(ROOT / "requirements" / "dev.txt")
    for file in REQUIREMENTS:
        for name, pin in pins(file).items():
            if file.stem == "integrations" and name not in everything:
                continue
            assert pin.version == everything[name].version, name


def test_the_trainer_installs_no_web_server() -> None:
    assert not {"fastapi", "uvicorn", "redis"} & set(pins(ROOT / "requirements" / "trainer.txt"))


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make on PATH")
def test_make_help_explains_every_command() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    explained = dict(re.findall(r"^  make (\S+) +(\S.*)$", done.stdout, re.MULTILINE))
    for command in COMMANDS:
        assert explained.get(command), f"make help does not explain {command}"
