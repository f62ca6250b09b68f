"""Note what is synced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def noted_syncs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the path of each file and folder that is synced from now on."""
    synced: list[Path] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return synced
