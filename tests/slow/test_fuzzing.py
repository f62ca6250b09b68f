"""Ten thousand requests and more, made up from the OpenAPI document: no 5xx, no undocumented status, every check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.fuzzing import fuzz, how_many
from tests.api.support import served
from tests.bundles import at, make_bundle

pytestmark = pytest.mark.slow


def test_ten_thousand_requests_find_nothing(tmp_path: Path) -> None:
    """Two versions of a model that are swapped, written to and searched; runs of other seeds until there are enough."""
    make_bundle(tmp_path, "learned", created=at(1))
    make_bundle(tmp_path, "learned", n_dense=4, created=at(2), sample_queries=["copy files"])
    cases = {True: 0, False: 0}
    with served(tmp_path, FULLRANK_ANONYMOUS="none") as url:
        for seed in range(1, 13):
            fit = cases[True] <= cases[False]
            done = fuzz(url, examples=120, seed=seed, fit=fit)
            cases[fit] += done.cases
            assert done.code == 0, done.output[-20_000:]
            assert f"Tested: {how_many()}" in done.output
            if sum(cases.values()) >= 10_000:
                break
    print(f"{cases[True]} requests made to fit, {cases[False]} as drawn")  # noqa: T201 for who runs it with -s
    assert sum(cases.values()) >= 10_000
