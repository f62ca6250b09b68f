"""Averaging against a second form of its formulas, entry by entry in Python's floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fullrank_fleet.training.averaging import Squares, Steps, average, changed_rows, changes

Arrays = dict[str, npt.NDArray[Any]]
FIELDS, WORDS = 2, 7
SQUARES = ("state.squares_D", "state.squares_bias", "state.squares_scale", "state.query.table")


def start(rng: np.random.Generator, *, factors: bool = True) -> Arrays:
    def floats(*shape: int) -> npt.NDArray[np.float32]:
        return rng.standard_normal(shape).astype(np.float32)

    found: Arrays = {"now.U": floats(9, 3), "now.D": floats(FIELDS, WORDS), "now.bias": floats(5)}
    if not factors:
        return {**found, "state.rate": np.array([0.1])}
    return {
        **found,
        "state.start": floats(FIELDS),
        "state.squares_D": floats(FIELDS, WORDS) ** 2,
        "state.squares_bias": floats(5) ** 2,
        "state.squares_scale": rng.random(FIELDS),
        "state.scale": rng.standard_normal(FIELDS),
        "state.query.table": floats(9) ** 2,
    }


def trained(before: Arrays, rng: np.random.Generator, share: float = 0.4) -> Arrays:
    """Return a slice's arrays: random rows changed, and D scaled as a whole if it has factors."""
    after = {name: array.copy() for name, array in before.items()}
    for name in ("now.U", "now.bias"):
        rows = np.flatnonzero(rng.random(len(after[name])) < share)
        after[name][rows] += rng.standard_normal(after[name][rows].shape).astype(np.float32)
    touched = rng.random((FIELDS, WORDS)) < share
    if "state.scale" in after:
        rows = np.flatnonzero((before["now.U"] != after["now.U"]).any(axis=1))
        after["state.query.table"][rows] += np.float32(0.3)
        after["state.squares_D"][touched] += rng.random(touched.sum()).astype(np.float32)
        step = rng.standard_normal(FIELDS)
        after["state.scale"] += step
        after["state.squares_scale"] += step**2
        after["now.D"] *= np.exp(step).astype(np.float32)[:, None]
    after["now.D"][touched] -= np.float32(0.25)
    return after


def twin(
    before: Arrays, slices: list[Arrays], squares: str, steps: str
) -> dict[str, npt.NDArray[np.float64]]:
    """Return every entry by the sum of the slices' differences to the start."""
    found = {name: array.astype(np.float64) for name, array in before.items()}

    def combined(start: float, values: list[float], how: str) -> float:
        k = len(values)
        share = {"mean": 1 / k, "root": min(math.sqrt(k), 2.0) / k, "sum": 1.0}[how]
        return start + share * math.fsum(value - start for value in values)

    for name, array in before.items():
        if name == "now.D" and "state.scale" in before:
            continue
        how = squares if name in SQUARES else steps
        for place in np.ndindex(array.shape):
            row: Any = place[0] if name == "now.U" else place
            values = [float(s[name][place]) for s in slices if (s[name][row] != array[row]).any()]
            if values:
                found[name][place] = combined(float(array[place]), values, how)
    if "state.scale" in before:
        for f, w in np.ndindex(FIELDS, WORDS):
            a = float(found["state.scale"][f])

            def entry(arrays: Arrays, f: int = f, w: int = w, a: float = a) -> float:
                return float(arrays["now.D"][f, w]) * math.exp(a - float(arrays["state.scale"][f]))

            old = before["state.squares_D"][f, w]
            values = [entry(s) for s in slices if s["state.squares_D"][f, w] != old]
            found["now.D"][f, w] = (
                combined(entry(before), values, steps) if values else entry(before)
            )
    return found


@pytest.mark.parametrize("factors", [True, False])
@pytest.mark.parametrize("squares", ["mean", "sum"])
@pytest.mark.parametrize("steps", ["mean", "root"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_average_equals_its_formula(
    count: int, squares: Squares, steps: Steps, *, factors: bool
) -> None:
    for case in range(20):
        rng = np.random.default_rng(case)
        before = start(rng, factors=factors)
        slices = [trained(before, rng, share=0.1 + 0.8 * rng.random()) for _ in range(count)]
        expected = twin(before, slices, squares, steps)
        found = {name: array.copy() for name, array in before.items()}
        average(found, [changes(before, after) for after in slices], squares, steps)
        for name, array in found.items():
            np.testing.assert_allclose(array, expected[name], rtol=3e-6, atol=3e-6, err_msg=name)


@pytest.mark.parametrize("squares", ["mean", "sum"])
def test_one_slice_keeps_its_bits(squares: Squares) -> None:
    rng = np.random.default_rng(3)
    before = start(rng)
    before["now.U"][0] = 0.0
    after = trained(before, rng)
    after["now.U"][:2] = [[-0.0, 1e-30, 1.0], [3e38, 1e-45, -1e38]]
    found = {name: array.copy() for name, array in before.items()}
    average(found, [changes(before, after)], squares)
    for name, array in found.items():
        assert array.tobytes() == after[name].tobytes(), name


def test_rows_of_nobody_keep_their_bits() -> None:
    rng = np.random.default_rng(4)
    before = start(rng, factors=False)
    slices = [changes(before, trained(before, rng, share=0.2)) for _ in range(3)]
    found = {name: array.copy() for name, array in before.items()}
    average(found, slices, "mean")
    seen = set(np.concatenate([s["now.U.rows"] for s in slices]).tolist())
    rest = [row for row in range(9) if row not in seen]
    assert rest
    assert found["now.U"][rest].tobytes() == before["now.U"][rest].tobytes()


def test_changed_rows_sees_every_bit() -> None:
    before = np.zeros((4, 2), np.float32)
    after = before.copy()
    after[1, 1] = -0.0
    after[3, 0] = np.nan
    assert changed_rows(before, after).tolist() == [1, 3]
    assert changed_rows(before[:0], after[:0]).tolist() == []
    assert changed_rows(before[:, :0], after[:, :0]).tolist() == []
