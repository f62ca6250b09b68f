"""``fullrank train``, ``recipes`` and ``demo``."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from fullrank.errors import TrainingError
from fullrank.measures import MEASURES, Estimate
from fullrank_trainer.recipes.recipe import recipe_names
from fullrank_trainer.recipes.systems import systems
from fullrank_trainer.training.loop import Interrupted
from tests.bundles import make_bundle
from tests.planted import write_planted
from tests.ports import free_port
from tests.unit.cli.running import Run, stub_training


def test_train_passes_every_option_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[Any, Any]] = []

    estimates = {name: Estimate(0.25, 0.125) for name in MEASURES}
    rows = [
        SimpleNamespace(system="bm25", split=split, queries=9, measures=estimates)
        for split in ("new", "cold", "typed", "typed title")
    ]

    def fake_train(*args: object, **options: object) -> object:
        calls.append((args, options))
        return SimpleNamespace(
            path=tmp_path / "mine" / "mine-1",
            table=rows,
            seconds=1.5,
            as_dict=lambda: {"version": "mine-1", "table": [{"system": "bm25"}]},
        )

    stub_training(monkeypatch, fake_train)
    got = run(
        *("train", tmp_path / "c", "--out", tmp_path, "--name", "mine", "--recipe", "ssi"),
        *(
            "--set",
            "a=1",
            "--set",
            "b=2",
            "--init",
            "words.vec",
            "--seed",
            "7",
            "--threads",
            "2",
            "--resume",
            "--fields",
            "title, brand",
            "--strict",
            "--json",
        ),
    )
    assert got.code == 0
    ((args, options),) = calls
    assert args == (tmp_path / "c", tmp_path, "mine")
    options.pop("reporter")
    assert options == {
        "recipe": "ssi",
        "overrides": ["a=1", "b=2", "train.vectors=words.vec"],
        "start": None,
        "seed": 7,
        "threads": 2,
        "resume": True,
        "strict": True,
        "rerank": None,
        "exported_from": None,
        "fields": ["title", "brand"],
        "seconds": None,
        "memory": None,
    }
    assert json.loads(got.out) == {"version": "mine-1", "table": [{"system": "bm25"}]}
    table = run("train", tmp_path / "c", "--out", tmp_path, "--name", "mine")
    assert "mine-1 on 9 queries of new, 9 queries of cold" in table.out
    assert "cold: queries that ask for documents of which this comparison learned no" in table.out
    assert "0.250 ± 0.125" in table.out
    assert "title (9)" in table.out
    assert "typed title" not in table.out
    assert "mine-1 in 2 s" in table.out
    earlier = make_bundle(tmp_path / "bundles", "shop")
    arguments = ("--from", tmp_path / "bundles" / "shop")
    assert run("train", tmp_path / "c", "--out", tmp_path, "--name", "mine", *arguments).code == 0
    assert calls[-1][1]["start"].name == earlier
    assert calls[-1][1]["recipe"] is None


def test_a_time_limit_is_given_as_time(run: Run) -> None:
    """Typer would take the name of an option without one of its own from its metavar."""
    got = run("train", "missing", "--out", "x", "--name", "x", "--time", "2 d")
    assert (got.code, got.err) == (1, "fullrank: --time '2 d' is no time; write 30s, 2m or 1h\n")


RESUMED = "interrupted in epoch 2; --resume continues after epoch 1"


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (TrainingError("nothing to learn from:\n no train split"), 1, "nothing to learn from: no train split"),
        (KeyboardInterrupt(), 130, None),
        (Interrupted(RESUMED), 130, RESUMED),
    ],
)  # fmt: skip
def test_a_training_that_ends_early_has_its_code_and_one_line(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: BaseException,
    code: int,
    printed: str | None,
) -> None:
    stub_training(monkeypatch, Mock(side_effect=error))
    got = run("train", tmp_path, "--out", tmp_path, "--name", "mine")
    assert (got.code, got.err) == (code, f"fullrank: {printed}\n" if printed else "")


def test_an_interrupt_in_a_compiled_kernel_ends_with_130(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Numba calls Python to pack a result, overlooks the exception, and CPython raises SystemError from it."""

    def fail(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            once = SystemError("a kernel returned a result with an exception set")
            once.__cause__ = interrupt
            raise SystemError("a dispatcher returned a result with an exception set") from once

    stub_training(monkeypatch, fail)
    got = run("train", tmp_path, "--out", tmp_path, "--name", "mine")
    assert (got.code, got.err) == (130, "")


def test_another_error_of_the_interpreter_is_not_taken_for_an_interrupt(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SystemError("a bug") from ValueError()

    stub_training(monkeypatch, fail)
    with pytest.raises(SystemError, match="a bug"):
        run("train", tmp_path, "--out", tmp_path, "--name", "mine")


def test_a_second_stage_without_lightgbm_names_the_extra_before_any_training(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fail = Mock(side_effect=AssertionError("trained"))
    stub_training(monkeypatch, fail)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    monkeypatch.delitem(sys.modules, "fullrank_trainer.rerank.boosting", raising=False)
    got = run("train", tmp_path, "--out", tmp_path, "--name", "mine", "--rerank")
    assert got.code == 1
    assert got.err == "fullrank: needs lightgbm; install it with: pip install 'fullrank[rerank]'\n"


def test_a_second_stage_without_openmp_names_the_package_of_the_system(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "lightgbm"
    folder.mkdir()
    reason = "libgomp.so.1: cannot open shared object file"
    (folder / "__init__.py").write_text(f"raise OSError({reason!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("lightgbm", "fullrank_trainer.rerank.boosting"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    got = run("train", tmp_path, "--out", tmp_path, "--name", "mine", "--rerank")
    assert got.code == 1
    assert got.err == (
        f"fullrank: LightGBM cannot be loaded: {reason}; on Debian: apt-get install libgomp1\n"
    )


def test_recipes_take_one_line_each_at_80_columns(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("recipes").out.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert [line.split()[0] for line in lines[1:-1]] == recipe_names()
    assert "BM25 over all text fields." in lines[recipe_names().index("bm25") + 1]


def test_recipes_are_listed_as_json(run: Run) -> None:
    lines = json.loads(run("recipes", "--json").out)
    assert [line["recipe"] for line in lines] == recipe_names()
    for line in lines:
        assert line["about"].endswith(".")
        assert line["system"] in systems()


def test_demo_finds_its_port_taken_before_it_touches_anything(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        got = run("demo", "--port", str(port), "--out", tmp_path / "demo")
    assert (got.code, got.out) == (1, "")
    assert got.err.startswith(f"fullrank: port {port}: Address already in use")
    assert len(got.err.splitlines()) == 1
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_a_second_demo_uses_what_the_first_trained_and_serves_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It retrains only what is missing or damaged, and deletes nothing."""
    served: list[tuple[object, ...]] = []
    service = ModuleType("fullrank_service.process.run")
    service.serve = lambda *args: served.append(args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fullrank_service.process.run", service)
    monkeypatch.setattr("fullrank_trainer.collection.demo.write_demo_collection", write_planted)
    folder = tmp_path / "demo"
    port = str(free_port())
    first = run("demo", "--port", port, "--out", folder, "--seconds", "5")
    assert first.code == 0, first.err
    assert served == [(folder / "bundles", "127.0.0.1", int(port), 1)]
    (folder / "bundles" / "documents.sqlite").write_text("acknowledged writes")
    trained = sorted((folder / "bundles").glob("*/*"))
    assert [path.parent.name for path in trained] == ["bm25", "demo"]
    second = run("demo", "--port", port, "--out", folder, "--seconds", "5")
    assert second.code == 0
    assert second.err.count("trained before on the same collection") == 2
    assert sorted((folder / "bundles").glob("*/*")) == trained
    assert (folder / "bundles" / "documents.sqlite").read_text() == "acknowledged writes"
    (trained[0] / "golden.jsonl").chmod(0o644)
    (trained[0] / "golden.jsonl").write_text("")
    third = run("demo", "--no-serve", "--out", folder, "--seconds", "5")
    assert third.err.count("trained before on the same collection") == 1
    assert len(sorted((folder / "bundles" / "bm25").iterdir())) == 2


def test_a_name_that_is_too_long_is_refused_before_the_collection_is_read(
    run: Run, tmp_path: Path
) -> None:
    got = run("train", tmp_path / "missing", "--out", tmp_path, "--name", "a" * 75)
    assert got.code == 1
    assert "cannot name a bundle" in got.err
