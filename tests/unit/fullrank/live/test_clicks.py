"""New clicks: a bundle with them ranks as one that has learned them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fullrank import open_bundle
from fullrank.live import Operation, View
from fullrank.models.clicks import ClickParts
from fullrank.models.memory import MemoryModel, query_key
from fullrank.models.mixed import MixedModel
from fullrank.retrieval import Floor, Mask
from fullrank.search.ordering import Boost, Order, Ordering
from fullrank.search.part import MAX_DOCUMENTS, NewClicks, Query
from fullrank.search.query import Options
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded, Rows
from fullrank.storage.strings import Lexicon
from tests.bundles import FIELDS, linear_model, write_bundle

WORDS = [
    "red",
    "blue",
    "warm",
    "light",
    "city",
    "trail",
    "rain",
    "kids",
    "wool",
    "shoe",
    "coat",
    "hat",
]
QUERIES = ["zzz", "red shoe", "warm coat", "wool hat", "kids rain coat", "blue"]
FLOOR = Floor(lexical=6.0, unseen=6.0, share=0.5, odds=1.0, per_word=1.0, common=60.0)
KAPPA, WEIGHTS = 2.0, (1.0, 1.7, 0.6)
Votes = Counter[tuple[str, str]]


def documents_of(random: np.random.Generator, count: int) -> list[Document]:
    texts = [" ".join(random.choice(WORDS, 4)) for _ in range(count)]
    return [
        Document(f"d{i:03}", {"title": texts[i], "text": WORDS[i % 12], "stars": i % 7})
        for i in range(count)
    ]


def votes_of(random: np.random.Generator, queries: Sequence[str], documents: int) -> Votes:
    """Skewed: some documents have most of the clicks."""
    at = (documents * random.random((150, 2)).min(axis=1)).astype(int)
    return Counter((str(random.choice(queries)), f"d{i:03}") for i in at.tolist())


def rows_of(masks: Sequence[Mask | None]) -> list[list[int]]:
    return [[] if mask is None else np.flatnonzero(mask).tolist() for mask in masks]


def view_of(folder: Path, documents: Sequence[Document], votes: Votes) -> View:
    """A bundle that has learned some clicks."""
    keys = list(dict.fromkeys(query for query, _ in votes))
    place = {document.id: row for row, document in enumerate(documents)}
    counts = np.zeros((len(documents), len(keys)), np.float32)
    for (query, id), count in votes.items():
        counts[place[id], keys.index(query)] += count
    words = linear_model(documents)
    totals = counts.sum(axis=0)
    known = MemoryModel(Lexicon.of(keys), totals, KAPPA, FIELDS, is_of_queries=True)
    popular = MemoryModel(Lexicon.of([]), np.zeros(0, np.float32), KAPPA, FIELDS)
    model = MixedModel([words, known, popular], WEIGHTS)
    rows = [(np.flatnonzero(row).tolist(), np.log1p(row[row > 0] / KAPPA)) for row in counts]
    encoded = model.documents(
        [
            words.encode_documents([d.texts(FIELDS) for d in documents]),
            Encoded.from_rows(Rows.from_lists(rows, len(keys))),
            Encoded.from_rows(
                Rows.empty(len(documents), 0), bias=np.log1p(counts.sum(axis=1)).astype(np.float32)
            ),
        ]
    )
    path = write_bundle(
        folder, "shop", model=model, encoded=encoded, documents=documents,
        golden_queries=["red"], floor=FLOOR, card={},
    )  # fmt: skip
    return View.of(open_bundle(path))


@pytest.mark.parametrize("is_written", [False, True])
def test_ranks_as_a_bundle_that_learned_all_clicks(tmp_path: Path, is_written: bool) -> None:
    random = np.random.default_rng(2)
    documents = documents_of(random, 120)
    learned = votes_of(random, QUERIES[:4], 120)
    new = votes_of(random, QUERIES, 120)
    view = view_of(tmp_path / "some", documents, learned)
    twin = view_of(tmp_path / "all", documents, learned + new)
    clicks = NewClicks.of(view.bundle.click_parts, [(q, d, n) for (q, d), n in new.items()])
    of_all = twin.bundle.click_parts
    assert clicks is not None
    assert of_all is not None
    written = [
        Operation(1, "d001", {"title": "red shoe", "text": "hat", "stars": 1}),
        Operation(2, "d002", None),
        Operation(3, "later", {"title": "warm coat coat", "text": "red", "stars": 2}),
    ]
    if is_written:
        view, twin = view.apply(written), twin.apply(written)
    out = [[random.random(len(part)) < 0.5 for part in view.parts], None]
    n_kept = 0
    for text in (*QUERIES, "coat warm", "unknown hat"):
        plain = view.model.encode_queries([text])
        ours, theirs = clicks.asked(plain, clicks.key(text)), twin.model.encode_queries([text])
        of_twin = {hit.id: hit.score for hit in twin.search(theirs, len(twin)).hits}
        score = Floor(score=4.0)
        floors = [
            (None, None),
            (score, score),
            (view.analyzer.query(text).floor, twin.analyzer.query(text).floor),
        ]
        for matching in out:
            deleted, others = view.deleted(matching), twin.deleted(matching)
            # Documents that were clicked after the query need none of its words.
            required, same = (
                v.analyzer.query(text, Options(match="auto")).required for v in (view, twin)
            )
            if required is not None and same is not None:
                left, _ = view.lacking(ours, required, deleted, deleted)
                assert rows_of(left) == rows_of(twin.lacking(theirs, same, others, others)[0])
                without, _ = view.lacking(plain, required, deleted, deleted)
                n_kept += rows_of(left) != rows_of(without)
            for floor, their in floors:
                for offset in (0, 3):
                    asked = Query.from_encoded(ours, floor=floor)
                    found = view.search(asked, 5, offset=offset, deleted=deleted)
                    asked = Query.from_encoded(theirs, floor=their)
                    wanted = twin.search(asked, 5, offset=offset, deleted=others)
                    # Equal scores may differ in their last digit, and so in their order.
                    own = [hit.score for hit in found.hits]
                    assert own == pytest.approx([hit.score for hit in wanted.hits], abs=1e-4)
                    assert own == pytest.approx([of_twin[h.id] for h in found.hits], abs=1e-4)
                    assert (found.total, found.is_total) == (wanted.total, wanted.is_total)
                    assert found.certified
                    if floor is not None and their is not None:
                        assert rows_of(view.below(ours, floor, deleted)) == rows_of(
                            twin.below(theirs, their, others)
                        )
        boosts = Ordering(boosts=[Boost("stars", 0.7)])
        hits, twins = (
            Order(v, boosts).search(q, slice(2, 9), deleted=v.deleted(), mode="exact").hits
            for v, q in ((view, ours), (twin, theirs))
        )
        assert [h.score for h in hits] == pytest.approx([h.score for h in twins], abs=1e-4)
        for hit in hits:
            split = hit.part.explain(view.model.query_terms(text), ours, hit.row)
            parts = [split.dense, split.lexical, split.bias, hit.boost]
            assert parts == pytest.approx([hit.dense, hit.lexical, hit.bias, hit.boost])
            part, row = twin.find(hit.id)
            share = part.clicks(of_all, theirs, of_all.key(text), row)
            assert hit.part.clicks(clicks.parts, ours, ours.key, hit.row) == pytest.approx(
                share, abs=1e-2
            )
    assert n_kept > 5


def test_keeps_the_most_clicked_documents(tmp_path: Path) -> None:
    documents = [Document(f"d{i:05}", {"title": "hat"}) for i in range(MAX_DOCUMENTS + 20)]
    view = view_of(tmp_path, documents, Counter())
    votes = [("hat", document.id, 1 + (i >= 20)) for i, document in enumerate(documents)]
    found = NewClicks.of(view.bundle.click_parts, votes)
    assert found is not None
    assert set(found.of_document) == {document.id for document in documents[20:]}
    assert query_key("hat") in found.queries.queries


@pytest.mark.parametrize("weights", [(0.0, 1.0), (-1.0, 1.0)])
def test_a_blend_that_gives_clicks_no_weight_counts_none(weights: tuple[float, float]) -> None:
    known = MemoryModel(Lexicon.of(["red shoe"]), np.ones(1, np.float32), 3.0, is_of_queries=True)
    popular = MemoryModel(Lexicon.of([]), np.zeros(0, np.float32), 3.0)
    assert ClickParts.of(MixedModel([known, popular], weights)) is None


def test_popularity_weighs_as_in_the_biases() -> None:
    """Documents as queries and typed text share the biases, so one of their weights decides."""
    known = MemoryModel(Lexicon.of(["red shoe"]), np.ones(1, np.float32), 3.0, is_of_queries=True)
    popular = MemoryModel(Lexicon.of([]), np.zeros(0, np.float32), 3.0, bias=2.0)
    blend = MixedModel([known, popular], (1.0, 0.5), document_weights=(1.0, 3.0))
    parts = ClickParts.of(blend)
    assert parts is not None
    weight, bias = parts.popularity
    assert blend.encode_documents([{}]).bias.tolist() == [weight * bias]
