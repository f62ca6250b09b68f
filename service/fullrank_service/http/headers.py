"""Headers that every response carries, and ids that nobody can guess."""

from __future__ import annotations

import os

# Pages show text from documents, so no inline script or style is allowed, and nothing from elsewhere.
SAFETY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


# Ids of requests and answers that nobody can guess.

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
