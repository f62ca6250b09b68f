"""Read the runs that tests have written."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def read_run(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Read the ranking of each query as trec_eval sorts it: ties, as 32-bit floats, by descending id."""
    run: dict[str, list[tuple[str, float]]] = {}
    for line in path.read_text("utf-8").splitlines():
        query, _, document, _, score, _ = line.split()
        run.setdefault(query, []).append((document, float(np.float32(score))))
    for ranking in run.values():
        ranking.sort(key=lambda pair: (pair[1], pair[0]), reverse=True)
    return run
