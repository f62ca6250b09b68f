"""Ranks by text come from clicks on other queries, and equal counts of the scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fullrank.encoding import Encoded, Float32
from fullrank.errors import CollectionError
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank_trainer.clicks.join import Votes, join
from fullrank_trainer.clicks.mixture import Propensities
from fullrank_trainer.clicks.texts import rank_by_text
from fullrank_trainer.training.validation import falls_into
from tests.clicking import click, listing

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
