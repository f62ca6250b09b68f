"""Whether Redis is worth asking for an embedding: where encoding the text takes longer than Redis does.

Both times are followed as they come, for each bundle and each size of text (its number of characters to the next power
of two): what encoding costs depends on the model and on little else. A mean rises slowly, m ← m + (t − m) / 8, and
falls fast, by half of the difference: one slow answer says little, one quick answer shows what can be had. The first
texts of a kind are asked for in any case, and of those that are not worth it every 64th: a Redis that was slow for a
while, or a machine that was busy, is found out to have changed.
"""

from __future__ import annotations

from dataclasses import dataclass

_UP, _DOWN = 1 / 8, 1 / 2
_FIRST = 8
_LOOK_AGAIN = 64
_MAX_KINDS = 1024


@dataclass(slots=True)
class _Kind:
    """Texts of one size under one bundle: mean seconds of encoding and of Redis, None while unknown."""

    encoding: float | None = None
    redis: float | None = None
    asked: int = 0
    passed_over: int = 0


class Worth:
    """gain: how many times as long as Redis encoding has to take; 0: everything is asked for."""

    def __init__(self, gain: float) -> None:
        self._gain = gain
        self._kinds: dict[tuple[str, int], _Kind] = {}

    def pays(self, kind: tuple[str, int]) -> bool:
        """Whether Redis is quicker than encoding for texts of that bundle and size (bits of their length)."""
        known = self._kind(kind)
        if known.encoding is None or known.redis is None or known.asked < _FIRST:
            return True
        return known.encoding >= self._gain * known.redis

    def asks(self, kind: tuple[str, int]) -> bool:
        """Whether to ask Redis for such a text now."""
        if self.pays(kind):
            return True
        known = self._kind(kind)
        known.passed_over += 1
        return known.passed_over % _LOOK_AGAIN == 0

    def encoded(self, kind: tuple[str, int], seconds: float) -> None:
        """Encoding such a text took so long."""
        known = self._kind(kind)
        known.encoding = _mean(known.encoding, seconds)

    def asked(self, kind: tuple[str, int], seconds: float) -> None:
        """Redis took so long to answer for such a text, whether it had it or not."""
        known = self._kind(kind)
        known.redis = _mean(known.redis, seconds)
        known.asked += 1

    def _kind(self, kind: tuple[str, int]) -> _Kind:
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= _MAX_KINDS:
                # Of bundles long gone, most of them; what still matters is learned again at once.
                self._kinds.clear()
            known = self._kinds[kind] = _Kind()
        return known


def _mean(mean: float | None, seconds: float) -> float:
    if mean is None:
        return seconds
    return mean + (seconds - mean) * (_UP if seconds > mean else _DOWN)
