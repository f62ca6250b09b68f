"""Views as of earlier operations, against the views that there were then."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.filters.facets import facet_over
from fullrank.live import Earlier, View, part, segments, view_before
from fullrank.live.known import begun_by, is_in_live
from fullrank.models.widening import widen
from fullrank.storage.documents import Document
from fullrank_service.documents import history, past
from fullrank_service.documents.follow import operations
from fullrank_service.documents.log import Caps, Log, Submission, Write
from fullrank_service.documents.past import HistoryLost, PastViews
from fullrank_service.documents.sqlitelog import LogPlace
from tests.bundles import CORPUS, linear_model
from tests.databases import NewDatabase
from tests.live import bundle_of
from tests.random_cases import cases

WORDS = ["copy", "files", "remote", "host", "kubernetes", "kubectl", "quokka"]
BASE: dict[str, Mapping[str, Any]] = {
    **{d.id: d.fields for d in CORPUS},
    **{f"d{i}": {"title": "files", "text": WORDS[i % 4], "section": i} for i in range(5)},
}
BUNDLE = bundle_of(linear_model([Document(id, f) for id, f in BASE.items()], n_dense=4), BASE)
# The last word of a query is completed; the others are known, or of live documents alone.
QUERIES = ["copy files", "remote kube", "quokka", "kubectl host", "quok", "kubernetes"]

fields = st.fixed_dictionaries(
    {
        "title": st.sampled_from(WORDS),
        "text": st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join),
        "section": st.integers(1, 3),
    }
)
writes = st.lists(
    st.tuples(st.sampled_from([*BASE, "new1", "new2"]), st.none() | fields),
    min_size=1,
    max_size=25,
)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MIN_DOCUMENTS", 3)
    monkeypatch.setattr(part, "_MAX_EXTRA_HITS", 1)


def write(log: Log, id: str, fields: Mapping[str, Any] | None) -> int:
    """Write one document; return the number."""
    content = None if fields is None else json.dumps(fields).encode()
    submission = Submission("live", [Write(id, content)], lambda first: b"")
    log.commit([submission], Caps())
    return log.head()


def answers(view: View, exclude: Collection[str] = ()) -> list[Any]:
    """Everything that pages show of a view: hits with all parts of their scores, fields, evidence, facets."""
    found: list[Any] = []
    deleted = view.deleted(exclude=exclude)
    for query in QUERIES:
        widened = widen(view.model.encode_queries([query]), begun_by(view, query)).encoded
        hits = view.search(widened, 100, deleted=deleted).hits
        found.append((query, is_in_live(view, query)))
        found += [
            (hit.id, hit.score, hit.dense, hit.lexical, hit.bias, hit.part.store.fields(hit.row))
            for hit in hits
        ]
    counted = [
        (columns, np.ones(columns.documents, np.bool_) if mask is None else ~mask)
        for columns, mask in zip(view.columns, deleted, strict=True)
    ]
    found.append(facet_over(counted, "section", 10))
    return found


def check_all(log: Log, operations_: Sequence[tuple[str, Any]], every: int, since: int = 0) -> None:
    """Write, and compare the past of the last view with each earlier one, whose documents are compared with a dict."""
    view = View.of(BUNDLE, since)
    state: dict[str, Any] = dict(BASE)
    then: list[tuple[int, View, dict[str, Any]]] = [(view.seq, view, dict(state))]
    deleted_at: dict[str, int] = {}
    for number, (id, content) in enumerate(operations_, start=1):
        seq = write(log, id, content)
        if content is None:
            state.pop(id, None)
            deleted_at[id] = seq
        else:
            state[id] = content
        if number % every == 0:
            view = view.apply(operations(log.after("live", view.seq, 1000)[0])).settled()
            then.append((seq, view, dict(state)))
    now = view.settled()
    assert now.seq <= log.head()
    views = PastViews()
    for seq, earlier, documents in then:
        assert {id: earlier.fields(id) for id in documents} == documents
        if seq > now.seq:
            continue
        expected = answers(earlier)
        for _ in range(2):  # made, and remembered
            found = views.as_of(log, now, since, seq)
            assert set(found.deleted) == {id for id, at in deleted_at.items() if at > seq}
            assert found.view.seq == seq
            assert len(found.view) == len(documents)
            assert answers(found.view) == expected
            assert answers(found.view, found.deleted) == answers(earlier, found.deleted)


@pytest.mark.sweep
@given(operations_=writes, every=st.integers(1, 6))
@cases(20)
def test_the_past_of_a_view_is_the_view_that_was(
    operations_: list[tuple[str, Any]], every: int
) -> None:
    with TemporaryDirectory() as folder:
        place = LogPlace.of_file(Path(folder) / "log.sqlite")
        with closing(place.open()) as log:
            check_all(log, operations_, every)


def random_writes(seed: int, count: int) -> list[tuple[str, Any]]:
    draw = random.Random(seed)
    return [
        (
            draw.choice([*BASE, "new1", "new2"]),
            None
            if draw.random() < 0.2
            else {
                "title": draw.choice(WORDS),
                "text": " ".join(draw.choices(WORDS, k=3)),
                "section": draw.randrange(3),
            },
        )
        for _ in range(count)
    ]


@pytest.mark.server
@pytest.mark.parametrize("seed", range(3))
def test_the_past_of_a_view_in_postgresql(new_database: NewDatabase, seed: int) -> None:
    with closing(LogPlace.of_database(new_database()).open()) as log:
        check_all(log, random_writes(seed, 40), 5)


def test_operations_that_the_bundle_contains_are_its_own_rows(tmp_path: Path) -> None:
    """As after a compaction: the log still has them, and keeps those that are replaced."""
    with closing(LogPlace.of_file(tmp_path / "log.sqlite").open()) as log:
        for id, content in [("ls", {"text": "quokka"}), ("d1", BASE["d1"]), ("d2", None)]:
            write(log, id, content)
        write(log, "ls", BASE.get("ls"))
        check_all(log, [("d1", {"text": "host", "section": 2}), ("ls", None)], 1, since=4)
        assert log.remove("live", 4, min_age_s=-1) == 1
        check_all(log, [("d3", {"text": "host", "section": 2}), ("d3", None)], 1, since=6)


def test_what_the_log_no_longer_knows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LogPlace.of_file(tmp_path / "log.sqlite").open()) as log:
        for _ in range(6):
            write(log, "ls", {"text": "host"})
        write(log, "d1", {"text": "host"})
        now = View.of(BUNDLE).apply(operations(log.after("live", 0, 100)[0]))
        views = PastViews()
        monkeypatch.setattr(past, "MOST_WRITTEN", 1)
        with pytest.raises(HistoryLost):
            views.as_of(log, now, 0, 5)
        assert views.as_of(log, now, 0, 6).view.seq == 6
        monkeypatch.setattr(past, "MOST_WRITTEN", 9)
        assert views.as_of(log, now, 0, 1).view.seq == 1
        monkeypatch.setattr(history, "KEPT", 2)
        monkeypatch.setattr("fullrank_service.documents.log._TRIM_WRITES", 1)
        write(log, "d2", {"text": "host"})
        for seq in (0, 1, 3):
            with pytest.raises(HistoryLost):
                views.as_of(log, now, 0, seq)
        assert views.as_of(log, now, 0, 4).view.seq == 4


def test_few_past_views_are_remembered_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []

    def counted(view: View, earlier: Earlier) -> View:
        built.append(earlier.seq)
        return view_before(view, earlier)

    monkeypatch.setattr(past, "view_before", counted)
    with closing(LogPlace.of_file(tmp_path / "log.sqlite").open()) as log:
        for _ in range(9):
            write(log, "ls", {"text": "host"})
        now = View.of(BUNDLE).apply(operations(log.after("live", 0, 100)[0]))
        views = PastViews()

        def ask(*seqs: int) -> list[int]:
            built.clear()
            for seq in seqs:
                views.as_of(log, now, 0, seq)
            return list(built)

        assert ask(1, 1, 2, 3, 4, 1, 2) == [1, 2, 3, 4]
        assert ask(5, 1, 2, 4, 3) == [5, 3]
        views.forget_old()
        assert ask(3) == []
        monkeypatch.setattr(past, "_REMEMBERED_S", -1.0)
        views.forget_old()
        assert ask(3) == [3]
        views.forget(BUNDLE)
        assert ask(3) == [3]
