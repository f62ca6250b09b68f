"""Scratch buffers: one block of memory for all steps."""

from __future__ import annotations

import numpy as np

from fullrank_trainer.systems.linear.batches import Scratch


def test_a_name_gives_the_same_memory_again_and_another_name_other_memory() -> None:
    scratch = Scratch()
    first = scratch.array("scores", 4, 8)
    again = scratch.array("scores", 8, 4)
    assert np.shares_memory(first, again)
    assert again.shape == (8, 4)
    assert again.dtype == np.float32
    assert again.flags.c_contiguous
    assert not np.shares_memory(again, scratch.array("queries", 4, 8))
    assert not np.shares_memory(again, scratch.of("query").array("scores", 4, 8))
    assert scratch.of("query") is scratch.of("query")


def test_a_larger_array_gets_more_memory_and_a_little_to_spare() -> None:
    scratch = Scratch()
    small = scratch.array("scores", 2, 8)
    large = scratch.array("scores", 200, 8)
    assert not np.shares_memory(small, large)
    large[:] = 1
    assert np.shares_memory(large, scratch.array("scores", 210, 8))


def test_an_array_may_be_empty() -> None:
    assert Scratch().array("scores", 0, 8).shape == (0, 8)


def test_an_array_has_the_shape_and_the_dtype_that_are_asked_for() -> None:
    places = Scratch().array("places", 5, dtype=np.int32)
    assert places.shape == (5,)
    assert places.dtype == np.int32
