"""The rules that the index finds are those that apply when each is compared with the query."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fullrank.rules.rule import Rule, RuleIndex, read_rule
from fullrank.text.folding import folded_words

texts = st.lists(
    st.sampled_from(["tv", "TV", "télé", "tele", "smart-tv", "set", "東京都", "東京", "c++"]),
    min_size=1,
    max_size=4,
).map(" ".join)
kinds = st.sampled_from(["is", "contains", "prefix", None])
conditions = st.lists(st.tuples(kinds, texts), max_size=8)


def applies(kind: str | None, text: str, query: str) -> bool:
    """Compare one rule with a query, letter by letter."""
    wanted, words = (" ".join(folded_words(part)) for part in (text, query))
    match kind:
        case None:
            return True
        case "is":
            return words == wanted
        case "prefix":
            return words.startswith(wanted)
        case _:
            return f" {wanted} " in f" {words} "


@given(conditions, texts)
def test_the_index_finds_what_a_comparison_of_all_finds(
    given_rules: list[tuple[str | None, str]], query: str
) -> None:
    rules = [
        read_rule(f"r{i}", {"hide": ["a"]} | ({"query": {kind: text}} if kind else {}))
        for i, (kind, text) in enumerate(given_rules)
    ]
    expected = [f"r{i}" for i, (kind, text) in enumerate(given_rules) if applies(kind, text, query)]
    found = RuleIndex(reversed(rules)).matching(query, 0.0)
    assert [rule.id for rule in found] == expected


def test_only_active_rules_apply() -> None:
    index = RuleIndex([Rule("late", hide=("a",), begins=5.0), Rule("early", hide=("a",), ends=5.0)])
    assert [[rule.id for rule in index.matching("x", now)] for now in (4.9, 5.0)] == [
        ["early"],
        ["late"],
    ]


def test_a_query_without_words_meets_only_rules_for_every_query() -> None:
    rules = [Rule("all", hide=("a",)), read_rule("p", {"query": {"prefix": "a"}, "hide": ["a"]})]
    assert [rule.id for rule in RuleIndex(rules).matching("!!", 0.0)] == ["all"]
