"""Golden answers: what counts as the same answer, and the lines that hold them."""

from __future__ import annotations

import pytest

from fullrank.bundle import golden
from fullrank.errors import BundleError


def _answer(ids: str, *scores: float) -> list[golden.Answer]:
    return [golden.Answer("q", tuple(ids), scores)]


WANT = _answer("abc", 3.0, 2.0, 2.0)


@pytest.mark.parametrize(
    "have",
    [
        _answer("abc", 3.0, 2.0, 2.0),
        _answer("abc", 3.000001, 2.0, 1.999999),
        _answer("acb", 3.0, 2.000001, 2.0),  # two that were equal swap
        _answer("abd", 3.0, 2.0, 2.0),  # the last gives way to its equal
    ],
)
def test_golden_answers_may_differ_in_the_last_digits(have: list[golden.Answer]) -> None:
    golden.compare(WANT, have, 1e-5)


@pytest.mark.parametrize(
    ("have", "reason"),
    [
        (_answer("abc", 3.001, 2.0, 2.0), "rank 1 scores 3.001, expected 3.0"),
        (_answer("abc", float("nan"), 2.0, 2.0), "rank 1 scores nan"),
        (_answer("bac", 3.0, 2.0, 2.0), "rank 1 is 'b', expected 'a'"),
        (_answer("dbc", 3.0, 2.0, 2.0), "rank 1 is 'd', expected 'a'"),
        (_answer("ab", 3.0, 2.0), "2 results, expected 3"),
    ],
)
def test_golden_answers_that_differ_more_are_refused(
    have: list[golden.Answer], reason: str
) -> None:
    with pytest.raises(BundleError, match=reason):
        golden.compare(WANT, have, 1e-5)


def test_at_tolerance_zero_equal_scores_may_not_swap() -> None:
    golden.compare(WANT, WANT, 0)
    with pytest.raises(BundleError, match="rank 2 is 'c'"):
        golden.compare(WANT, _answer("acb", 3.0, 2.0, 2.0), 0)


def test_golden_lines_round_trip() -> None:
    answers = [golden.Answer("a\u2028\n\x85b", ("é",), (0.1 + 0.2,)), golden.Answer("", (), ())]
    assert golden.parse(golden.dump(answers)) == answers
