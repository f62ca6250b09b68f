"""Run a program again and again while a module that it imports changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def outputs(folder: Path, program: str, helpers: str, amounts: list[int]) -> list[list[str]]:
    """Return the words that a program prints, then those on its stderr, a terminal, once for each amount.

    Args:
        folder: Gets the program, and the module ``helpers``.
        program: Its source.
        helpers: The source of the module, with a place for the amount.
        amounts: One for each run.
    """
    (folder / "program.py").write_text(program)
    found = []
    # Python itself takes a module of the same size and second for unchanged, so it keeps no bytecode here.
    command = [sys.executable, "-B", "program.py"]
    for amount in amounts:
        (folder / "helpers.py").write_text(helpers.format(amount=amount))
        terminal, stderr = os.openpty()
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True
        )
        os.close(stderr)
        found.append([*done.stdout.split(), *_left(terminal).split()])
        os.close(terminal)
    return found


def _left(terminal: int) -> str:
    try:
        return os.read(terminal, 1 << 16).decode()
    except OSError:  # nothing was written
        return ""
