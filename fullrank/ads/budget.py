"""What an ad may have spent at a moment: its budget, and with even pacing the share of the time that has passed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.ads.ad import Ad
from fullrank.ads.pacing import DAY_S

Float64 = npt.NDArray[np.float64]


class Budgets:
    """The budgets of k ads, as arrays.

    Args:
        ads: Ads with a budget.
    """

    def __init__(self, ads: list[Ad]) -> None:
        budgets = [ad.budget for ad in ads if ad.budget is not None]
        self._amount = np.array([budget.amount for budget in budgets], np.float64)
        self._daily = np.array(
            [np.inf if budget.daily is None else budget.daily for budget in budgets], np.float64
        )
        self._is_even = np.array([budget.is_even for budget in budgets], np.bool_)
        self._is_daily_even = self._is_even & np.isfinite(self._daily)
        start, end = (np.array([getattr(ad, name) for ad in ads]) for name in ("start", "end"))
        is_bounded = np.isfinite(start) & np.isfinite(end)
        self._start: Any = np.where(is_bounded, start, 0.0)
        # Without a start or an end nothing of the whole amount has to wait.
        self._seconds: Any = np.where(is_bounded & self._is_even, end - self._start, 0.0)

    def most_spent(self, now: float) -> tuple[Float64, Float64]:
        """Return what each ad may have spent up to now.

        Args:
            now: Seconds since 1970.

        Returns:
            Two arrays, float64 (k,), in the currency of the ad: in all, and since the last midnight in UTC.
        """
        is_paced = self._seconds > 0
        share = (now - self._start) / np.where(is_paced, self._seconds, 1.0)
        amount = np.where(is_paced, self._amount * np.clip(share, 0.0, 1.0), self._amount)
        daily = self._daily.copy()
        daily[self._is_daily_even] *= now % DAY_S / DAY_S
        return amount, daily


def most_spent(ad: Ad, now: float) -> tuple[float, float]:
    """Return what one ad may have spent in all and since midnight, as ``Budgets.most_spent``; inf without a budget."""
    if ad.budget is None:
        return np.inf, np.inf
    amount, daily = Budgets([ad]).most_spent(now)
    return float(amount[0]), float(daily[0])
