"""``fullrank train --time``: which times are understood."""

from __future__ import annotations

import pytest

from fullrank.errors import RecipeError
from fullrank_trainer.commands.train import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("2m", 120), ("10m", 600), ("1h", 3600), (" 45 ", 45)]
)
def test_a_time_has_a_unit(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "-1s", "1.5m", "2 d", "m", "9999999"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="write 30s, 2m or 1h"):
        seconds_of(text)
