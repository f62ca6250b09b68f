"""Ids of requests and answers that nobody can guess."""

from __future__ import annotations

import os

_ID_BYTES = 16
_DRAWN_AT_ONCE = 256

_unused: list[str] = []
# A forked worker would give the ids that its parent has drawn.
os.register_at_fork(after_in_child=_unused.clear)


def new_id() -> str:
    """Return 32 hexadecimal digits that no other call in any process returns.

    `os.urandom` lets other threads run, and the event loop then waits for them: up to 5 ms beside a thread that ranks.
    So many ids are drawn at once. Threads may call this, because taking an id from a list is atomic.
    """
    while True:
        try:
            return _unused.pop()
        except IndexError:
            digits = os.urandom(_ID_BYTES * _DRAWN_AT_ONCE).hex()
            width = 2 * _ID_BYTES
            _unused.extend(digits[at : at + width] for at in range(0, len(digits), width))
