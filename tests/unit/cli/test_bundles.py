"""``fullrank bundles list``, ``show`` and ``verify``."""

from __future__ import annotations

import json
from pathlib import Path

from fullrank.events.decisions import write_decisions
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


def test_show_prints_what_the_loop_decided_about_a_version(run: Run, root: Path) -> None:
    assert json.loads(run("bundles", "show", root / "mine", "--json").out)["decisions"] == []
    (version,) = (path.name for path in (root / "mine").iterdir())
    trained = {"at": 0.0, "name": "mine", "did": "trained", "retrained": "mine-0"}
    trained["report"] = {"published": version}
    votes = {"wins": 31, "losses": 9, "e_value": 28.41}
    promoted = {"at": 86_400.0, "name": "mine", "did": "promoted", "active": "mine-0"}
    promoted |= {"candidate": version, **votes}
    other = promoted | {"candidate": "mine-7"}
    failed = {"at": 1.0, "name": "mine", "did": "trained, not published", "retrained": "mine-0"}
    write_decisions(root, [trained, {**failed, "report": {"published": None}}, other, promoted])
    shown = json.loads(run("bundles", "show", root / "mine", "--json").out)
    assert shown["decisions"] == [trained, promoted]
    lines = [
        line.split(maxsplit=1)[1]
        for line in run("bundles", "show", root / "mine").out.splitlines()
        if line.startswith("decision")
    ]
    words = " ".join(lines)
    assert f"1970-01-01 00:00 UTC  trained: {version} against mine-0" in words
    assert f"1970-01-02 00:00 UTC  promoted: {version} against mine-0, 31" in words


def test_a_damaged_file_of_decisions_is_one_line(run: Run, root: Path) -> None:
    (root / "loop.json").write_text("[1")
    got = run("bundles", "show", root / "mine")
    assert got.code == 1
    assert len(got.err.splitlines()) == 1
    assert "loop.json" in got.err


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


def test_checkpoints_of_a_training_are_no_bundle(run: Run, root: Path) -> None:
    (root / ".training" / "mine").mkdir(parents=True)
    assert run("bundles", "verify", root).code == 0
    assert run("bundles", "show", root).code == 0
