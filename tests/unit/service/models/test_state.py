"""The state file beside the bundles: replaced atomically, checked, locked."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from fullrank.storage.files import fingerprint
from fullrank_service.base.experiment import Active, Experiment
from fullrank_service.models.state import (
    STATE,
    ActiveState,
    Locked,
    StateDamaged,
    lock,
    parse_state,
    read_state,
    write_state,
)


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    tried = Experiment("b-1", 0.2, 1_800_000_000.5, 14)
    others = {"d": Active("d-1", "1" * 64, "d-0", tried), "e": Active()}
    state = ActiveState(3, "a-1", "0" * 64, ("b-1", "c-1"), "a-0", tried, others)
    assert read_state(tmp_path) is None
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


def test_a_failed_write_leaves_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path, ActiveState(1, "a-1"))

    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError):
        write_state(tmp_path, ActiveState(2, "b-1"))
    assert read_state(tmp_path) == ActiveState(1, "a-1")
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"generation": 1',
        '{"generation": "1", "version": null, "manifest_sha256": null, "loaded": []}',
        '{"generation": true, "version": null, "manifest_sha256": null, "loaded": []}',
        '{"generation": 1, "version": 2, "manifest_sha256": null, "loaded": []}',
        '{"generation": 1, "version": null, "manifest_sha256": null, "loaded": [1]}',
        '{"generation": 1, "version": null, "manifest_sha256": null, "loaded": null}',
        '{"generation": 1, "version": null, "manifest_sha256": null, "loaded": [], "experiment": 1}',
        '{"generation": 1, "version": null, "manifest_sha256": null, "loaded": [], "experiment": {}}',
        '{"generation": 1, "version": null, "manifest_sha256": null, "loaded": [], "experiment": '
        '{"candidate": 1, "share": 0.2, "started": 1, "max_days": 1}}',
    ],
)
def test_a_damaged_state_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE).write_text(text)
    with pytest.raises(StateDamaged, match=STATE):
        read_state(tmp_path)


def test_every_replacement_changes_the_fingerprint(tmp_path: Path) -> None:
    seen = [fingerprint(tmp_path / STATE)]
    for generation in (1, 2, 3):
        write_state(tmp_path, ActiveState(generation, "a-1"))
        seen.append(fingerprint(tmp_path / STATE))
    assert seen[0] is None
    assert all(one != after for one, after in pairwise(seen))


def test_only_one_process_can_lock_the_state(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(Locked), lock(tmp_path):
        pass
    with lock(tmp_path):
        pass


def test_a_damaged_state_says_what_is_wrong_without_an_empty_field() -> None:
    with pytest.raises(StateDamaged, match=r"^active\.json: Invalid JSON"):
        parse_state(b"{")
