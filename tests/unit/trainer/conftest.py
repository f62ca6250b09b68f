"""Fixtures of the tests of the trainer."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _train_fast(few_made_up_words: None) -> None:
    """Calibrate floors quickly in all files but test_floor.py."""
