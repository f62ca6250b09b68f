"""``fullrank bundles list``, ``show`` and ``verify``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.running import Run


def test_list_prints_bundles(run: Run, root: Path) -> None:
    got = run("bundles", "list", root, "--json")
    (listed,) = json.loads(got.out)
    assert listed["name"] == "mine"
    assert listed["version"].startswith("mine-")
    assert Path(listed["path"]).is_dir()
    table = run("bundles", "list", root).out.splitlines()
    assert listed["version"] in table[1]


def test_show_prints_the_model_card(run: Run, root: Path) -> None:
    shown = json.loads(run("bundles", "show", root / "mine", "--json").out)
    assert shown["model"] == {"kind": "counting"}
    assert shown["card"]["recipe"] == "counting"
    assert "card.metrics.mrr" in run("bundles", "show", root / "mine").out


def test_verify_names_the_damaged_file(run: Run, root: Path) -> None:
    good = run("bundles", "verify", root)
    assert good.code == 0
    assert good.out.rstrip().endswith(": ok")
    (version,) = (root / "mine").iterdir()
    golden = version / "golden.jsonl"
    golden.write_bytes(golden.read_bytes().replace(b"ant", b"and"))
    bad = run("bundles", "verify", root, "--json")
    assert bad.code == 1
    assert bad.err == "fullrank: 1 of 1 bundles failed verification\n"
    (verdict,) = json.loads(bad.out)
    assert verdict["ok"] is False
    assert "golden.jsonl" in verdict["error"]


def test_verify_reports_a_folder_without_a_manifest(run: Run, root: Path) -> None:
    (root / "mine" / "mine-half").mkdir()
    got = run("bundles", "verify", root)
    assert got.code == 1
    assert "mine-half" in got.out
