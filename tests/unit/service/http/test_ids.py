"""Ids are unique, also among processes that were forked, and have no order that can be guessed."""

from __future__ import annotations

import re
import subprocess
import sys

from fullrank_service.http.problems import new_id


def test_ids_are_32_random_hexadecimal_digits() -> None:
    found = [new_id() for _ in range(20_000)]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in found)
    # Of random bits, half are set: 64 of 128, and the mean of so many ids is within six standard errors.
    bits = sum(int(id, 16).bit_count() for id in found) / len(found)
    assert abs(bits - 64) < 6 * (32 / len(found)) ** 0.5


_FORKED = """
import os
from fullrank_service.http.problems import new_id
new_id()
child = os.fork()
ids = "".join(new_id() + chr(10) for _ in range(500))
if child:
    os.waitpid(child, 0)
os.write(1, ids.encode())
"""


def test_forked_processes_draw_other_ids() -> None:
    # Before the fork one id is drawn, so that both processes could have the next ones ready.
    found = subprocess.run([sys.executable, "-c", _FORKED], stdout=subprocess.PIPE, check=True)
    ids = found.stdout.split()
    assert len(ids) == len(set(ids)) == 1000
