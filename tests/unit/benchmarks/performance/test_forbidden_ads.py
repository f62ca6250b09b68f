"""Random requests place no forbidden ad, and the search for one finds those of a service without rules."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.performance.forbidden_ads import Found, look
from fullrank.ads.rules import REASONS, AdRules, PriceFloor
from tests.bundles import make_bundle


def looked(root: Path, requests: int) -> Found:
    version = make_bundle(root, "any", n_dense=4)
    return asyncio.run(look(root / "any" / version, requests, ads=120, seed=3))


def test_no_request_places_a_forbidden_ad(tmp_path: Path) -> None:
    found = looked(tmp_path, 300)
    assert found.forbidden == {}
    assert found.requests == 300
    assert found.hits > 200
    # Every rule of a request, and most of those of an ad, left something out.
    silent = {*REASONS[1:]} - found.left_out.keys()
    assert silent <= {"malformed", "start", "end", "budget", "cap"}


def test_a_service_without_rules_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (AdRules, PriceFloor):
        monkeypatch.setattr(kind, "_rules", lambda self, table: ())
    found = looked(tmp_path, 60)
    expected = {
        "cur",
        "cattax",
        "bcat",
        "acat",
        "badv",
        "wseat",
        "bseat",
        "battr",
        "bidfloor",
        "bidfloorcur",
    }
    assert found.forbidden.keys() == expected
