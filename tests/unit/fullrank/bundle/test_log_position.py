"""Which live documents a bundle contains, in its manifest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fullrank.bundle.manifest import LogPosition, Manifest, bundle_id, parse_manifest
from fullrank.errors import BundleError


def text_of(position: Any) -> str:
    model = {"kind": "linear"}
    manifest = Manifest(
        "docs", "docs-1", bundle_id({}, model), "2026-01-01T00:00:00+00:00", model, {}, {}
    )
    value = json.loads(manifest.dump())
    del value["checksum"]
    return json.dumps(value if position is None else {**value, "log_position": position})


def test_a_log_position_is_read_as_it_was_written() -> None:
    assert parse_manifest(text_of(None)).log_position is None
    read = parse_manifest(text_of({"log": "ab", "seq": 7}))
    assert read.log_position == LogPosition("ab", 7)
    assert parse_manifest(read.dump()) == read


@pytest.mark.parametrize(
    "position",
    [
        7,
        {},
        {"log": "ab"},
        {"log": "ab", "seq": -1},
        {"log": "ab", "seq": True},
        {"log": "ab", "seq": "7"},
        {"log": 7, "seq": 7},
        {"log": "ab", "seq": 7, "more": 1},
    ],
)
def test_a_malformed_log_position_is_refused(position: Any) -> None:
    with pytest.raises(BundleError, match="log_position"):
        parse_manifest(text_of(position))
