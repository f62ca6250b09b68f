"""Parameters made of their arrays are the parameters."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.models.linear.sides import Tower
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.systems.linear.towers import start_tower


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("sizes", "skip"), [((), False), ((3,), False), ((3, 5, 3), True)])
def test_arrays_make_the_parameters_again(
    sizes: tuple[int, ...], *, skip: bool, tied: bool
) -> None:
    rng = np.random.default_rng(1)
    U, V = (rng.random((4, 3), np.float32) for _ in range(2))
    query, document = (start_tower(sizes, skip, rng) for _ in range(2))
    D, bias = rng.random((2, 6), np.float32), rng.random(5, np.float32)
    sides = (V, V, D, bias, document, document) if tied else (U, V, D, bias, query, document)
    given = Parameters(*sides)
    found = Parameters.of_arrays(dict(given.arrays()), skip=skip)
    assert found.tied == tied
    assert (found.query is found.document) == tied
    for (name, array), (other, expected) in zip(found.arrays(), given.arrays(), strict=True):
        assert name == other
        assert array is expected
    for tower in (found.query, found.document):
        assert isinstance(tower, Tower)
        assert tower.skip == skip
