"""Every order and every group against brute force over the documents of a view."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import FilterError
from fullrank.live import Operation, View
from fullrank.search import ordering as module
from fullrank.search.ordering import Boost, Decay, Group, GroupBy, Order, Ordering, SortKey, within
from fullrank.search.part import Part
from fullrank.search.searchable import Hits
from fullrank.storage.documents import Document
from tests.bundles import linear_model
from tests.live import brute_force, bundle_of, flat
from tests.random_cases import cases

Fields = dict[str, Any]
NOW = datetime.fromisoformat("2026-11-23T12:00:00+00:00").timestamp()
WORDS = ["copy", "files", "move", "remote", "host", "ssh", "list", "directory"]


def documents(prefix: str, count: int, seed: int) -> dict[str, Fields]:
    """Documents some of which lack fields, have several values, or equal ones."""
    rng = np.random.default_rng(seed)
    found: dict[str, Fields] = {}
    for i in range(count):
        fields: Fields = {"title": "", "text": " ".join(rng.choice(WORDS, 3))}
        if rng.random() < 0.8:
            fields["stars"] = int(rng.integers(-2, 9))
        if rng.random() < 0.8:
            fields["published"] = f"2026-{rng.integers(1, 12):02}-{rng.integers(1, 28):02}"
        if rng.random() < 0.7:
            fields["brand"] = str(rng.choice(["acme", "zenith", "apex"]))
        if rng.random() < 0.5:
            fields["sizes"] = rng.integers(0, 20, rng.integers(1, 4)).tolist()
        fields["is_new"] = bool(rng.random() < 0.5)
        found[f"{prefix}{i:03}"] = fields
    return found


BASE, ADDED = documents("b", 90, 1), documents("n", 25, 2)
QUERY = "copy remote files"


@pytest.fixture(scope="module", params=["bundle", "live"])
def view(request: pytest.FixtureRequest) -> View:
    model = linear_model([Document(id, fields) for id, fields in BASE.items()], n_dense=8)
    found = View.of(bundle_of(model, BASE))
    if request.param == "bundle":
        return found
    writes = [Operation(i, id, fields) for i, (id, fields) in enumerate(ADDED.items(), 1)]
    return found.apply([*writes, Operation(99, "b003", None)])


@cache
def stored(view: View) -> dict[str, Fields]:
    """The documents of a view."""
    return {id: view.fields(id) for id in sorted([*BASE, *ADDED]) if has(view, id)}


def has(view: View, id: str) -> bool:
    try:
        view.find(id)
    except KeyError:
        return False
    return True


@cache
def scores(view: View) -> dict[str, float]:
    """The score of each document, computed the plain way."""
    own = stored(view)
    base = {id: fields for id, fields in own.items() if id in BASE}
    added = {id: fields for id, fields in own.items() if id in ADDED}
    ids, encoded = flat(view, base, added)
    query = view.encoder.encode_queries([QUERY])
    return dict(brute_force(encoded, query, ids, [True] * len(ids)))


def search(view: View, asked: Ordering, limit: int, offset: int = 0, **more: Any) -> Hits:
    query = view.model.encode_queries([QUERY])
    deleted = view.deleted()
    mode = more.pop("mode", "exact")
    return Order(view, asked).search(
        query, slice(offset, offset + limit), deleted=deleted, mode=mode
    )


def many(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def seconds(text: str) -> float:
    return datetime.fromisoformat(f"{text}T00:00:00+00:00").timestamp()


def decayed(value: str) -> float:
    """A boost that halves in 30 days."""
    return float(0.5 ** (abs(seconds(value) - NOW) / (30 * 86_400)))


def boost(fields: Fields) -> float:
    """What BOOSTS add to the score of a document."""
    stars = max([math.log1p(max(0, x)) for x in many(fields.get("stars"))], default=0.0)
    sizes = max([0.3 ** (abs(x - 7) / 2) for x in many(fields.get("sizes"))], default=0.0)
    published = max(map(decayed, many(fields.get("published"))), default=0.0)
    return 2 * published - 0.3 * stars + 1.5 * sizes


BOOSTS = (
    Boost("published", 2.0, Decay("now", "30d", 0.5)),
    Boost("stars", -0.3),
    Boost("sizes", 1.5, Decay(7, 2, 0.3)),
)


@pytest.mark.parametrize(("limit", "offset"), [(1, 0), (10, 0), (7, 5), (200, 0), (5, 500)])
@pytest.mark.parametrize("first", [2, 1000])
def test_boosted_scores_equal_the_brute_force(
    view: View, limit: int, offset: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST", first)
    monkeypatch.setattr(module, "_STEP", 2)
    plain, own = scores(view), stored(view)
    expected = sorted((-(plain[id] + boost(own[id])), id) for id in own)[offset : offset + limit]
    found = search(view, Ordering(boosts=BOOSTS, now=NOW), limit, offset)
    assert [hit.id for hit in found.hits] == [id for _, id in expected]
    assert found.certified
    assert found.total == len(own)
    for hit in found.hits:
        assert hit.boost == pytest.approx(boost(own[hit.id]), abs=1e-9)
        assert hit.score == hit.dense + hit.lexical + hit.bias + hit.boost
        assert hit.score - hit.boost == pytest.approx(plain[hit.id], abs=1e-5)


def test_a_distance_beyond_float64_is_boosted_by_nothing(view: View) -> None:
    far = Boost("stars", 1.0, Decay(1e308, 1e-300))
    assert {hit.boost for hit in search(view, Ordering(boosts=[far]), 200).hits} == {0.0}


def test_reading_stops_where_no_boost_can_help(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    depths = []
    original = Part.search

    def noted(self: Any, query: Any, limit: int, **named: Any) -> Any:
        depths.append(limit)
        return original(self, query, limit, **named)

    monkeypatch.setattr(module, "_FIRST", 4)
    monkeypatch.setattr(module, "_STEP", 2)
    monkeypatch.setattr(Part, "search", noted)
    weak = Ordering(boosts=[Boost("stars", 1e-6)], now=NOW)
    assert [hit.id for hit in search(view, weak, 2).hits] == [
        id for _, id in sorted((-score, id) for id, score in scores(view).items())[:2]
    ]
    assert 0 < max(depths) < 20


def test_groups_are_read_no_deeper_than_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {f"d{i:04}": {"title": "", "text": "copy", "brand": f"b{i // 3}"} for i in range(2000)}
    model = linear_model([Document(id, own) for id, own in fields.items()], n_dense=8)
    view, depths = View.of(bundle_of(model, fields)), []
    original = View.search

    def noted(self: View, query: Any, limit: int, **named: Any) -> Hits:
        depths.append(limit)
        return original(self, query, limit, **named)

    monkeypatch.setattr(View, "search", noted)
    found = search(view, Ordering(group_by=GroupBy("brand", 1)), 10)
    assert [hit.id for hit in found.hits] == [f"d{i:04}" for i in range(0, 30, 3)]
    assert depths == [10, 80]


def test_equal_boosted_scores_are_in_the_order_of_ids(view: View) -> None:
    same = Ordering(boosts=[Boost("stars", 0.0)], now=NOW)
    found = [(-hit.score, hit.id) for hit in search(view, same, 200).hits]
    assert found == sorted(found)
    assert len({score for score, _ in found}) < len(found)


@pytest.mark.parametrize(("limit", "offset"), [(1, 0), (10, 3), (300, 0), (5, 200)])
@pytest.mark.parametrize(
    "keys",
    [
        [SortKey("stars")],
        [SortKey("published", True)],
        [SortKey("is_new", True), SortKey("stars", True)],
        [SortKey("sizes"), SortKey("published")],
        [SortKey("sizes", True)],
    ],
)
def test_sorted_hits_equal_the_brute_force(
    view: View, keys: list[SortKey], limit: int, offset: int
) -> None:
    own = stored(view)

    def place(id: str) -> tuple[Any, ...]:
        parts: list[Any] = []
        for key in keys:
            values = [
                seconds(x) if isinstance(x, str) else float(x) for x in many(own[id].get(key.field))
            ]
            best = (max if key.is_descending else min)(values, default=math.nan)
            sign = -1 if key.is_descending else 1
            parts += [1, 0.0] if math.isnan(best) else [0, sign * best]
        return (*parts, id)

    found = search(view, Ordering(sort=keys), limit, offset)
    assert [hit.id for hit in found.hits] == sorted(own, key=place)[offset : offset + limit]
    assert found.total == len(own)
    plain = scores(view)
    for hit in found.hits:
        assert hit.score == pytest.approx(plain[hit.id], abs=1e-5)


def grouped(ids: list[str], own: dict[str, Fields], field: str, limit: int) -> list[str]:
    counts: Counter[Any] = Counter()
    kept = []
    for id in ids:
        values = set(many(own[id].get(field)))
        if all(counts[value] < limit for value in values):
            counts.update(values)
            kept.append(id)
    return kept


@pytest.mark.parametrize("field", ["brand", "sizes", "stars"])
@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize(
    "asked", [Ordering(), Ordering(boosts=BOOSTS, now=NOW), Ordering(sort=[SortKey("stars")])]
)
def test_groups_equal_the_brute_force(view: View, field: str, limit: int, asked: Ordering) -> None:
    own = stored(view)
    whole = [hit.id for hit in search(view, asked, 500).hits]
    assert len(whole) == len(own)
    expected = grouped(whole, own, field, limit)
    by_group = Ordering(asked.sort, asked.boosts, GroupBy(field, limit), now=NOW)
    for count, offset in ((3, 0), (4, 3), (500, 0)):
        found = search(view, by_group, count, offset)
        assert [hit.id for hit in found.hits] == expected[offset : offset + count]


def diverse(view: View, ids: list[str], weight: float) -> list[str]:
    """Maximal marginal relevance, one pair at a time."""
    own, plain = stored(view), scores(view)
    first = ids[:100]
    vectors = []
    for id in first:
        encoded = view.bundle.model.encode_documents(
            [{name: str(own[id].get(name, "")) for name in ("title", "text")}]
        )
        vectors.append(np.concatenate([encoded.dense[0], encoded.sparse.csr().toarray()[0]]))
    unit = [vector / np.linalg.norm(vector) for vector in np.array(vectors, np.float64)]
    best, least = plain[first[0]], plain[first[-1]]
    chosen = [0]
    while len(chosen) < len(first):
        values = {
            i: (1 - weight) * (plain[id] - least) / (best - least)
            - weight * max(float(unit[i] @ unit[j]) for j in chosen)
            for i, id in enumerate(first)
            if i not in chosen
        }
        top = max(values.values())
        chosen.append(min(i for i, value in values.items() if value > top - 1e-9))
    return [first[i] for i in chosen] + ids[100:]


@pytest.mark.parametrize("weight", [0.3, 0.9])
def test_diverse_hits_equal_the_brute_force(weight: float) -> None:
    model = linear_model([Document(id, fields) for id, fields in BASE.items()], n_dense=8)
    some = {id: BASE[id] for id in [*BASE][:40]}
    view = View.of(bundle_of(model, some))
    whole = [hit.id for hit in search(view, Ordering(diversity=1e-12), 500).hits]
    assert whole == [id for _, id in sorted((-score, id) for id, score in scores(view).items())]
    expected = diverse(view, whole, weight)
    for count, offset in ((3, 0), (500, 0), (6, 4)):
        found = search(view, Ordering(diversity=weight), count, offset)
        assert [hit.id for hit in found.hits] == expected[offset : offset + count]
    assert expected != whole


def test_only_the_first_hits_are_made_diverse(view: View) -> None:
    whole = [hit.id for hit in search(view, Ordering(), 500).hits]
    found = [hit.id for hit in search(view, Ordering(diversity=0.8), 500).hits]
    assert sorted(found[:100]) == sorted(whole[:100])
    assert found[100:] == whole[100:]
    assert found[0] == whole[0]


@pytest.mark.parametrize(
    ("asked", "path", "reason"),
    [
        (Ordering(sort=[SortKey("nowhere")]), "sort.0.field", "known fields: brand"),
        (Ordering(sort=[SortKey("stars"), SortKey("brand")]), "sort.1.field", "this field has text"),
        (Ordering(boosts=[Boost("brand", 1.0)]), "boost.0.field", "as in: sizes, stars"),
        (Ordering(boosts=[Boost("published", 1.0)]), "boost.0.field", "log needs numbers"),
        (Ordering(boosts=[Boost("is_new", 1.0, Decay(1, 1))]), "boost.0.field", "true or false"),
        (Ordering(boosts=[Boost("stars", 1.0, Decay("now", 1))]), "boost.0.decay.origin", "number"),
        (Ordering(boosts=[Boost("stars", 1.0, Decay(1, "1d"))]), "boost.0.decay.scale", "number"),
        (Ordering(boosts=[Boost("stars", 1.0, Decay(1, 0))]), "boost.0.decay.scale", "above 0"),
        (
            Ordering(boosts=[Boost("published", 1.0, Decay("2026-01-01", "1d"))]),
            "boost.0.decay.origin",
            "offset from UTC",
        ),
        (Ordering(boosts=[Boost("published", 1.0, Decay("now", "1 day"))]), "boost.0.decay.scale", "30d"),
        (Ordering(boosts=[Boost("published", 1.0, Decay(0, "1d"))]), "boost.0.decay.origin", "now"),
        (Ordering(group_by=GroupBy("nowhere")), "group_by.field", "unknown field"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(view: View, asked: Ordering, path: str, reason: str) -> None:
    with pytest.raises(FilterError) as raised:
        search(view, asked, 1)
    assert raised.value.path == path
    assert reason in raised.value.reason


@pytest.mark.parametrize("field", ["brand", "sizes", "is_new"])
@pytest.mark.parametrize(
    "asked", [Ordering(), Ordering(sort=[SortKey("stars")]), Ordering(boosts=[Boost("stars", 2)])]
)
def test_the_first_hits_have_all_that_the_groups_keep(
    view: View, field: str, asked: Ordering
) -> None:
    query = view.model.encode_queries([QUERY])
    grouping = GroupBy(field, 2)
    order = Order(view, Ordering(asked.sort, asked.boosts, grouping, now=NOW))
    whole = Order(view, asked).search(query, slice(len(view)), deleted=view.deleted(), mode="exact")
    for count in (1, 5, 40, len(view) + 1):
        found, is_all = order.first(query, count, deleted=view.deleted(), mode="exact")
        ids = [hit.id for hit in found.hits]
        assert ids == [hit.id for hit in whole.hits if hit.id in set(ids)]
        assert len(ids) <= count
        kept = order.search(query, slice(count), deleted=view.deleted(), mode="exact")
        if is_all:
            assert {hit.id for hit in kept.hits} <= set(ids)
        else:
            # Cut off: it has every kept hit that comes before its last one.
            last = [hit.id for hit in whole.hits].index(ids[-1])
            before = {hit.id for hit in whole.hits[: last + 1]}
            assert {hit.id for hit in kept.hits} & before <= set(ids)


groups = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
# (place among all documents, groups) of each document of one part
parts = st.lists(
    st.lists(st.tuples(st.integers(0, 99), groups), max_size=8), min_size=1, max_size=4
)


def keyed(names: Sequence[str]) -> list[Group]:
    return [("keyword", name) for name in names]


@given(parts, st.integers(1, 3))
@cases(150)
def test_documents_that_are_not_possible_are_never_kept(
    drawn: list[list[tuple[int, list[str]]]], limit: int
) -> None:
    numbered = [
        sorted((place, part, names) for place, names in documents)
        for part, documents in enumerate(drawn)
    ]
    pruned = [
        [documents[i] for i in within((keyed(names) for *_, names in documents), limit, 0)]
        for documents in numbered
    ]
    answers = []
    for given_parts in (numbered, pruned):
        merged = sorted(chain.from_iterable(given_parts))
        kept = within((keyed(names) for *_, names in merged), limit)
        answers.append([merged[place] for place in kept])
    assert answers[0] == answers[1]


def test_single_values_leave_no_more_than_the_limit() -> None:
    documents = [keyed("a"), keyed("a"), keyed("b"), keyed(""), keyed("ab"), keyed("a")]
    assert within(documents, 1, 0) == [0, 2, 3]
    assert within(documents, 2, 0) == [0, 1, 2, 3]
