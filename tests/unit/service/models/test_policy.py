"""What to load and what to switch to, as a table of states."""

from __future__ import annotations

import pytest

from fullrank_service.base.experiment import Active, Experiment
from fullrank_service.models.policy import Available, Holding, Step, next_step, to_drop
from fullrank_service.models.state import ActiveState

A1, A2, B1 = Available("a", "a-1"), Available("a", "a-2"), Available("b", "b-1")
NOTHING = Holding(0, None, ())
NEWEST_FIRST = [B1, A2, A1]


@pytest.mark.parametrize(
    ("state", "holding", "options", "step"),
    [
        # At start, nothing noted: the newest of all, or of the name asked for, or nothing.
        (None, NOTHING, {}, Step((), "b-1", 1)),
        (None, NOTHING, {"default_model": "a"}, Step((), "a-2", 1)),
        (None, NOTHING, {"default_model": "c"}, Step()),
        # At start, noted: that one, as that generation, whatever is newer.
        (ActiveState(7, "a-1"), NOTHING, {}, Step((), "a-1", 7)),
        (ActiveState(7, "a-1"), NOTHING, {"default_model": "b"}, Step((), "a-1", 7)),
        # Noted but gone from disk: still that one, so that loading it fails and says so.
        (ActiveState(7, "a-0"), NOTHING, {}, Step((), "a-0", 7)),
        # Serving what is noted, or serving while nothing is noted: nothing to do.
        (ActiveState(7, "a-1"), Holding(7, "a-1", ["a-1"]), {}, Step((), None, 7)),
        (None, Holding(1, "a-1", ["a-1"]), {}, Step((), None, 1)),
        # Another worker activated; also when the note went back to a lower generation.
        (ActiveState(8, "b-1"), Holding(7, "a-1", ["a-1"]), {}, Step((), "b-1", 8)),
        (ActiveState(6, "b-1"), Holding(7, "a-1", ["a-1"]), {}, Step((), "b-1", 6)),
        # The same version activated anew counts as a generation of its own.
        (ActiveState(8, "a-1"), Holding(7, "a-1", ["a-1"]), {}, Step((), "a-1", 8)),
        # Others to hold: those noted and still on disk, and with preload the newest of each name.
        (
            ActiveState(0, None, None, ("a-1", "gone-1")),
            Holding(1, "b-1", ["b-1"]),
            {},
            Step(("a-1",), None, 1),
        ),
        # More noted than there is room for: those noted last, beside what serves and what served before.
        (
            ActiveState(3, "b-1", None, ("a-1", "a-2", "b-1")),
            Holding(3, "b-1", ["b-1"]),
            {"max_loaded": 3},
            Step(("a-2",), None, 3),
        ),
        # The candidate of an experiment stays loaded, however few models may.
        (
            ActiveState(3, "b-1", None, ("a-2",), None, Experiment("a-1", 0.2, 0, 14)),
            Holding(3, "b-1", ["b-1"]),
            {"max_loaded": 3},
            Step(("a-1", "a-2"), None, 3),
        ),
        # So do the active version of another collection, and the candidate of its experiment.
        (
            ActiveState(
                3,
                "b-1",
                None,
                (),
                None,
                None,
                {"a": Active("a-1", None, None, Experiment("a-2", 1, 0, 14))},
            ),
            Holding(3, "b-1", ["b-1"]),
            {"max_loaded": 1},
            Step(("a-1", "a-2"), None, 3),
        ),
        (None, NOTHING, {"preload": True}, Step(("a-2",), "b-1", 1)),
        (
            ActiveState(3, "a-1", None, ("a-1",)),
            NOTHING,
            {"preload": True},
            Step(("b-1", "a-2"), "a-1", 3),
        ),
        # At start with preload, the one that served before: going back to it must not take long.
        (
            ActiveState(3, "b-1", None, (), "a-1"),
            NOTHING,
            {"preload": True},
            Step(("a-1", "a-2"), "b-1", 3),
        ),
        # No more names than there is room for, the newest of them; what serves, what is noted and what served before
        # take room too, but not what is gone from disk.
        (None, NOTHING, {"preload": True, "max_loaded": 2}, Step(("a-2",), "b-1", 1)),
        (None, NOTHING, {"preload": True, "max_loaded": 1}, Step((), "b-1", 1)),
        (
            ActiveState(3, "a-1", None, ("gone-1",)),
            NOTHING,
            {"preload": True, "max_loaded": 2},
            Step(("b-1",), "a-1", 3),
        ),
        (
            ActiveState(3, "a-1", None, ("a-2",), "b-1"),
            NOTHING,
            {"preload": True, "max_loaded": 1},
            Step(("a-2", "b-1"), "a-1", 3),
        ),
        (
            ActiveState(3, "b-1", None, (), "a-1"),
            NOTHING,
            {"preload": True, "max_loaded": 2},
            Step(("a-1",), "b-1", 3),
        ),
        # A start without a state file, while others serve: their version of the requested name.
        (None, NOTHING, {"served_elsewhere": ["a-1"]}, Step((), "a-1", 1)),
        (None, NOTHING, {"served_elsewhere": ["gone-1"]}, Step((), "b-1", 1)),
        (None, NOTHING, {"served_elsewhere": ["b-1"], "default_model": "a"}, Step((), "a-2", 1)),
        (ActiveState(7, "a-2"), NOTHING, {"served_elsewhere": ["b-1"]}, Step((), "a-2", 7)),
    ],
)
def test_next_step_follows_the_state(state, holding, options, step) -> None:  # type: ignore[no-untyped-def]
    assert next_step(state, holding, NEWEST_FIRST, **options) == step


def test_an_empty_folder_needs_no_step() -> None:
    assert next_step(None, NOTHING, [], preload=True) == Step()


@pytest.mark.parametrize(
    ("loaded", "keep", "max_loaded", "dropped"),
    [
        (["a", "b", "c"], {"a"}, 3, ()),
        (["a", "b", "c", "d"], {"a"}, 3, ("b",)),
        (["a", "b", "c", "d"], {"a", "b", None}, 2, ("c", "d")),
        (["a", "b"], {"a", "b"}, 1, ()),
    ],
)
def test_unneeded_models_are_dropped_down_to_the_limit(
    loaded: list[str], keep: set[str | None], max_loaded: int, dropped: tuple[str, ...]
) -> None:
    assert to_drop(loaded, keep, max_loaded) == dropped
