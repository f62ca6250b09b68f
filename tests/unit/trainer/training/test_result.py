"""The table of a training is written as JSON, whatever it measured."""

from __future__ import annotations

import numpy as np
import orjson

from fullrank.measures import estimates
from fullrank_trainer.training.fitted import ResultRow


def test_one_query_has_no_standard_error() -> None:
    row = ResultRow("auto", "valid", 1, estimates({"map": np.array([0.5])})).as_dict()
    assert row["map"] == 0.5
    assert row["map_se"] is None
    assert orjson.loads(orjson.dumps(row)) == row
