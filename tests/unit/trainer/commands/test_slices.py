"""``fullrank train --ray``: what reaches the function of the fleet, and which options need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fullrank.errors import FullrankError, RecipeError
from fullrank_trainer.commands import train as module
from fullrank_trainer.commands.train import seconds_of
from fullrank_trainer.train import TrainResult


def test_options_reach_the_fleet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def load(*names: str) -> Any:
        def train(*arguments: Any, **options: Any) -> TrainResult:
            asked.append((names, arguments, options))
            return TrainResult(tmp_path / "planted-1", [], 1.0, None)  # type: ignore[arg-type]

        return train

    monkeypatch.setattr(module, "load", load)
    module.train(
        tmp_path, tmp_path, "planted", ray="auto", slices=16, scratch="s3://x", resume=True
    )
    [(names, arguments, options)] = asked
    assert names == ("train", "fullrank.fleet")
    assert arguments == (tmp_path, tmp_path, "planted")
    expected = {
        "address": "auto", "slices": 16, "rounds": None, "scratch": "s3://x", "resume": True,
        "recipe": None, "seed": 1, "threads": None,
    }  # fmt: skip
    assert {name: options[name] for name in expected} == expected
    assert "planted-1" in capsys.readouterr().out


@pytest.mark.parametrize("option", [{"slices": 4}, {"rounds": 2}, {"scratch": "s3://x"}])
def test_options_of_a_cluster_need_one(option: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FullrankError, match="--slices, --rounds and --scratch need --ray"):
        module.train(tmp_path, tmp_path, "planted", **option)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("2m", 120), ("10m", 600), ("1h", 3600), (" 45 ", 45)]
)
def test_a_time_has_a_unit(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "-1s", "1.5m", "2 d", "m", "9999999"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="write 30s, 2m or 1h"):
        seconds_of(text)
