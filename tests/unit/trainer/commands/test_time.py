"""``fullrank train --time``: which times are understood, and what they limit."""

from __future__ import annotations

import pytest

from fullrank.errors import RecipeError
from trainer.commands.train import time_limits
from trainer.recipes.recipe import load_recipe


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("2m", 120), ("10m", 600), ("1h", 3600), (" 45 ", 45)]
)
def test_a_time_limits_a_search_and_a_single_fit(text: str, seconds: int) -> None:
    recipe = load_recipe("auto").override(time_limits(text))
    assert recipe.auto.seconds == recipe.train.seconds == seconds


@pytest.mark.parametrize("text", ["", "0s", "-1s", "1.5m", "2 d", "m", "9999999"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="write 30s, 2m or 1h"):
        time_limits(text)
