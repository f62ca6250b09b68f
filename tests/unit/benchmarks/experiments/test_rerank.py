"""The experiment of the second stage, on a planted collection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.planted import write_planted

pytest.importorskip("tests.openmp", exc_type=ImportError)

from benchmarks.experiments import rerank

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("few_made_up_words")]


def test_the_gain_is_measured_on_validation_and_on_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_planted(tmp_path / "data" / "tldr" / "en")
    monkeypatch.setenv("FULLRANK_DATA", str(tmp_path / "data"))
    settings = ["dimension=4", "epochs=1", "members=1"]
    words = ["--only", "tldr/en", "--out", str(tmp_path / "out"), "--json"]
    words += [word for setting in settings for word in ("--set", setting)]
    rerank.main(words)
    found = json.loads(capsys.readouterr().out)
    [table] = found["tables"]
    assert table["title"] == "tldr/en: 30 queries of valid, 36 of test"
    assert [row[0] for row in table["rows"]] == ["auto", "fielded", "clicked"]
    for row in table["rows"]:
        cells = dict(zip(table["headings"][7:], row[7:], strict=True))
        first, second = float(row[1]), float(row[2])
        assert float(row[3].split(" ")[0]) == pytest.approx(second - first, abs=0.0011)
        assert cells["decision"] == (
            "on" if cells["ms"] <= "2.00" and second - first >= 0.005 else "off"
        )
    rerank.main(words)
    assert json.loads(capsys.readouterr().out)["tables"] == found["tables"]
