"""Run a program again and again while a module that it imports changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# What is printed for people depends on a terminal, and machines without /dev/pts have none to open.
_TERMINAL = "import sys\nsys.stderr.isatty = lambda: True\n"


def outputs(folder: Path, program: str, helpers: str, amounts: list[int]) -> list[list[str]]:
    """Return the words that a program prints, then those on its stderr, once for each amount.

    Args:
        folder: Gets the program, and the module ``helpers``.
        program: Its source. It takes its stderr for a terminal.
        helpers: The source of the module, with a place for the amount.
        amounts: One for each run.
    """
    (folder / "program.py").write_text(_TERMINAL + program)
    found = []
    # Python itself takes a module of the same size and second for unchanged, so it keeps no bytecode here.
    command = [sys.executable, "-B", "program.py"]
    for amount in amounts:
        (folder / "helpers.py").write_text(helpers.format(amount=amount))
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        found.append([*done.stdout.split(), *done.stderr.split()])
    return found
