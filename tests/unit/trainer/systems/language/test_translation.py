"""Word translation in front of a model: what is learned, what it passes on, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.errors import RecipeError, TrainingError
from fullrank.models.contract import Parts
from fullrank.models.registry import load_model
from fullrank.models.translation import TranslationModel
from fullrank.progress import Reporter
from fullrank.retrieval.retriever import explain
from fullrank.storage.encoding import Rows
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.recipes.recipe import load_recipe, validate
from fullrank_trainer.systems.translation import translation_table, word_pairs
from fullrank_trainer.train import train
from tests.planted import TOPICS, write_lines, write_planted, write_planted_links, write_qrels

QUIET = Reporter(quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("translation") / "ask")


@pytest.fixture(scope="module")
def second(folder: Path) -> Path:
    """A second query set on the same corpus, in the words of the documents."""
    where = folder.parent / "tell"
    queries = [{"_id": f"t{i}", "text": f"tell{i % TOPICS}a"} for i in range(2 * TOPICS)]
    write_lines(where / "queries.jsonl", queries)
    write_qrels(
        where / "qrels" / "train.tsv", [(f"t{i}", f"d{i % TOPICS}-1") for i in range(2 * TOPICS)]
    )
    (where / "corpus.jsonl").write_bytes((folder / "corpus.jsonl").read_bytes())
    return where


@pytest.fixture(scope="module")
def model(folder: Path, second: Path) -> TranslationModel:
    """A model with a dense part after the translation, learned from the second query set."""
    learned = ["latent=learned", "loss=margin", "dimension=4", "epochs=2", "rates=0.1"]
    result = train(
        folder, folder.parent / "out", "behind", recipe="translation-tfidf",
        overrides=[*learned, f"monolingual={second}"], threads=1, reporter=QUIET,
    )  # fmt: skip
    found = open_bundle(result.path).model
    assert isinstance(found, TranslationModel)
    return found


def test_words_translate_to_their_planted_partners(folder: Path) -> None:
    """ask<t> translates to the words of its topic, and the ranking beats one by shared words."""
    out = folder.parent / "out"
    result = train(folder, out, "plain", recipe="translation-tfidf", threads=1, reporter=QUIET)
    found = {row.system: row.measures["map"].mean for row in result.table}
    assert found["translation-tfidf"] > found["tfidf"] + 0.2
    bundle = open_bundle(result.path)
    model = bundle.model
    assert isinstance(model, TranslationModel)
    matrix = model.table.csr().toarray()
    for word, dense in zip(model.words.words, matrix, strict=True):
        if word.startswith("ask"):
            best = model.targets[int(dense.argmax())]
            assert word[3] in best, (word, best)
            assert dense.sum() == pytest.approx(1, abs=1e-5)
        elif word.startswith("name"):
            assert model.targets[int(dense.argmax())] == word
            assert dense.sum() == 1
    facts = bundle.card["training"]["translation"]
    assert facts["pairs"] == 20 * TOPICS * 6
    assert (np.diff(facts["log_likelihood"]) >= 0).all()


def test_translated_counts_go_through_the_inner_model(model: TranslationModel) -> None:
    """u = U φ(Tᵀq) equals the inner model's vector of those counts; words without a translation are ignored."""
    text = "ask1a ask1a ask2b neverseen decoy1"
    table = model.table.csr().toarray()
    counts = np.zeros(len(model.words))
    for word, times in (("ask1a", 2), ("ask2b", 1), ("decoy1", 1)):
        counts[model.words.row(word)] = times
    expected = counts @ table
    behind = model.model.query
    idf = np.array([behind.idf[behind.words.row(word)] for word in model.targets])
    damped = np.where(expected < 1, expected, 1 + np.log(np.maximum(expected, 1)))
    x = damped * idf
    x /= np.linalg.norm(x)
    rows = behind.words.rows(model.targets)
    found = model.encode_queries([text])
    np.testing.assert_allclose(found.dense[0], x @ behind.table[rows], atol=1e-6)
    assert len(found.sparse.indices) == np.count_nonzero(expected)
    nothing = model.encode_queries(["neverseen", ""])
    assert not nothing.dense.any()
    assert not len(nothing.sparse.indices)


def test_a_query_words_contribution_is_the_sum_over_its_translations(
    folder: Path, model: TranslationModel
) -> None:
    bundle = open_bundle(next((folder.parent / "out" / "behind").glob("*/manifest.json")).parent)
    for text in ("ask1a ask2b decoy1", "ask1a ask1b ask1a", "neverseen", "name0n0 tell0a ask0a"):
        query = model.encode_queries([text])
        ranking = bundle.retriever.search(query, 3)[0]
        for place, row in enumerate(ranking.rows.tolist()):
            found = explain(model.query_terms(text), bundle.retriever, query, row, limit=100)
            assert found.dense == pytest.approx(ranking.dense[place], rel=1e-5, abs=1e-6)
            assert found.lexical == pytest.approx(ranking.lexical[place], rel=1e-5, abs=1e-6)
            assert {word.word for word in found.words} <= set(text.split())


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("table.indptr", lambda a: a[:-1], "into"),
        ("table.values", lambda a: a[:-1], "differ in length"),
        ("table.indices", lambda a: a + 1000, "row of targets"),
        ("table.values", lambda a: -a, "below zero"),
        ("translated.sparse.idf", lambda a: a[:-1], r"sparse\.idf"),
    ],
)
def test_malformed_model_parts_are_refused(
    model: TranslationModel, name: str, change: object, message: str
) -> None:
    assert callable(change)
    parts = model.parts()
    arrays = {**parts.arrays, name: change(parts.arrays[name])}
    with pytest.raises(ValueError, match=message):
        TranslationModel.from_parts(Parts(parts.config, arrays, parts.strings))
    assert isinstance(load_model(parts), TranslationModel)


def test_word_pairs_are_mates_if_all_queries_have_one(tmp_path: Path) -> None:
    """A description translates to the words of its document, not to those of linked documents."""
    folder = write_planted_links(tmp_path / "links")
    ids = [document.id for document in read_collection(folder).documents]
    write_lines(folder / "ja" / "queries.jsonl", [{"_id": id, "text": "語"} for id in ids[:5]])
    corpus = count_collection(read_collection(folder / "ja"), processes=1)
    queries, documents = word_pairs(corpus)
    assert queries.tolist() == documents.tolist() == [0, 1, 2, 3, 4]
    judged = count_collection(read_collection(write_planted(tmp_path / "p")), processes=1)
    queries, documents = word_pairs(judged)
    assert len(queries) == len(documents) == len(judged.pairs)
    assert all(d in judged.pairs[q] for q, d in zip(queries, documents, strict=True))


def test_an_unusable_collection_for_translation_is_refused(folder: Path, tmp_path: Path) -> None:
    recipe = load_recipe("translation-tfidf")
    with pytest.raises(RecipeError, match=r"only train\.monolingual can be learned"):
        validate(recipe.override(["loss=margin"]))
    overrides = ["loss=margin", "latent=learned", f"monolingual={tmp_path / 'other'}"]
    write_planted(tmp_path / "other", seed=7)
    with pytest.raises(TrainingError, match="has other documents than"):
        train(
            folder, tmp_path, "x", recipe="translation-tfidf", overrides=overrides, reporter=QUIET
        )
    bare = write_planted(tmp_path / "bare", splits=["valid"])
    with pytest.raises(TrainingError, match="no judged pair"):
        train(bare, tmp_path, "x", recipe="translation-tfidf", reporter=QUIET)


Pair = tuple[dict[int, float], dict[int, float]]


def rows(texts: list[dict[int, float]], width: int) -> Rows:
    return Rows.from_lists([(list(text), list(text.values())) for text in texts], width)


def random_pairs(seed: int, count: int, words: int) -> list[Pair]:
    """Texts of up to six words with counts; some sides are empty."""
    rng = np.random.default_rng(seed)

    def text() -> dict[int, float]:
        chosen = rng.choice(words, rng.integers(0, 7), replace=False)
        return {int(w): float(rng.integers(1, 4)) for w in chosen}

    return [(text(), text()) for _ in range(count)]


def twin(
    pairs: list[Pair], shape: tuple[int, int], iterations: int
) -> tuple[np.ndarray, list[float]]:
    """Run EM on dense tables, word by word; return the table, and the likelihood before each iteration."""
    P = np.full(shape, 1 / shape[1])
    likelihoods = []
    for _ in range(iterations):
        expected, likelihood = np.zeros(shape), 0.0
        for S, T in pairs:
            if not S:
                continue
            for t, n in T.items():
                shares = {s: m * P[s, t] for s, m in S.items()}
                mass = sum(shares.values())
                likelihood += n * np.log(mass / sum(S.values()))
                for s, share in shares.items():
                    expected[s, t] += n * share / mass
        likelihoods.append(likelihood)
        total = expected.sum(1, keepdims=True)
        P = expected / np.where(total == 0, 1, total)
    return P, likelihoods


def learn(
    pairs: list[Pair], shape: tuple[int, int], iterations: int, floor: float = 0.0
) -> tuple[np.ndarray, list[float]]:
    seen: list[float] = []
    table = translation_table(
        rows([S for S, _ in pairs], shape[0]),
        rows([T for _, T in pairs], shape[1]),
        iterations=iterations,
        floor=floor,
        progress=seen.append,
    )
    return table.toarray(), seen


@pytest.mark.parametrize("seed", range(5))
def test_em_equals_its_numpy_twin(seed: int) -> None:
    pairs = random_pairs(seed, 30, 12)
    found, likelihoods = learn(pairs, (12, 14), 6)
    wanted, expected = twin(pairs, (12, 14), 6)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    np.testing.assert_allclose(likelihoods, expected, rtol=1e-12)


def test_the_likelihood_never_falls_and_rows_sum_to_one() -> None:
    pairs = random_pairs(9, 200, 40)
    found, likelihoods = learn(pairs, (40, 40), 60)
    assert (np.diff(likelihoods) > -1e-9).all()
    assert likelihoods[-1] > likelihoods[0] + 50
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)


def test_words_that_always_occur_together_are_translations() -> None:
    """das Haus, das Buch, ein Buch: words that occur in both of two pairs are translations."""
    das, haus, buch, ein = range(4)
    the, house, book, a = range(4)
    pairs: list[Pair] = [
        ({das: 1, haus: 1}, {the: 1, house: 1}),
        ({das: 1, buch: 1}, {the: 1, book: 1}),
        ({ein: 1, buch: 1}, {a: 1, book: 1}),
    ]
    found, _ = learn(pairs, (4, 4), 100)
    assert found.argmax(1).tolist() == [the, house, book, a]
    assert found[das, the] > 0.99
    assert found[ein, a] > 0.95


def test_small_probabilities_are_dropped() -> None:
    pairs = random_pairs(3, 50, 12)
    whole, _ = learn(pairs, (12, 12), 5)
    found, _ = learn(pairs, (12, 12), 5, floor=0.1)
    kept = whole >= 0.1
    np.testing.assert_array_equal(found > 0, kept)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    share = whole * kept
    np.testing.assert_allclose(found, share / share.sum(1, keepdims=True), atol=1e-12)
    alone, _ = learn(pairs, (12, 12), 5, floor=1.0)
    np.testing.assert_array_equal(np.count_nonzero(alone, axis=1) >= 1, np.ones(12, np.bool_))
    np.testing.assert_allclose(alone.max(1), alone.max(1).clip(1 / 12))


def test_words_without_a_pair_have_no_translation() -> None:
    found, likelihoods = learn([({0: 1}, {}), ({}, {1: 2}), ({}, {})], (3, 3), 4)
    assert not found.any()
    assert likelihoods == [0.0] * 4
    with pytest.raises(ValueError, match="1 source texts, 2 target texts"):
        translation_table(rows([{0: 1}], 2), rows([{}, {}], 2))


def test_a_pair_of_weight_three_counts_as_three_pairs() -> None:
    pairs = random_pairs(5, 20, 8)
    weights = [1 + i % 3 for i in range(20)]
    repeated = [pair for pair, w in zip(pairs, weights, strict=True) for _ in range(w)]
    weighted = [
        (S, {t: w * n for t, n in T.items()}) for (S, T), w in zip(pairs, weights, strict=True)
    ]
    (table, seen), (wanted, likelihoods) = (
        learn(p, (8, 8), iterations=4) for p in (weighted, repeated)
    )
    np.testing.assert_allclose(table, wanted, rtol=1e-6)
    np.testing.assert_allclose(seen, likelihoods, rtol=1e-6)
