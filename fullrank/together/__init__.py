"""Documents that the same people clicked in one session."""

from fullrank.together.lift import MIN_PEOPLE, Click, Together, together

__all__ = ["MIN_PEOPLE", "Click", "Together", "together"]
