"""Ids of requests and answers that nobody can guess."""

from __future__ import annotations

import hashlib
import os
import time
from itertools import count

_KEY = os.urandom(32)
_counter = count()


def new_id() -> str:
    """Return 32 hexadecimal digits that no other call in any process returns.

    `os.urandom` would do, but it lets other threads run, and the event loop then waits for them: up to 5 ms beside
    a thread that ranks. Forked workers share the key, so the process and the time are part of what is hashed.
    """
    message = b"%d %d %d" % (os.getpid(), time.time_ns(), next(_counter))
    return hashlib.blake2b(message, digest_size=16, key=_KEY).hexdigest()
