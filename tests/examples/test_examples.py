"""Every example runs, one of them as a program of its own, and prints what it promises to show."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fullrank_service.app import create_app
from tests.api.support import bridged, settings_for

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SHARED = {"__init__", "shop"}
SHOWS = {
    "train_from_clicks": ["auto     MRR, known: 0.", "gumboots → ['", "rain boots"],
    "search_from_python": ["certified: True", "acme rain boots", "lexical 4", "up to 40: [("],
    "filter_and_facets": ["30 products, 8 of two brands up to 60", "numbers, not text"],
    "live_documents": ["again: true", "found: ['polar umbrella'", "'status': 422", "'wool hat'"],
    "hot_swap": ["generation 1, shop-", "compare: generation 1", "rolled back: generation 3"],
    "trec_run": ["ndcg@10", "ir-measures"],
}


PROGRAM = "hot_swap"  # runs also as a user runs it, with a server of its own process


@contextmanager
def serving(bundles: Path, **settings: str) -> Iterator[httpx.Client]:
    """Stand in for the server of the examples, in this process."""
    with (
        bridged(create_app(settings_for(bundles, **settings))) as transport,
        httpx.Client(base_url="http://example", transport=transport) as client,
    ):
        yield client


@pytest.mark.usefixtures("few_made_up_words")
@pytest.mark.parametrize("name", sorted(SHOWS))
def test_example_prints_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("examples.shop.serving", serving)
    # Another example may have imported it, and runpy warns of that.
    monkeypatch.delitem(sys.modules, f"examples.{name}", raising=False)
    runpy.run_module(f"examples.{name}", run_name="__main__")
    output = capsys.readouterr().out
    for text in SHOWS[name]:
        assert text in output
    if name == "trec_run":
        for line in output.splitlines():
            _, _, ours, _, theirs = line.split()
            assert ours == theirs


@pytest.mark.sweep
def test_an_example_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{PROGRAM}"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for text in SHOWS[PROGRAM]:
        assert text in done.stdout


def test_every_example_is_tested_and_short() -> None:
    programs = {path.stem: path for path in EXAMPLES.glob("*.py") if path.stem not in SHARED}
    assert set(programs) == set(SHOWS)
    for path in programs.values():
        assert len(path.read_text("utf-8").splitlines()) <= 60, path.name


def test_every_example_says_how_to_run_it() -> None:
    for name in SHOWS:
        assert f"python -m examples.{name}" in (EXAMPLES / f"{name}.py").read_text("utf-8")
