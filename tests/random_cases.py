"""How many random cases a sweep tries: few in `make test`, twenty times as many in `make test-slow`."""

from __future__ import annotations

from hypothesis import settings

UNTIMED, THOROUGH = "untimed", "thorough"
"""The Hypothesis profiles of `make test` and of `make test-slow`; tests/conftest.py registers them."""

_MORE = 20
FEW, MANY = 50, 50 * _MORE
"""The cases of a test that names no number."""


def cases(few: int) -> settings:
    """Return the settings of a sweep of this many random cases."""
    is_thorough = settings.get_current_profile_name() == THOROUGH
    return settings(max_examples=few * _MORE if is_thorough else few)
