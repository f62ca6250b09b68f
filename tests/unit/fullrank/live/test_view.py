"""A view answers the same as one index over the same documents; ids find their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import DocumentRefused, FilterError
from fullrank.filters.columns import columns_of
from fullrank.filters.facets import facet_over
from fullrank.filters.query import matching, parse_filter
from fullrank.live import Operation, View, segments
from fullrank.live.segments import Merged
from fullrank.retrieval import Floor, Retriever
from fullrank.retrieval.index import Effort, build
from fullrank.retrieval.index.build import index_in_memory
from fullrank.search import part as part_module
from fullrank.search.part import Part, Query
from fullrank.storage.documents import Document
from fullrank.storage.encoding import concatenate
from fullrank.storage.strings import DocumentStore
from tests.bundles import CORPUS, CORPUS_WORDS, linear_model
from tests.live import brute_force, bundle_of, flat
from tests.random_cases import cases

WORDS = [*CORPUS_WORDS, "newword", "another", "東京"]
IDS = [f"d{i}" for i in range(8)] + ["linux/cp", "ls", "zz"]

document = st.fixed_dictionaries(
    {
        "title": st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
        "text": st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    },
    optional={
        "section": st.one_of(st.sampled_from([1, 2, "net", True]), st.none()),
        "tag": st.lists(st.sampled_from("abc"), max_size=2),
    },
)
writes = st.lists(st.tuples(st.sampled_from(IDS), st.one_of(st.none(), document)), max_size=30)
progress = st.dictionaries(
    st.integers(1, 30), st.sampled_from(["cut", "cut", "merge", "adopt", "settle"]), max_size=20
)
FILTERS: list[dict[str, Any]] = [
    {},
    {"section": 1},
    {"section": "net"},
    {"not": {"section": {"gte": 2}}},
    {"tag": {"in": ["a", "c"]}},
    {"or": [{"tag": "b"}, {"section": {"exists": False}}]},
]
# No test removes this document: its fields make every filter valid.
ANCHOR = Document("anchor", {"section": [1, "net", True], "tag": "b", "title": None})
BASE: dict[str, Mapping[str, Any]] = {
    d.id: d.fields
    for d in [*CORPUS, ANCHOR, *(Document(f"d{i}", {"text": "files"}) for i in range(4))]
}
BUNDLES = [
    bundle_of(linear_model([Document(id, f) for id, f in BASE.items()], n_dense=n), BASE)
    for n in (0, 8)
]


class Writing:
    """A view while it is written on, and merges of its segments that go on meanwhile, started and adopted at will.

    Attributes:
        base: What is left of the bundle's documents.
        added: What was written since.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.base, self.added = dict(BASE), dict[str, Any]()
        self._merged: Merged | None = None

    def write(self, operations: list[tuple[str, Any]], steps: Mapping[int, str]) -> None:
        """Write; after an operation of that number, step: "cut" applies the batch, "merge" and "adopt" a merge."""
        batch: list[Operation] = []
        for seq, (id, fields) in enumerate(operations, start=1):
            self.base.pop(id, None)
            self.added.pop(id, None)
            if fields is not None:
                self.added[id] = fields
            batch.append(Operation(seq, id, fields))
            if seq in steps:
                self.view, batch = self.view.apply(batch), []
                self.step(steps[seq])
        self.view = self.view.apply(batch)
        self.step("adopt")

    def step(self, name: str) -> None:
        if self._merged is not None and name in ("merge", "adopt"):
            self.view, self._merged = self.view.adopt(self._merged), None
        if name == "merge" and (due := self.view.due(idle=True)):
            self._merged = self.view.merge(due)
        if name == "settle" and self._merged is None:
            self.view = self.view.settled()


def written(
    view: View, operations: list[tuple[str, Any]], steps: Mapping[int, str]
) -> tuple[View, dict[str, Any], dict[str, Any]]:
    """Apply writes and merges; return the view, the bundle's remaining documents and the added ones."""
    writing = Writing(view)
    writing.write(operations, steps)
    return writing.view, writing.base, writing.added


def deep(levels: int) -> list[Any]:
    """Return a list nested this many levels deep."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that both sides of each occur with few documents."""
    monkeypatch.setattr(segments, "_MIN_DOCUMENTS", 2)
    monkeypatch.setattr(segments, "INDEXED_FROM", 4)
    monkeypatch.setattr(part_module, "_MAX_EXTRA_HITS", 1)


@pytest.mark.sweep
@given(
    operations=writes,
    steps=progress,
    dense=st.sampled_from([0, 1]),
    query=st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join),
    limit=st.integers(1, 12),
    offset=st.integers(0, 6),
    asked=st.one_of(st.none(), st.sampled_from(FILTERS)),
    exclude=st.lists(st.sampled_from([*IDS, "nowhere"]), max_size=3),
    floor=st.sampled_from([None, Floor(0.5, 1.0), Floor(lexical=0.1), Floor(score=0.3)]),
    having=st.sampled_from([*WORDS, ""]),
)
@cases(30)
def test_a_view_answers_the_same_as_one_index_over_its_documents(
    operations: list[tuple[str, Any]],
    steps: dict[int, str],
    dense: int,
    query: str,
    limit: int,
    offset: int,
    asked: dict[str, Any] | None,
    exclude: list[str],
    floor: Floor | None,
    having: str,
) -> None:
    view, base, added = written(View.of(BUNDLES[dense]), operations, steps)
    ids, documents = flat(view, base, added)
    everything = {**base, **added}
    assert view.seq == len(operations)
    assert len(view) == len(ids)
    kept = np.ones(len(ids), np.bool_)
    masks = None
    if asked is not None:
        condition = parse_filter(asked)
        masks = [matching(condition, columns) for columns in view.columns]
        kept = matching(condition, columns_of([everything[id] for id in ids]))
    kept = kept & np.array([id not in exclude for id in ids], np.bool_)

    encoded = view.encoder.encode_queries([query])
    if floor is not None and floor.score is None:
        features = view.model.encode_queries([having]).sparse.indices.tolist()
        floor = replace(floor, per_word=0.0).having(features)
    found = view.search(
        Query.from_encoded(view.model.encode_queries([query]), floor=floor),
        limit,
        offset=offset,
        deleted=view.deleted(masks, exclude),
    )
    if floor is not None:
        parts = Retriever(documents).score_parts(encoded, np.arange(len(ids)))
        own = view.encoder.encode_queries([having if floor.words else ""]).sparse.csr()
        shared = (abs(documents.sparse.csr()) @ abs(own).T).toarray()[:, 0] > 0
        kept = kept & (floor.reached(*parts) | shared)
    assert found.certified
    assert (found.total, found.is_total) == (kept.sum(), True)
    expected = brute_force(documents, encoded, ids, kept.tolist())[offset : offset + limit]
    assert [hit.score for hit in found.hits] == pytest.approx([s for _, s in expected], rel=1e-12)
    assert [hit.score for hit in found.hits] == [h.dense + h.lexical + h.bias for h in found.hits]
    # The same retrieval over one index: equal to the last bit, ties by id.
    [truth] = Retriever(documents).search(encoded, limit, offset=offset, deleted=~kept)
    assert [hit.id for hit in found.hits] == [ids[row] for row in truth.rows.tolist()]
    assert [hit.score for hit in found.hits] == truth.scores.tolist()
    for hit in found.hits:
        assert hit.part.store.fields(hit.row) == everything[hit.id] == view.fields(hit.id)


@pytest.mark.sweep
@given(
    operations=writes,
    steps=progress,
    field=st.sampled_from(["section", "tag", "title"]),
    limit=st.integers(1, 5),
)
@cases(15)
def test_facets_of_a_view_equal_those_of_one_table(
    operations: list[tuple[str, Any]], steps: dict[int, str], field: str, limit: int
) -> None:
    view, base, added = written(View.of(BUNDLES[0]), operations, steps)
    everything = [*base.values(), *added.values()]
    parts = [
        (columns, np.ones(columns.documents, np.bool_) if mask is None else ~mask)
        for columns, mask in zip(view.columns, view.deleted(), strict=True)
    ]
    everywhere = np.ones(len(everything), np.bool_)
    assert facet_over(parts, field, limit) == facet_over(
        [(columns_of(everything), everywhere)], field, limit
    )


def test_replayed_operations_change_nothing() -> None:
    view = View.of(BUNDLES[0], seq=3)
    assert view.apply([Operation(2, "a", {}), Operation(3, "ls", None)]) is view
    later = view.apply([Operation(3, "ls", None), Operation(4, "a", {"text": "files"})])
    assert (later.seq, len(later)) == (4, len(view) + 1)
    assert later.fields("ls") == view.fields("ls")


def test_applying_operations_leaves_the_old_view_unchanged() -> None:
    view = View.of(BUNDLES[0]).apply([Operation(1, "a", {"text": "files"})])
    before = view.search(view.model.encode_queries(["files"]), 20)
    view.apply([Operation(2, "a", None), Operation(3, "ls", None), Operation(4, "b", {})])
    after = view.search(view.model.encode_queries(["files"]), 20)
    assert [(h.id, h.score) for h in before.hits] == [(h.id, h.score) for h in after.hits]
    assert view.fields("a") == {"text": "files"}


def test_a_deleted_document_is_not_found() -> None:
    view = View.of(BUNDLES[0]).apply(
        [Operation(1, "a", {}), Operation(2, "a", None), Operation(3, "ls", None)]
    )
    for id in ("a", "ls", "nowhere"):
        with pytest.raises(KeyError):
            view.fields(id)


@pytest.mark.sweep
def test_six_hundred_single_writes_make_few_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MIN_DOCUMENTS", 16)
    view = View.of(BUNDLES[0])
    for seq in range(1, 600):
        view = view.apply([Operation(seq, f"n{seq:04}", {"text": f"files {seq}"})])
        if due := view.due():
            view = view.adopt(view.merge(due))
        sizes = [len(part) for part in view.added]
        assert sum(sizes) == seq
        assert len(sizes) <= 9
    assert len(view.settled().added) <= 2
    assert view.settled().due(idle=True) == ()


def test_a_merge_is_chosen_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MIN_DOCUMENTS", 1)
    view = View.of(BUNDLES[0])

    def sizes(parts: tuple[Part, ...]) -> list[int]:
        return [len(part) for part in parts]

    for size in (40, 3, 2, 1):
        operations = [
            Operation(view.seq + i, f"{size}/{i:02}", {"text": "files"}) for i in range(1, size + 1)
        ]
        view = view.apply(operations)
    assert sizes(view.due()) == []
    # The largest is more than eight times the others together only without the fourth.
    assert sizes(view.due(idle=True)) == [1, 2, 3, 40]
    view = view.apply([Operation(view.seq + 1, "3/01", None)])
    assert sorted(sizes(view.due(idle=True))) == [1, 2, 3]
    merged = view.adopt(view.merge(view.due(idle=True)))
    assert sorted(sizes(merged.added)) == [5, 40]
    assert merged.due(idle=True) == ()
    # One that is mostly removed is copied.
    merged = merged.apply([Operation(merged.seq + i, f"40/{i:02}", None) for i in range(1, 22)])
    assert sizes(merged.due(idle=True)) == [5, 40]
    assert sizes(merged.settled().added) == [24]


def test_the_fast_mode_searches_few_live_documents_exactly() -> None:
    rng = np.random.default_rng(1)
    documents = {
        f"b{i:03}": {"title": "", "text": " ".join(rng.choice(WORDS[:8], 5))} for i in range(400)
    }
    given = [Document(id, fields) for id, fields in documents.items()]
    bundle = bundle_of(linear_model(given, n_dense=4), documents)
    # With so little effort the index finds almost nothing among the bundle's documents.
    index = index_in_memory(bundle.encoded.whole(), cells=40)
    index = replace(index, effort=Effort(1, 20, 1, 1, 20))
    bundle = replace(bundle, retriever=Retriever(bundle.encoded, None, index))
    writes = [Operation(i, f"n{i:03}", documents[f"b{i:03}"]) for i in range(1, 300)]
    view = View.of(bundle).apply([*writes, Operation(300, "b001", None)])
    for text in ("copy files", "ssh", "list directory host"):
        query = view.model.encode_queries([text])
        exact = view.search(query, 1000)
        fast = view.search(query, 5, mode="fast")
        assert not fast.certified
        assert fast.total == exact.total == 699 - 1
        scores = {hit.id: hit.score for hit in exact.hits}
        assert all(scores[hit.id] == hit.score for hit in fast.hits)
        [best] = [hit for hit in exact.hits if hit.id.startswith("n")][:1]
        assert fast.hits[0].score >= best.score
        live = [hit.id for hit in exact.hits if hit.id.startswith("n")]
        shown = [hit.id for hit in fast.hits if hit.id.startswith("n")]
        assert shown == live[: len(shown)]


def test_many_live_documents_have_a_fast_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "INDEXED_FROM", 100)
    monkeypatch.setattr(build, "FAST_FROM", 200)
    rng = np.random.default_rng(1)
    texts = [{"title": "", "text": " ".join(rng.choice(WORDS[:8], 5))} for _ in range(400)]
    documents = {f"b{i:03}": fields for i, fields in enumerate(texts)}
    given = [Document(id, fields) for id, fields in documents.items()]
    bundle = bundle_of(linear_model(given, n_dense=4), documents)
    # The margin is so wide that every cell may reach any score.
    index = index_in_memory(bundle.encoded.whole(), cells=40)
    index = replace(index, effort=Effort(1, 20, 400, 1, 1000, 0.0, 1e6))
    bundle = replace(bundle, retriever=Retriever(bundle.encoded, None, index))
    writes = [Operation(i, f"n{i:03}", documents[f"b{i:03}"]) for i in range(1, 300)]
    view = View.of(bundle).apply([*writes, Operation(300, "b001", None)]).settled()
    assert [part.retriever.modes for part in view.added] == [("exact", "fast")]
    for text in ("copy files", "ssh", "list directory host"):
        query = view.model.encode_queries([text])
        exact, fast = view.search(query, 9), view.search(query, 9, mode="fast")
        assert exact.certified
        assert not fast.certified
        assert [hit.id for hit in fast.hits] == [hit.id for hit in exact.hits]
        assert [hit.score for hit in fast.hits] == [hit.score for hit in exact.hits]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"title": 5}, "'title' is int, not text"),
        ({"text": ["a", 5]}, "'text' is list, not text"),
        (
            {"text": "x", "section": "x" * 257},
            "'section' is used in filters, but it holds text longer",
        ),
        ({"text": "x", "tag": {"a": 1}}, "'tag' is used in filters, but it holds objects"),
        ({"text": "x", "other": float("nan")}, "cannot be stored"),
        ({"text": "x", "other": deep(199)}, "nests deeper than 200 levels"),
        ({"text": "x", "other": deep(100_000)}, "cannot be stored"),
        ({}, "No text to search for: fill one of the fields 'text', 'title'"),
        ({"title": "", "text": " \n"}, "No text to search for"),
    ],
)
def test_a_document_that_does_not_fit_is_refused_with_a_reason(
    fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DocumentRefused, match=reason):
        View.of(BUNDLES[0]).check("a", fields)


def arrays_of(value: Any, seen: dict[int, Any]) -> dict[int, Any]:
    """Everything that an object refers to, by identity."""
    if id(value) not in seen and not isinstance(value, str | bytes | int | float | type):
        seen[id(value)] = value
        slots = (getattr(value, name, None) for name in getattr(type(value), "__slots__", ()))
        own = vars(value).values() if hasattr(value, "__dict__") else slots
        items = value if isinstance(value, list | tuple) else ()
        for part in (*own, *items, *(value.values() if isinstance(value, dict) else ())):
            arrays_of(part, seen)
    return seen


@pytest.mark.parametrize("n_dense", [pytest.param(0, marks=pytest.mark.sweep), 40])
@pytest.mark.parametrize("kind", ["ordinary", "new words", "short"])
def test_the_memory_of_a_document_is_estimated_within_a_factor_of_two(
    n_dense: int, kind: str
) -> None:
    rng = np.random.default_rng(1)
    known = [f"known{i}" for i in range(2000)]

    def texts(words: list[str], count: int, length: int) -> dict[str, dict[str, Any]]:
        return {
            f"d{i}": {"title": f"of {i}", "text": " ".join(rng.choice(words, length))}
            for i in range(count)
        }

    stored = texts(known, 200, 40)
    model = linear_model([Document(*pair) for pair in stored.items()], n_dense=n_dense)
    view = View.of(bundle_of(model, stored))
    new = {
        "ordinary": texts(known, 300, 40),
        "new words": texts([f"new{i}" for i in range(30_000)], 40, 500),
        "short": texts(known, 1000, 1),
    }[kind]
    live = view.apply([Operation(i, *pair) for i, pair in enumerate(new.items(), 1)])
    found = [*arrays_of(live.added, {id(live.bundle): None}).values()]
    kept = sum(array.nbytes for array in found if isinstance(array, np.ndarray))
    estimated = sum(len(json.dumps(own)) + view.memory_of(own) for own in new.values())
    assert kept / 2 < estimated < kept * 2


def test_a_document_may_nest_as_deep_as_the_limit() -> None:
    View.of(BUNDLES[0]).check("a", {"text": "x", "other": deep(198)})


def test_a_field_that_only_live_documents_have_is_protected_for_filters() -> None:
    view = View.of(BUNDLES[0])
    view.check("a", {"text": "x", "colour": {"red": 1}})
    view = view.apply([Operation(1, "b", {"colour": "red"})])
    with pytest.raises(DocumentRefused, match="'colour' is used in filters, but it holds objects"):
        view.check("a", {"text": "x", "colour": {"red": 1}})


def test_a_page_beyond_the_last_hit_has_the_total_in_every_mode() -> None:
    view = View.of(BUNDLES[0])
    word = next(
        w for fields in map(view.fields, view.base.store.ids) for w in fields["text"].split()
    )
    query = view.model.encode_queries([word])
    for floor in (Floor(lexical=1e-6), Floor(lexical=1e6)):
        asked = Query.from_encoded(query, floor=floor)
        exact = view.search(asked, 10, offset=500)
        fast = view.search(asked, 10, offset=500, mode="fast")
        assert not exact.hits + fast.hits
        assert (fast.total, fast.is_total) == (exact.total, True)


def test_documents_that_come_together_take_no_field_from_each_others_filters() -> None:
    new = View.of(BUNDLES[0]).new_fields()
    new.add({"text": "x", "colour": "red", "size": {"a": 1}, "shape": None})
    for fields in ({"colour": {"a": 1}}, {"colour": [["red"]]}):
        with pytest.raises(DocumentRefused, match="'colour' is used in filters by an earlier line"):
            new.add({"text": "x", **fields})
    # A field that no filter can use has nothing to lose, and one without a value says nothing.
    new.add({"text": ["x"], "size": 3, "shape": {"a": 1}, "colour": ["blue", 3]})
    new.add({"size": {"b": 1}, "shape": "round"})


def test_filters_find_documents_with_more_than_256_fields() -> None:
    """Only 256 fields become columns; fields of earlier documents are among them."""
    many: dict[str, Any] = {f"field{i}": i for i in range(300)}
    view = View.of(BUNDLES[0]).apply([Operation(1, "few", {"colour": "red"})])
    for seq in range(2, 8):
        view = view.apply([Operation(seq, f"many{seq}", {**many, "colour": "red", "section": 7})])
        for asked, expected in (({"section": 7}, seq - 1), ({"colour": "red"}, seq)):
            found = [matching(parse_filter(asked), columns) for columns in view.columns]
            assert sum(int(mask.sum()) for mask in found) == expected
    with pytest.raises(DocumentRefused, match="'section' is used in filters, but it holds objects"):
        view.check("a", {**many, "text": "x", "section": {"a": 1}})


def test_a_deletion_reuses_all_columns() -> None:
    operations = [Operation(i, f"n{i}", {"colour": "red"}) for i in range(1, 9)]
    view = View.of(BUNDLES[0]).apply(operations)
    later = view.apply([Operation(9, "n1", None)])
    assert [len(part) for part in later.added] == [8]
    assert [id(part.columns) for part in later.parts] == [id(part.columns) for part in view.parts]


def test_a_document_accepted_under_another_model_is_applied() -> None:
    view = View.of(BUNDLES[0])
    fitting: dict[str, Any] = {
        "title": None,
        "text": "x" * 10_000,
        "new": {"a": [1]},
        "section": None,
        "tag": [],
    }
    view.check("a", fitting)
    # This one does not fit. Another model may have accepted it, so the log must go on.
    later = view.apply([Operation(1, "a", {"title": 5, "text": {"b": 1}, "section": {}})])
    assert later.fields("a") == {"title": 5, "text": {"b": 1}, "section": {}}
    with pytest.raises(FilterError, match="cannot be filtered on"):
        matching(parse_filter({"section": 1}), later.columns[0])


@pytest.mark.sweep
@given(operations=writes, steps=progress, size=st.integers(1, 9))
@cases(13)
def test_batches_of_a_view_join_to_the_encoding_of_its_documents(
    operations: list[tuple[str, Any]], steps: dict[int, str], size: int
) -> None:
    view, base, added = written(View.of(BUNDLES[1]), operations, steps)
    ids, expected = flat(view, base, added)
    batches = list(view.batches(size))
    documents = [document for part, _ in batches for document in part]
    assert [d.id for d in documents] == ids
    assert [d.fields for d in documents] == [{**base, **added}[id] for id in ids]
    assert all(len(part) <= size for part, _ in batches)
    found = concatenate([encoded for _, encoded in batches])
    for name in ("dense", "indptr", "indices", "weights", "bias"):
        np.testing.assert_array_equal(found.arrays()[name], expected.arrays()[name])
    assert found.sparse.width == expected.sparse.width


some_ids = st.lists(st.text(max_size=3), unique=True, max_size=30)


@given(known=some_ids, wanted=some_ids)
def test_rows_are_those_of_a_dictionary(known: list[str], wanted: list[str]) -> None:
    known.sort()
    rows = DocumentStore(known, ["{}"] * len(known)).rows(wanted)
    assert rows.tolist() == [known.index(id) if id in known else -1 for id in wanted]
