"""Events meet the lists that people saw, against a join in plain Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import CollectionError
from fullrank.events.caps import find_programs
from fullrank.events.records import Event, ServedList, normalised
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank.storage.encoding import Encoded, Float32
from fullrank_trainer.clicks.join import Votes, join
from fullrank_trainer.clicks.mixture import Propensities
from fullrank_trainer.clicks.texts import rank_by_text
from fullrank_trainer.collection.pairs import falls_into
from tests.clicking import MONDAY, click, listing
from tests.random_cases import cases

Vote = tuple[str, str, int, int, bool]  # query, document, day, place, clicked


def rows(votes: Votes) -> list[Vote]:
    days = (votes.time // 86_400).astype(int) - 20_780
    columns = (votes.query, votes.document, days, votes.place, votes.clicked)
    return sorted(
        (votes.queries[q], votes.documents[d], int(day), int(place), bool(clicked))
        for q, d, day, place, clicked in zip(*columns, strict=True)
    )


def test_a_click_is_joined_to_what_was_shown() -> None:
    lists = [listing("l1", ["a", "b", "c"], " Red  SHOES ", offset=10)]
    votes = join(lists, [click("l1", "b", dwell_ms=2500)])
    assert rows(votes) == [
        ("red shoes", "a", 0, 10, False),
        ("red shoes", "b", 0, 11, True),
        ("red shoes", "c", 0, 12, False),
    ]
    assert votes.dwell_s[votes.clicked] == 2.5
    assert np.isnan(votes.dwell_s[~votes.clicked]).all()
    assert (votes.counts["votes"], votes.counts["shown"]) == (1, 3)
    # An imported click does not say what was shown.
    imported = listing("l2", ["a"], only_clicked=True)
    votes = join([*lists, imported], [click("l1", "b"), click("l2", "a")])
    assert (votes.counts["votes"], votes.counts["shown"]) == (2, 3)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (click("other", "a"), "unknown_list"),
        (click("l1", "z"), "not_shown"),
        (click("l1", None), "without_document"),
        (click(None, "a"), "without_list"),
        (click("l1", "a", is_bot=True), "by_programs"),
        (click("l2", "a"), "not_a_search"),
        (click("l3", "a"), "by_programs"),
        (click("l1", "a", action="impression"), "other_actions"),
    ],
)
def test_a_click_that_does_not_count_is_counted_by_reason(event: Event, reason: str) -> None:
    lists = [
        listing("l1", ["a", "b"]),
        listing("l2", ["a"], kind="similar"),
        listing("l3", ["a"], is_bot=True),
    ]
    votes = join(lists, [event])
    assert votes.counts[reason] == 1
    assert not votes.clicked.any()
    assert len(votes) == 2


def test_a_reported_list_counts_only_without_one_of_ours() -> None:
    ours, theirs = listing("l1", ["a", "b"]), listing("l1", ["z", "b"], kind="reported")
    alone = listing("l2", ["c"], "other", kind="reported")
    for lists in ([ours, theirs, alone], [theirs, alone, ours]):
        votes = join(lists, [click("l1", "z"), click("l2", "c")])
        assert [row[:2] for row in rows(votes)] == [
            ("other", "c"),
            ("red shoes", "a"),
            ("red shoes", "b"),
        ]
        assert votes.counts["not_shown"] == votes.counts["repeated_lists"] == 1


def test_lists_of_another_model_do_not_count_where_a_model_is_named() -> None:
    lists = [
        listing("l1", ["a"], model="shop-eu-20261123t000000z-00000001", candidate="shop-eu-2-2"),
        listing("l2", ["b"], "boots", model="shop-20261123t000000z-00000002"),
        listing("l3", ["c"], "hats"),  # imported: it names no version
        listing("l4", ["d"], "socks", model="any", kind="reported"),
    ]
    clicks = [click("l1", "a"), click("l2", "b"), click("l3", "c"), click("l4", "d")]
    everything = join(lists, clicks)
    assert [vote[1] for vote in rows(everything)] == ["b", "c", "a", "d"]
    assert everything.counts["lists_of_another_model"] == 0
    votes = join(lists, clicks, "shop-eu")
    assert [vote[1] for vote in rows(votes)] == ["c", "a", "d"]
    assert "boots" not in votes.queries
    assert (votes.counts["of_another_model"], votes.counts["lists_of_another_model"]) == (1, 1)
    assert [vote[1] for vote in rows(join(lists, clicks, "shop"))] == ["b", "c", "d"]


def test_pinned_documents_have_no_votes() -> None:
    lists = [
        listing("l1", ["pin", "a", "b", "pin2"], pinned=(0, 3)),
        listing("l2", ["pin"], "other"),
    ]
    votes = join(lists, [click("l1", "pin"), click("l1", "b"), click("l2", "pin")])
    assert rows(votes) == [
        ("other", "pin", 0, 0, True),
        ("red shoes", "a", 0, 1, False),
        ("red shoes", "b", 0, 2, True),
    ]
    assert votes.counts["pinned"] == 1


def test_a_person_has_one_click_a_day() -> None:
    """What was shown before it counts, what was shown after it does not."""
    lists = [listing(f"l{i}", ["a", "b"] if i else ["b", "a"], at=i * 30_000) for i in range(4)]
    votes = join(lists, [click("l1", "b"), click("l2", "b"), click("l3", "a", 95_000)])
    assert rows(votes) == [
        ("red shoes", "a", 0, 0, False),
        ("red shoes", "a", 0, 0, False),
        ("red shoes", "a", 0, 1, False),
        ("red shoes", "a", 1, 0, True),
        ("red shoes", "b", 0, 0, False),
        ("red shoes", "b", 0, 1, True),
        ("red shoes", "b", 1, 1, False),
    ]


def test_what_a_clicked_list_passed_over_stays_when_the_search_was_repeated() -> None:
    lists = [listing("l1", ["a", "b", "c"]), listing("l2", ["a", "b", "c"], at=60)]
    votes = join(lists, [click("l2", "c", 90)])
    mine = votes.shown == votes.shown[votes.clicked][0]
    assert [votes.documents[d] for d in votes.document[mine]] == ["a", "b", "c"]


def test_a_page_that_repeats_its_search_is_seen_ten_times_a_day() -> None:
    lists = [listing(f"l{i}", ["a", "b"], at=i * 60) for i in range(50)]
    votes = join(lists, [click("l40", "b", 40 * 60 + 1)])
    seen = [
        (votes.documents[d], int(at - MONDAY) // 60)
        for d, at in zip(votes.document, votes.time, strict=True)
    ]
    assert seen == sorted(
        [("a", i) for i in range(40, 50)] + [("b", i) for i in range(31, 41)],
        key=lambda s: (s[1], s[0]),
    )
    assert votes.counts["votes"] == 1


def test_the_list_of_an_unknown_person_belongs_to_the_one_who_clicks() -> None:
    lists = [listing("l1", ["a"], user=None), listing("l2", ["a"], user=None), listing("l3", ["a"])]
    votes = join(lists, [click("l1", "a", user="ann"), click("l3", "a")])
    assert len(votes) == 2  # those of ann are one vote
    assert len(set(votes.person.tolist())) == 2


def test_a_person_has_ten_votes_on_a_document() -> None:
    lists = [listing(f"l{i}", ["a", "b"], f"query {i}", i * 60) for i in range(13)]
    votes = join(lists, [click(f"l{i}", "a", i * 60 + 1) for i in range(13)])
    assert votes.clicked.sum() == 10
    assert votes.counts["beyond_caps"] == 3
    kept = [votes.queries[q] for q in votes.query[votes.clicked]]
    assert kept == [f"query {i}" for i in range(10)]
    on_b = [votes.documents[d] == "b" for d in votes.document.tolist()]
    assert sum(on_b) == 13


def test_a_person_has_200_votes_a_day() -> None:
    gap = 300  # 12 clicks an hour
    lists = [listing(f"l{i}", [f"d{i}", f"e{i}"], f"query {i}", i * gap) for i in range(240)]
    votes = join(lists, [click(f"l{i}", f"d{i}", i * gap + 1) for i in range(240)])
    assert votes.clicked.sum() == 200
    assert len(votes) == 400  # what the list of the 200th click showed counts, and no later list


def test_a_person_who_clicks_100_times_an_hour_is_no_program() -> None:
    lists = [listing(f"l{i}", [f"d{i}"], f"query {i}") for i in range(101)]
    assert join(lists, [click(f"l{i}", f"d{i}") for i in range(100)]).clicked.sum() == 100
    votes = join(lists, [click(f"l{i}", f"d{i}") for i in range(101)])
    assert len(votes) == 0
    assert votes.counts["by_programs"] == 101


def test_clicks_on_unknown_lists_make_a_program_too() -> None:
    events = [click("l0", "a"), *(click("gone", f"d{i}") for i in range(100))]
    assert len(join([listing("l0", ["a"]), listing("l1", ["a"], user="bob")], events)) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=40), st.integers(2, 4))
def test_programs_are_found_as_by_brute_force(clicks: list[tuple[int, int]], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fullrank.events.caps.MAX_CLICKS_AN_HOUR", limit)
        patch.setattr("fullrank.events.caps._HOUR_S", 3)
        person, time = np.array(clicks, np.int64).reshape(-1, 2).T
        wanted = {
            who
            for who, start in clicks
            if sum(w == who and start <= at < start + 3 for w, at in clicks) > limit
        }
        assert set(find_programs(person, time.astype(np.float64)).tolist()) == wanted


def test_coins_have_absolute_places_and_count_once() -> None:
    lists = [
        listing("l1", "abcd", pair=1, offset=20),
        listing("l2", "abcd", pair=0),
        listing("l3", "abcd", pair=0),  # the same person, query and day
        listing("l4", "abcd", pair=2, user="bob"),
        listing("l5", "abcd", pair=3, user="eve"),  # the last has no neighbour below it
        listing("l6", "abcd", pair=1, user="kim", is_bot=True),
    ]
    coins = join(
        lists, [click("l1", "c"), click("l2", "a"), click("l4", "c"), click("l4", "d")]
    ).coins
    found = [*zip(coins.place.tolist(), coins.upper.tolist(), coins.lower.tolist(), strict=True)]
    assert found == [(21, False, True), (0, False, False), (2, True, True)]


def brute_force(lists: list[ServedList], events: list[Event]) -> tuple[list[Vote], int]:
    """Join in plain Python, without caps; return also the number of clicks that count."""
    known: dict[str, ServedList] = {}
    for served in lists:
        if served.query_id not in known or (
            known[served.query_id].kind == "reported" and served.kind != "reported"
        ):
            known[served.query_id] = served
    views: dict[tuple[str, str, str, int], list[tuple[float, bool, int]]] = {}
    joined = 0
    for served in known.values():
        mine = [e for e in events if e.texts.get("query_id") == served.query_id]
        people = [served.person, *(e.person for e in mine)]
        who = next((p for p in people if p is not None), f"list {served.query_id}")
        if served.is_bot or served.kind not in ("search", "reported"):
            continue
        joined += sum(not e.is_bot and e.object_id in served.ids for e in mine)
        for place, document in enumerate(served.ids):
            clicked = any(e.object_id == document and not e.is_bot for e in mine)
            key = (who, normalised(served.text), document, int(served.at // 86_400))
            views.setdefault(key, []).append((served.at, clicked, place + served.offset))
    votes = []
    for (_, text, document, day), found in views.items():
        for _, clicked, place in sorted(found):
            votes.append((text, document, day - 20_780, place, clicked))
            if clicked:
                break
    return sorted(votes), joined


IDS = st.lists(st.sampled_from("abcdef"), max_size=5, unique=True)
USERS = st.sampled_from(["ann", "bob", None])
NAMES = st.sampled_from(["l1", "l2", "l3", "l4"])
LISTS = st.builds(
    listing,
    query_id=NAMES,
    ids=IDS,
    text=st.sampled_from(["shoes", "Shoes ", "boots"]),
    at=st.sampled_from([0.0, 100.0, 90_000.0]),
    user=USERS,
    kind=st.sampled_from(["search", "search", "reported", "match"]),
    offset=st.sampled_from([0, 10]),
    is_bot=st.sampled_from([False, False, False, True]),
)
EVENTS = st.builds(
    click,
    query_id=NAMES,
    document=st.sampled_from("abcdef"),
    at=st.just(1.0),
    user=USERS,
    is_bot=st.sampled_from([False, False, False, True]),
)


@pytest.mark.sweep
@cases(150)
@given(st.lists(LISTS, max_size=6), st.lists(EVENTS, max_size=8))
def test_votes_are_those_of_a_join_in_plain_python(
    lists: list[ServedList], events: list[Event]
) -> None:
    wanted, joined = brute_force(lists, events)
    votes = join(lists, events)
    assert rows(votes) == wanted
    lost = ("unknown_list", "not_shown", "by_programs", "not_a_search")
    assert len(events) - sum(votes.counts.get(reason, 0) for reason in lost) == joined


def test_queries_are_those_of_searches_with_hits_or_without() -> None:
    lists = [
        listing("l1", "ab", "red shoes"),
        listing("l2", "", "no such thing"),
        listing("l3", "ab", "the text of a page", kind="match"),
    ]
    votes = join(lists, [click("l1", "a"), click("l3", "b")])
    assert votes.queries == ["red shoes", "no such thing"]
    assert rows(votes) == [("red shoes", "a", 0, 0, True), ("red shoes", "b", 0, 1, False)]


ETA_1 = Propensities.of_power(1.0)
WORDS = 12
QUIET = Reporter(quiet=True)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Document i speaks of `thing{i}`; nobody who asks does."""
    lines = [json.dumps({"_id": f"d{i:02}", "text": f"thing{i} here"}) for i in range(WORDS)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return tmp_path


def searches(queries: int, misled: Mapping[int, int] | None = None, more: str = "") -> Votes:
    """Query n asks for `need{i}`, i = n mod WORDS, and leads to document i; ``misled``: to another one."""
    lists, events = [], []
    for n in range(queries):
        i = n % WORDS
        clicked = (misled or {}).get(n, i)
        ids = [f"d{(i + step) % WORDS:02}" for step in range(4)] + ([more] if more else [])
        for user in range(3):
            id = f"l{n}-{user}"
            lists.append(listing(id, ids, f"need{i} number{n}", user=f"u{n}-{user}"))
            events.append(click(id, f"d{clicked:02}", user=f"u{n}-{user}"))
    return join(lists, events)


def ranks_of(
    votes: Votes, corpus: Path, learned: Votes | None = None
) -> dict[tuple[str, str], int]:
    found = rank_by_text(votes, ETA_1, corpus, corpus, QUIET, learned=learned)
    assert found.text_rank is not None
    rows = zip(votes.query, votes.document, found.text_rank.tolist(), strict=True)
    return {(votes.queries[q], votes.documents[d]): rank for q, d, rank in rows}


def test_other_queries_teach_which_words_go_together(corpus: Path) -> None:
    ranks = ranks_of(searches(10 * WORDS), corpus)
    for (query, document), rank in ranks.items():
        fits = query.split()[0].removeprefix("need") == str(int(document[1:]))
        assert (rank == 0) == fits, (query, document, rank)


def test_clicks_on_a_query_do_not_change_its_ranks(corpus: Path) -> None:
    queries = 10 * WORDS
    before = ranks_of(searches(queries), corpus)
    misled = 3
    after = ranks_of(searches(queries, {misled: (misled + 1) % WORDS}), corpus)
    changed = {query for query, document in before if before[query, document] != after[query, document]}  # fmt: skip
    assert f"need{misled} number{misled}" not in changed
    # Clicks on other queries do.
    everything = {n: (n + 1) % WORDS for n in range(0, queries, 2)}
    assert ranks_of(searches(queries, everything), corpus) != before


def test_clicks_that_judge_do_not_change_ranks(corpus: Path) -> None:
    queries = 10 * WORDS
    ranks = []
    for misled in ({}, {n: (n + 1) % WORDS for n in range(queries // 2, queries)}):
        votes = searches(queries, misled)
        old = votes.take(
            np.array([int(t.rsplit("r", 1)[1]) < queries // 2 for t in votes.queries])[votes.query]
        )
        ranks.append(ranks_of(votes, corpus, old))
    assert ranks[0] == ranks[1]
    assert len(ranks[0]) == 4 * queries


def test_a_document_that_the_corpus_lacks_has_no_rank(corpus: Path) -> None:
    ranks = ranks_of(searches(10 * WORDS, more="gone"), corpus)
    for (_, document), rank in ranks.items():
        assert (rank == -1) == (document == "gone")


def test_a_rank_counts_the_documents_of_the_corpus_with_a_higher_score(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four documents are shown, and all count."""
    lines: list[np.ndarray] = []

    class Noting(Retriever):
        def scores(self, queries: Encoded) -> Float32:
            found = super().scores(queries)
            lines.extend(found)
            return found

    monkeypatch.setattr("fullrank_trainer.clicks.texts.Retriever", Noting)
    monkeypatch.setattr("fullrank_trainer.clicks.texts._BATCH_SCORES", 5 * WORDS)
    votes = searches(10 * WORDS)
    ranks = ranks_of(votes, corpus)
    halves = [falls_into(text, 0.5, b"halves") for text in votes.queries]
    order = [q for half in (False, True) for q, own in enumerate(halves) if own == half]
    assert len(lines) == len(order)
    for query, line in zip(order, lines, strict=True):
        own = {d: r for (text, d), r in ranks.items() if text == votes.queries[query]}
        assert len(own) == 4
        assert own == {d: sum(line > line[int(d[1:])]) for d in own}


def test_votes_stay_as_they_are_where_nothing_can_be_learned(corpus: Path) -> None:
    one = searches(1)
    assert rank_by_text(one, ETA_1, corpus, corpus, QUIET) is one
    lists = [listing("l", "ab", "need0"), listing("m", "ab", "need1")]
    unclicked = join(lists, [])
    assert rank_by_text(unclicked, ETA_1, corpus, corpus, QUIET) is unclicked
    nothing = join([], [])
    assert rank_by_text(nothing, ETA_1, corpus, corpus, QUIET) is nothing


def test_without_a_corpus_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CollectionError, match=r"no corpus\.jsonl"):
        rank_by_text(searches(WORDS), ETA_1, tmp_path / "empty", tmp_path, QUIET)
