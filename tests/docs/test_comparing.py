"""A page that shows something else than what was printed is found, and only then."""

from __future__ import annotations

import pytest

from tests.docs.comparing import differences, json_differences, text_differences

SHOWN = {"hits": [{"id": "a", "rule": None}], "certified": True, "score": 1.5, "total": 3}
SAME = {"hits": [{"id": "a", "rule": None}] * 2, "certified": True, "score": 2.5, "total": 3}


@pytest.mark.parametrize(
    "changed",
    [
        SAME | {"certified": False},
        SAME | {"score": "2"},
        SAME | {"total": 4},
        SAME | {"more": 1},
        SAME | {"hits": []},
        SAME | {"hits": [{"id": "a"}]},
        SAME | {"hits": [{"id": "b", "rule": None}]},
        SAME | {"hits": [{"id": "a", "rule": "r"}]},
        {"certified": True, "score": 1.5, "total": 3},
    ],
)
def test_each_difference_of_a_reply_is_found(changed: object) -> None:
    assert list(differences(SHOWN, SAME)) == []
    assert len(list(differences(SHOWN, changed))) == 1


def test_what_depends_on_the_run_and_what_is_left_out_are_no_differences() -> None:
    shown = '{"hits": [{"id": "…-1", …}, …], "query_id": "6f…", "at": "2026-01-01T00:00:00Z", …}'
    real = '{"hits": [{"id": "b-1", "n": 1}, 2], "query_id": "5", "at": "2027-02-03T10:00:00Z", "z": 0}'
    assert list(json_differences(shown, real)) == []
    assert len(list(json_differences(shown, real.replace("b-1", "b-2")))) == 1
    assert len(list(json_differences(shown, f"{real} {{}}"))) == 1


def test_a_text_is_compared_but_for_numbers_ids_and_spaces() -> None:
    printed = "in 12 s\n\nshop-20260101t000000z-0a1b2c3d  10.5\nmore\nend"
    assert list(text_differences("in 3 s\nshop-20270101t000000z-ffffffff 1\n…\nend", printed)) == []
    assert list(text_differences("in … s\n…", printed)) == []
    assert len(list(text_differences("in 3 s\nend", printed))) == 1
