"""Rules are read, and refused with a path and a reason."""

from __future__ import annotations

from typing import Any

import pytest

from fullrank.rules.rule import Condition, Pin, RuleError, read_rule

NOW = 1_795_435_200.0  # 2026-11-23T12:00:00Z


def test_a_rule_is_read() -> None:
    rule = read_rule(
        "r",
        {
            "query": {"contains": "Crème  Brûlée"},
            "pin": [{"id": "b", "position": 3}, {"id": "a", "position": 1}],
            "hide": ["x", "x", "y"],
            "from": "2026-11-23T13:00:00+01:00",
            "until": "2026-11-23T12:00:01Z",
        },
    )
    assert rule.condition == Condition("contains", ("creme", "brulee"))
    assert rule.pins == (Pin("a", 0), Pin("b", 2))
    assert rule.hide == ("x", "y")
    assert [rule.is_active(NOW + s) for s in (-0.1, 0, 0.9, 1)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, ""),
        ({"query": {"is": "x"}}, ""),
        ({"query": {}, "hide": ["a"]}, "query"),
        ({"query": {"is": "x", "prefix": "y"}, "hide": ["a"]}, "query"),
        ({"query": {"is": "!?"}, "hide": ["a"]}, "query.is"),
        ({"pin": [{"id": "a", "position": 1}, {"id": "a", "position": 2}]}, "pin.1.id"),
        ({"pin": [{"id": "a", "position": 1}, {"id": "b", "position": 1}]}, "pin.1.position"),
        ({"pin": [{"id": "a", "position": 1}], "hide": ["a"]}, "pin.0.id"),
        ({"synonyms": [["tv", "television"], ["tv", "--"]]}, "synonyms.1.1"),
        ({"synonyms": [["café", "CAFE"]]}, "synonyms.0.1"),
        ({"query": {"is": "coffee"}, "synonyms": [["tv", "television"]]}, "synonyms.0"),
        (
            {"query": {"is": "smart tv"}, "synonyms": [["TV", "screen"], ["tv smart", "x"]]},
            "synonyms.1",
        ),
        ({"hide": ["a"], "from": "2026-11-23T12:00:00"}, "from"),
        ({"hide": ["a"], "from": "tomorrow"}, "from"),
        ({"hide": ["a"], "until": "0001-01-01T00:00:00+14:00"}, "until"),
        (
            {"hide": ["a"], "from": "2026-11-24T00:00:00Z", "until": "2026-11-24T00:00:00Z"},
            "until",
        ),
        ({"hide": ["a"], "until": "2026-11-23T12:00:00Z"}, "until"),
    ],
)
def test_a_rule_that_cannot_apply_is_refused(given: dict[str, Any], path: str) -> None:
    with pytest.raises(RuleError) as caught:
        read_rule("r", given, NOW)
    assert caught.value.path == path
    assert caught.value.reason


def test_a_stored_rule_may_have_ended() -> None:
    given = {"hide": ["a"], "until": "2026-11-23T12:00:00Z"}
    assert not read_rule("r", given).is_active(NOW)


@pytest.mark.parametrize(
    "query", [{"is": "Smart TV"}, {"contains": "coffee"}, {"prefix": "coffee"}, None]
)
def test_synonyms_that_a_query_may_have_are_read(query: dict[str, Any] | None) -> None:
    read_rule("r", {"query": query, "synonyms": [["tv", "television"]]}, NOW)


def test_a_stored_rule_may_have_synonyms_without_effect() -> None:
    given = {"query": {"is": "coffee"}, "hide": ["a"], "synonyms": [["tv", "television"]]}
    assert read_rule("r", given).hide == ("a",)
