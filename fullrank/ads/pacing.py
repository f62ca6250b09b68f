"""When even pacing frees a budget: share of the time from start to end, and of each day in UTC.

    share of the amount        (t − start) / (end − start)
    share of the daily budget  (t mod 86,400 s) / 86,400 s

Both reach 1 only at a moment when the ad is over, or the next day begins with a share of 0.
"""

from __future__ import annotations

import math

DAY_S = 86_400


def withheld(price: float, amount: float, daily: float, start: float, end: float) -> str | None:
    """Return which limit never frees the price under even pacing; None: at some moment an ad can be paid.

    Args:
        price: Of one click, above 0.
        amount: In all, at least the price. It is paced only between a finite start and end.
        daily: On one day, at least the price; inf: no such limit.
        start, end: Seconds since 1970, -inf and inf without one.

    Returns:
        "amount" or "daily"; "pacing" if each of them frees the price, but never both at once.

    Example:
        >>> withheld(2.0, 100.0, 2.0, -math.inf, math.inf)
        'daily'
    """
    is_paced = math.isfinite(start) and math.isfinite(end)

    def frees(moment: float) -> tuple[bool, bool]:
        # Just before the moment: a share is approached, never reached.
        day = moment % DAY_S / DAY_S if math.isfinite(moment) else 1.0
        whole = (moment - start) / (end - start) if is_paced else 1.0
        return (
            price < amount * whole if is_paced else price <= amount,
            price < daily * (day or 1.0),
        )

    # Both shares grow up to midnight, so they are largest at the end or at the last midnight before it.
    moments = [end]
    midnight = end // DAY_S * DAY_S
    if start < midnight < end:
        moments.append(midnight)
    found = [frees(moment) for moment in moments]
    if any(all(both) for both in found):
        return None
    if not any(amount for amount, _ in found):
        return "amount"
    return "pacing" if any(daily for _, daily in found) else "daily"
