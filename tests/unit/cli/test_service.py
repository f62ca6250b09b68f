"""``fullrank serve`` and ``keys``, without a service."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.cli.running import Run


def test_serve_passes_its_options_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[object, ...]] = []
    service = ModuleType("fullrank_service.process.run")
    service.serve = lambda *args: calls.append(args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fullrank_service.process.run", service)
    assert run("serve", "--bundles", tmp_path, "--port", "9000", "--workers", "2").code == 0
    assert run("serve").code == 0
    assert calls == [(tmp_path, None, 9000, 2), (None, None, None, None)]


def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "fullrank_service.process.run", None)
    got = run("serve", "--bundles", tmp_path)
    assert got.code == 1
    assert "pip install 'fullrank[service]'" in got.err


@pytest.mark.parametrize("days", ["inf", "nan", "0", "1e10"])
def test_keys_refuse_days_that_are_not_a_positive_number(
    run: Run, tmp_path: Path, days: str
) -> None:
    file = tmp_path / "keys.json"
    got = run("keys", "create", "--scope", "search", "--days", days, "--file", file)
    assert (got.code, got.out) == (2, "")
    assert "--days" in got.err
    assert not file.exists()


def test_the_first_key_says_that_it_closes_the_service(run: Run, tmp_path: Path) -> None:
    create = ("keys", "create", "--scope", "search", "--file", tmp_path / "keys.json")
    assert "FULLRANK_ANONYMOUS=search" in run(*create).err
    assert "FULLRANK_ANONYMOUS" not in run(*create).err
