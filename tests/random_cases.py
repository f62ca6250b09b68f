"""How many random cases a sweep tries: few in `make test`, ten times as many in `make test-slow`."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = "thorough"
"""The Hypothesis profile of `make test-slow`; tests/conftest.py registers it."""

_MORE = 10


def cases(few: int) -> settings:
    """Return the settings of a sweep of this many random cases, without a time limit for each."""
    is_thorough = settings.get_current_profile_name() == THOROUGH
    return settings(deadline=None, max_examples=few * _MORE if is_thorough else few)
