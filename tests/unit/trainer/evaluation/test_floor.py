"""Floors keep what real queries find, and leave nothing to made-up ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.retrieval import Floor
from fullrank.text.words import words
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import judge, query_texts
from fullrank_trainer.evaluation.floor import SHORTEST, calibrate_floor, random_words
from fullrank_trainer.train import train


@pytest.fixture(scope="module")
def few_made_up_words() -> None:
    """As many as the product draws."""


@pytest.fixture(scope="module")
def bm25(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle; no test may change it."""
    return train(planted, tmp_path_factory.mktemp("bundles"), "bm25", recipe="bm25").path


@pytest.fixture(scope="module")
def trained(bm25: Path, planted: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The bundle of each recipe; no test may change it."""
    fielded = train(planted, tmp_path_factory.mktemp("bundles"), "fielded", recipe="fielded")
    return {"bm25": bm25, "fielded": fielded.path}


@pytest.mark.sweep
def test_a_trained_bundle_finds_real_words_and_no_made_up_ones(
    planted: Path, trained: dict[str, Path]
) -> None:
    for path in trained.values():
        bundle = open_bundle(path)
        assert bundle.floor is not None
        assert bundle.card["floor"]["lexical"] == bundle.floor.lexical
        collection = read_collection(planted)
        for split in ("valid", "test"):
            judgements, _ = judge(collection, split)
            texts = query_texts(collection, bundle.model, [j.query for j in judgements])
            for text, judgement in zip(texts, judgements, strict=True):
                query = bundle.encode(text)
                [free] = bundle.retriever.search(query, 10)
                [found] = bundle.retriever.search(query, 10, floor=bundle.floor)
                kept = np.isin(free.rows, judgement.relevant) & np.isin(free.rows, found.rows)
                assert len(found.rows)
                if split == "valid":
                    np.testing.assert_array_equal(kept, np.isin(free.rows, judgement.relevant))
        for text in ("zzzqqqxxy", "🎉", "qqq www xxx"):
            assert bundle.search(text).total == len(bundle.search(text)) == 0


@pytest.mark.sweep
def test_random_words_do_not_reach_the_standard_and_real_queries_do(
    planted: Path, trained: dict[str, Path]
) -> None:
    bundle, collection = open_bundle(trained["fielded"]), read_collection(planted)
    floor = bundle.floor
    assert floor is not None
    assert floor.share >= 0.5
    assert Floor.from_json(floor.json()) == floor
    familiar = bundle.known_words
    judgements, _ = judge(collection, "valid")
    texts = query_texts(collection, bundle.model, [j.query for j in judgements])
    assert all(familiar.is_familiar(text, floor.share, floor.odds) for text in texts)
    made_up = random_words(texts, 1000, np.random.default_rng(99))
    lengths = {len(word) for text in texts for word in text.split() if len(word) >= SHORTEST}
    assert {len(word) for word in made_up} == lengths
    known = sum(familiar.is_familiar(word, floor.share, floor.odds) for word in made_up)
    assert known <= 20
    assert familiar.odds(texts[0].split()[0]) == float("inf")


def test_old_floors_keep_their_form() -> None:
    stored = {"dense": 1.0, "lexical": None, "unseen": 2.0}
    floor = Floor.from_json(stored)
    assert floor.json() == stored
    assert floor.share == 0
    with pytest.raises(ValueError, match="share"):
        Floor.from_json({**stored, "share": 0.5})


@pytest.mark.sweep
def test_floors_follow_their_rule(planted: Path, trained: dict[str, Path]) -> None:
    """By matrices of all queries and documents."""
    bundle, collection = open_bundle(trained["fielded"]), read_collection(planted)
    judgements, _ = judge(collection, "valid")
    texts = query_texts(collection, bundle.model, [j.query for j in judgements])
    found = calibrate_floor(bundle.model, bundle.encoded.whole(), texts, judgements)
    assert found is not None

    def parts(asked: list[str]) -> tuple[np.ndarray, np.ndarray]:
        queries = bundle.encode(asked)
        dense = queries.dense.astype(float) @ bundle.encoded.whole().dense.astype(float).T
        lexical = queries.sparse.csr() @ bundle.encoded.whole().sparse.csr().T
        return dense, lexical.toarray().astype(float)

    all_words = sorted({word for text in texts for word in text.split()})
    assert len(all_words) < 200  # all of them are drawn
    matched = parts(all_words)[1].max(axis=1)
    weak = float(np.quantile(matched[matched > 1e-6], 0.02))
    assert found.words == pytest.approx(weak, rel=1e-4)
    np.testing.assert_allclose(found.floor.lexical, 0.8 * weak, rtol=1e-4)
    dense, lexical = parts(texts)
    tails = np.median(np.quantile(dense, 0.999, axis=1))
    assert found.random == pytest.approx(tails, rel=1e-4)
    scores = dense + lexical + bundle.encoded.bias
    lost = []
    for i, judgement in enumerate(judgements):
        first = np.argsort(-scores[i], kind="stable")[:10]
        answers = np.intersect1d(first, judgement.relevant)
        lost += dense[i, answers[lexical[i, answers] < found.floor.lexical]].tolist()
    best = dense[lexical.max(axis=1) < found.floor.lexical].max(axis=1, initial=np.inf)
    upper = max(found.random or 0, found.noise or 0)
    expected = max(min([upper, *lost, *best.tolist()]), 1e-6)
    np.testing.assert_allclose(found.floor.dense, expected, rtol=1e-4)


@pytest.mark.sweep
def test_the_growth_by_words_keeps_judged_documents_without_a_word(
    planted: Path, trained: dict[str, Path]
) -> None:
    """By matrices of all queries and documents, and the words of their texts."""
    for path in trained.values():
        bundle, collection = open_bundle(path), read_collection(planted)
        judgements, _ = judge(collection, "valid")
        texts = query_texts(collection, bundle.model, [j.query for j in judgements])
        encoded = bundle.encoded.whole()
        found = calibrate_floor(bundle.model, encoded, texts, judgements)
        assert found is not None
        floor, known = found.floor, bundle.known_words
        assert floor.common == max(1.0, len(bundle.documents) / 10)
        own = [
            {*words(" ".join(document.texts(["title", "text"]).values()))}
            for document in collection.documents
        ]
        queries = bundle.encode(texts)
        dense = queries.dense.astype(float) @ encoded.dense.astype(float).T
        lexical = (queries.sparse.csr() @ encoded.sparse.csr().T).toarray().astype(float)
        scores = dense + lexical + encoded.bias
        row_of = {id: row for row, id in enumerate(bundle.documents.ids)}
        ids = [document.id for document in collection.documents]
        growth = [np.inf]
        for i, judgement in enumerate(judgements):
            asked = {word for word in words(texts[i]) if known.is_known(word)}
            here = asked & set().union(*own)
            rare = {word for word in here if known.document_frequency(word) <= floor.common} or here
            has_word = np.zeros(len(ids), np.bool_)
            for id, text in zip(ids, own, strict=True):
                has_word[row_of[id]] = bool(rare & text)
            first = np.argsort(-scores[i], kind="stable")[:100]
            lost = first[np.isin(first, judgement.relevant) & ~has_word[first]]
            values = [*lexical[i, lost].tolist()]
            if not has_word.any():
                values.append(float(lexical[i].max()))
            if len(asked) > 1:
                growth += [
                    (value / floor.lexical - 1) / (len(asked) - 1)
                    for value in values
                    if value >= floor.lexical
                ]
        assert found.growth == pytest.approx(min(growth), rel=1e-3, abs=1e-3)
        assert floor.per_word == pytest.approx(min(0.8 * min(growth), 1.0), abs=1e-3)


def test_a_model_without_dense_part_has_no_dense_floor(bm25: Path) -> None:
    bundle = open_bundle(bm25)
    assert bundle.manifest.floor is not None
    assert bundle.manifest.floor.json()["dense"] is None
    none = calibrate_floor(bundle.model, bundle.encoded.whole(), ["", " "])
    assert none is None
    assert replace(bundle.manifest, floor=None).dump() != bundle.manifest.dump()


def test_words_of_documents_are_found_where_validation_has_none_of_them(tmp_path: Path) -> None:
    """A short log of clicks: people say sneakers, and the only query of valid is that one."""
    lines = ['{"_id": "s", "title": "Running shoes"}', '{"_id": "t", "title": "Family tent"}']
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines), "utf-8")
    queries = '{"_id": "q", "text": "sneakers"}\n{"_id": "r", "text": "wigwam"}'
    (tmp_path / "queries.jsonl").write_text(queries, "utf-8")
    (tmp_path / "qrels").mkdir()
    for split, pair in (("valid", "q\ts"), ("train", "r\tt")):
        text = f"query-id\tcorpus-id\tscore\n{pair}\t1\n"
        (tmp_path / "qrels" / f"{split}.tsv").write_text(text, "utf-8")
    bundle = open_bundle(train(tmp_path, tmp_path / "bundles", "shop", recipe="bm25").path)
    assert [hit.id for hit in bundle.search("shoes")] == ["s"]
    assert bundle.search("sneakers").total == 0
