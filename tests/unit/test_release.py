"""What a release says of itself: version, changelog, bill of materials, licences, and pinned workflows."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from fullrank import __version__

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "release.py"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(release: ModuleType, tmp_path: Path) -> Path:
    for name in ("CHANGELOG.md", *release.PLACES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    return tmp_path


def test_a_version_is_set_in_every_file(release: ModuleType, copy: Path) -> None:
    release.set_version(copy, "7.0.0", "2026-12-01")
    for name, line in release.PLACES.items():
        text = (copy / name).read_text()
        assert line.format("7.0.0") in text
        assert line.format(__version__) not in text
    changes = (copy / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n\n## [7.0.0] - 2026-12-01\n\n###" in changes
    with pytest.raises(SystemExit, match="nothing stands"):
        release.set_version(copy, "7.0.1", "2026-12-02")


@pytest.mark.parametrize("version", ["0.0.1", __version__, "1.0", "v1.0.0"])
def test_a_version_that_is_none_changes_nothing(
    version: str, release: ModuleType, copy: Path
) -> None:
    with pytest.raises(SystemExit, match="not "):
        release.set_version(copy, version, "2026-12-01")
    assert (copy / "CHANGELOG.md").read_text() == (ROOT / "CHANGELOG.md").read_text()


def package(name: str, **facts: Any) -> dict[str, Any]:
    return {"name": name, "version": "1.0", **facts}


OWN = package("fullrank", license_expression="MIT")


def test_the_bill_names_each_package_and_its_licence(release: ModuleType, tmp_path: Path) -> None:
    found = [
        OWN,
        package("pip", license="MIT"),
        package("b_b", license="BSD 3\nall of its text"),
        package("a", classifier=["License :: OSI Approved :: MIT License"]),
        package("c", license_expression="MIT OR GPL-2.0-only"),
        package("d", license_expression="BSD-3-Clause AND GPL-3.0-or-later WITH GCC-exception-3.1"),
    ]
    release.about(found, tmp_path)
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert [part["purl"] for part in bill["components"]] == [
        f"pkg:pypi/{name}@1.0" for name in ("a", "b-b", "c", "d")
    ]
    lines = (tmp_path / "licences.txt").read_text().splitlines()
    assert lines[:2] == ["a 1.0: MIT License", "b_b 1.0: BSD 3"]


@pytest.mark.parametrize(
    "facts",
    [
        {"license_expression": "GPL-3.0-only"},
        {"license_expression": "MIT AND AGPL-3.0-or-later"},
        {"classifier": ["License :: OSI Approved :: GNU General Public License v3 (GPLv3)"]},
        {},
    ],
)
def test_a_licence_that_may_not_be_there_ends_the_release(
    facts: dict[str, Any], release: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="may not have: bad"):
        release.about([OWN, package("bad", **facts)], tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=str)
def test_workflows_pin_actions_and_run_commands_that_there_are(path: Path) -> None:
    text = path.read_text()
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used
    for action, remark in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+(\.\d+)*", remark), action
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", text)) <= made
    jobs = yaml.safe_load(text)["jobs"].values()
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in jobs)
