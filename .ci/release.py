"""Make what a release needs besides its packages; `make release` runs it.

release.py version 0.2.0    set the version, date the changelog, commit, tag v0.2.0
release.py about DIST       write the SBOM (CycloneDX 1.6) and the licences of an environment
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "fullrank/__init__.py": '__version__ = "{}"',
    "deploy/kubernetes/service/kustomization.yaml": 'newTag: "{}"',
}
# Who distributes the whole must then follow it. The exceptions of compilers are for that.
_GPL = re.compile(r"\bA?GPL|GNU (Affero )?General Public", re.IGNORECASE)
_EXCEPTED = re.compile(r"GPL\S* WITH \S+-exception\S*", re.IGNORECASE)


def set_version(root: Path, version: str, day: str) -> None:
    """Set the version in every file that has it, and make the unreleased changes its own."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise SystemExit(f"{version}: not a version such as 0.2.0")
    old = re.findall(r'__version__ = "([^"]+)"', (root / "fullrank/__init__.py").read_text())[0]
    if tuple(map(int, version.split("."))) <= tuple(map(int, old.split("."))):
        raise SystemExit(f"{version}: not above the version {old}")
    changes = root / "CHANGELOG.md"
    before, heading, after = changes.read_text().partition("## [Unreleased]\n")
    if not after.split("\n## [")[0].strip():
        raise SystemExit("CHANGELOG.md: nothing stands under [Unreleased]")
    changes.write_text(f"{before}{heading}\n## [{version}] - {day}\n{after}")
    for name, line in PLACES.items():
        text = (root / name).read_text()
        if line.format(old) not in text:
            raise SystemExit(f"{name}: does not have the version {old}")
        (root / name).write_text(text.replace(line.format(old), line.format(version)))


def licence(metadata: Mapping[str, Any]) -> str:
    """Return the licence that a package states, in its newest form."""
    classified = [
        name.rpartition(" :: ")[2]
        for name in metadata.get("classifier", ())
        if name.startswith("License :: ")
    ]
    stated = metadata.get("license", "").strip().splitlines()
    return str(
        metadata.get("license_expression")
        or " AND ".join(classified)
        or (stated[0] if stated else "unknown")
    )


def is_forbidden(licence: str) -> bool:
    """Return whether a licence is of the GPL, which reaches what is distributed with it."""
    alternatives = _EXCEPTED.sub("", licence).split(" OR ")
    return all(_GPL.search(one) for one in alternatives)


def bill(packages: Iterable[Mapping[str, Any]], version: str) -> dict[str, Any]:
    """Return the bill of materials of a release."""
    components = [
        {
            "type": "library",
            "name": package["name"],
            "version": package["version"],
            "purl": f"pkg:pypi/{package['name'].lower().replace('_', '-')}@{package['version']}",
            "licenses": [{"license": {"name": licence(package)}}],
        }
        for package in packages
    ]
    about = {"type": "application", "name": "fullrank", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": components,
    }


def installed() -> list[dict[str, Any]]:
    """Return the metadata of the packages of this environment; not every pip prints all of it."""
    return [
        {
            "name": package.metadata["Name"],
            "version": package.version,
            "license_expression": package.metadata.get("License-Expression"),
            "license": package.metadata.get("License", ""),
            "classifier": package.metadata.get_all("Classifier") or (),
        }
        for package in distributions()
    ]


def about(found: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write sbom.json and licences.txt. Raises SystemExit where a licence is forbidden or unknown."""
    [own] = [package["version"] for package in found if package["name"] == "fullrank"]
    others = sorted(
        (p for p in found if p["name"] not in ("fullrank", "pip", "setuptools")),
        key=lambda package: str(package["name"]).lower(),
    )
    (folder / "sbom.json").write_text(json.dumps(bill(others, own), indent=1) + "\n")
    lines = [f"{p['name']} {p['version']}: {licence(p)}\n" for p in others]
    (folder / "licences.txt").write_text("".join(lines))
    bad = [
        f"{p['name']} ({licence(p)})"
        for p in others
        if is_forbidden(licence(p)) or licence(p) == "unknown"
    ]
    if bad:
        raise SystemExit(f"licences that the default install may not have: {', '.join(bad)}")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["version", version]:
            changed = subprocess.run(
                ["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True
            )
            if changed.stdout:
                raise SystemExit("there are changes that are not committed")
            set_version(ROOT, version, f"{datetime.now(UTC):%Y-%m-%d}")
            for command in (
                ["commit", "--quiet", "--all", "--message", f"release: {version}"],
                ["tag", "--annotate", "--message", f"Fullrank {version}", f"v{version}"],
            ):
                subprocess.run(["git", *command], cwd=ROOT, check=True)
        case ["about", folder]:
            about(installed(), Path(folder))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
