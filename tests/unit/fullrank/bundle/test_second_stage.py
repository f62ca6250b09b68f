"""A bundle with a second stage: its searches are those of the first stage, the first hundred reordered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import BundleError
from fullrank.search.rerank.facts import ASKED
from fullrank.search.rerank.features import names
from fullrank.search.rerank.stage import DEPTH, first_of
from fullrank.storage.documents import Document
from tests.bundles import make_bundle
from tests.forging import array, edited
from tests.reranking import SETTINGS, clicks_first, random_trees, stage_of, walked

WORDS = ["copy", "move", "list", "files", "remote", "host", "ssh", "directory", "tree", "apple"]
QUERIES = ["copy files", "remote host ssh", "apple", "tree tree list", "nowhere", ""]


def many(count: int) -> list[Document]:
    """Documents of random words, every tenth equal to the one before it but for its id."""
    rng = np.random.default_rng(1)
    found: list[Document] = []
    for i in range(count):
        fields = {
            "title": " ".join(rng.choice(WORDS, 2)),
            "text": " ".join(rng.choice(WORDS, rng.integers(1, 9))),
            "even": i % 2 == 0,
        }
        found.append(Document(f"d{i:03}", found[-1].fields if i % 10 == 9 else fields))
    return found


DOCUMENTS = many(160)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def plain(root: Path) -> Bundle:
    return open_bundle(root / "plain" / make_bundle(root, "plain", DOCUMENTS, n_dense=6))


@pytest.fixture(scope="module")
def bundle(root: Path) -> Bundle:
    version = make_bundle(root, "staged", DOCUMENTS, n_dense=6, second_stage=stage_of(DOCUMENTS))
    return open_bundle(root / "staged" / version)


def expected(plain: Bundle, text: str, **options: object) -> list[str]:
    """The ids of the whole ranking: the first hundred by the walked trees, ties by first rank."""
    stage, facts = stage_of(DOCUMENTS)
    hits = list(plain.search(text, 1000, **options))  # type: ignore[arg-type]
    rows = np.array([plain.documents.row(hit.id) for hit in hits[:DEPTH]], np.int64)
    [ranking] = plain.retriever.search(plain.encode(text), 1000)
    place = {int(row): i for i, row in enumerate(ranking.rows)}
    first = ranking.take(np.array([place[row] for row in rows.tolist()], np.int64))
    features = stage.features(text, first_of(first), facts.take(rows))
    second = [walked(stage.trees, line)[0] for line in features]
    # Sums of equal leaves in another order differ in their last bits.
    order = sorted(range(len(rows)), key=lambda i: (-round(second[i], 9), i))
    return [hits[i].id for i in order] + [hit.id for hit in hits[DEPTH:]]


@pytest.mark.parametrize("text", QUERIES)
def test_the_first_hundred_are_ordered_by_the_trees(
    plain: Bundle, bundle: Bundle, text: str
) -> None:
    found = bundle.search(text, 1000)
    ids = [hit.id for hit in found]
    assert ids == expected(plain, text)
    assert found.reordered == DEPTH
    first = {hit.id: hit for hit in plain.search(text, 1000)}
    assert ids != list(first)
    assert all(hit == first[hit.id] for hit in found)


@pytest.mark.parametrize("limit", [1, 7, 30])
def test_pages_are_cut_from_one_ranking(bundle: Bundle, limit: int) -> None:
    whole = [hit.id for hit in bundle.search("copy files", 1000)]
    pages = [
        hit.id
        for offset in range(0, 160, limit)
        for hit in bundle.search("copy files", limit, offset=offset)
    ]
    assert pages == whole
    assert bundle.search("copy files", limit, offset=DEPTH).reordered == 0


def test_filtered_and_excluded_documents_are_left_out_first(plain: Bundle, bundle: Bundle) -> None:
    condition = {"even": True}
    found = bundle.search("copy files", 1000, filter=condition, exclude=["d000"])
    assert [h.id for h in found] == expected(
        plain, "copy files", filter=condition, exclude=["d000"]
    )
    wanted = sum(bool(d.fields["even"]) for d in DOCUMENTS if d.id != "d000")
    assert found.reordered == found.total == wanted < DEPTH


def test_an_explanation_names_each_feature_and_adds_up(bundle: Bundle) -> None:
    found = bundle.search("copy files", 120, explain=True)
    last = np.inf
    for hit in list(found)[:DEPTH]:
        why = hit.second_stage
        assert why is not None
        assert why.base + sum(f.contribution for f in why.features) == pytest.approx(why.score)
        assert why.score <= last + 1e-9
        last = why.score
    assert all(hit.second_stage is None for hit in list(found)[DEPTH:])
    assert all(hit.second_stage is None for hit in bundle.search("copy files"))


def test_evaluation_measures_the_order_that_is_served(bundle: Bundle) -> None:
    queries = dict(zip("abc", QUERIES, strict=False))
    best = {query: bundle.search(text, 1)[0].id for query, text in queries.items()}
    found = bundle.evaluate(queries, {query: {id: 1} for query, id in best.items()})
    assert found["mrr"].mean == 1


def test_facts_about_other_documents_are_refused(tmp_path: Path) -> None:
    stage, facts = stage_of(DOCUMENTS)
    short = facts.take(np.arange(159))
    with pytest.raises(BundleError, match="159 documents of 160"):
        make_bundle(tmp_path, "short", DOCUMENTS, second_stage=(stage, short))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda p: (p / "rerank/trees.leaf.npy").unlink(), "trees.leaf.npy: missing"),
        (
            edited(lambda m: m["rerank"].update(features=["score"])),
            "rerank: the second stage was written by another release",
        ),
        (edited(lambda m: m["rerank"].pop("depth")), "rerank: depth is missing"),
        (edited(lambda m: m["rerank"].update(fields=[["title", ["title"]]])), "another release"),
        (edited(lambda m: m.pop("rerank")), "the field 'rerank' is missing"),
        (array("rerank/documents.indptr.npy", lambda a: a[:-1]), "rerank: indptr"),
        (array("rerank/trees.feature.npy", lambda a: a + np.int16(99)), "rerank: a feature is not below"),
    ],
)  # fmt: skip
def test_a_damaged_second_stage_is_refused(tmp_path: Path, damage: object, reason: str) -> None:
    version = make_bundle(tmp_path, "hurt", DOCUMENTS[:20], second_stage=stage_of(DOCUMENTS[:20]))
    folder = tmp_path / "hurt" / version
    assert callable(damage)
    damage(folder)
    with pytest.raises(BundleError, match=reason):
        open_bundle(folder)


def test_a_bundle_of_before_training_queries_ranks_as_it_did(
    tmp_path: Path, bundle: Bundle
) -> None:
    settings = replace(SETTINGS, asked="")
    trees = random_trees(30, 7, len(names(settings.names)) - 1)
    stage, facts = stage_of(DOCUMENTS, trees=trees, settings=settings)
    made = make_bundle(tmp_path, "older", DOCUMENTS, n_dense=6, second_stage=(stage, facts))
    folder = tmp_path / "older" / made
    before = open_bundle(folder).search("copy files", 120, explain=True)
    for name in ASKED:
        (folder / f"rerank/documents.{name}.npy").unlink()

    def as_before(manifest: dict[str, Any]) -> None:
        assert manifest["rerank"].pop("asked") == ""
        for name in ASKED:
            del manifest["files"][f"rerank/documents.{name}.npy"]

    edited(as_before)(folder)
    found = open_bundle(folder).search("copy files", 120, explain=True)
    assert list(found) == list(before)
    assert "nearest" not in stage.names
    assert [hit.id for hit in found] != [hit.id for hit in bundle.search("copy files", 120)]


def test_clicks_change_the_order_of_equal_documents(tmp_path: Path) -> None:
    """The trees see what the first stage does not: of equal documents, the clicked one can win."""
    documents = [Document(f"d{i}", {"title": "copy", "text": "files"}) for i in range(5)]
    stage, facts = stage_of(documents, trees=clicks_first(SETTINGS))
    clicked = replace(facts, clicks=np.array([0, 3, 0, 9, 0], np.int32))
    version = make_bundle(tmp_path, "clicked", documents, second_stage=(stage, clicked))
    found = open_bundle(tmp_path / "clicked" / version).search("copy")
    assert [hit.id for hit in found] == ["d3", "d1", "d0", "d2", "d4"]


def test_trees_for_documents_as_queries_leave_typed_text_alone(root: Path, plain: Bundle) -> None:
    stage = stage_of(DOCUMENTS, of_documents=True)
    version = make_bundle(root, "linked", DOCUMENTS, n_dense=6, second_stage=stage)
    found = open_bundle(root / "linked" / version)
    ids = [hit.id for hit in found.search("copy files", 50)]
    assert ids == [hit.id for hit in plain.search("copy files", 50)]
    [ranking] = found.retriever.search(found.encode("copy files"), DEPTH)
    assert found.reorder("copy files", ranking) is None
    assert found.reorder("copy files", ranking, is_document=True) is not None
