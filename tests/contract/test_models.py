"""Promises of every model, whichever recipe made it.

Each recipe is trained once, tiny, on planted data; every test below runs over all of them.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import DocumentRefused
from fullrank.live import Operation, View
from fullrank.models.contract import Parts
from fullrank.models.expansion import ExpansionModel
from fullrank.models.registry import load_model
from fullrank.models.unseen import without_unseen
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank.retrieval.retriever import explain
from fullrank.retrieval.scoring import InnerProduct
from fullrank.search.part import Query
from fullrank.storage.encoding import Encoded, concatenate
from fullrank.text.words import count_words, words
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.evaluation.evaluate import evaluate, query_texts
from fullrank_trainer.indexing import index
from fullrank_trainer.recipes.recipe import Recipe, load_recipe
from fullrank_trainer.systems.linear.parameters import (
    compile_model,
    encode_corpus,
    encode_judged,
    scan_documents,
    scan_queries,
    start,
)
from fullrank_trainer.train import Candidate, Trainer, train
from tests.api.support import running
from tests.clicked import with_clicks
from tests.contract.cases import CASES, EVERYDAY, Case
from tests.contract.twins import twin_of
from tests.live import flat
from tests.planted import write_lines, write_planted, write_planted_links

pytestmark = pytest.mark.usefixtures("one_thread", "few_made_up_words")

QUIET = Reporter(quiet=True)
NASTY = [
    "",
    " \t\n",
    "neverseen",
    "decoy1",
    "decoy1 decoy1 decoy1 decoy2",
    "tell1a " * 40 + "ask2b",
    "ask0a ask0b shared0 decoy3 decoy4 neverseen ask0x",
    "NAME0N0 Tell0a, name1n1!",
    "name0n0 name0n0 tell0a tell0b tell0c tell0d",
    "decoyx decoyx decoy3 askoa tellia shard askoa",
    "日本語 decoy1 ภาษาไทย",
    "\x00 \ufffd 🙂 ‘decoy2’",
    "Décoy1 tell0ä tell 0 a askedzero ask-0b decoy-1s",
]


# Models without a lexical part or with a scorer, and one whose documents have the features of words that they lack.
WITHOUT_WORDS = {
    "auto", "best", "bltm", "bltm-pr", "bltm-pr-1v", "cl-lsa",
    "cross-language", "dssm", "dssm-batch", "eigenmaps", "htr", "htr-graph",
    "htr-reconstruction", "lsa", "lsi", "opca", "plsa", "query-expansion",
    "s2net", "unigram", "word-translation",
}  # fmt: skip
# Their queries keep the largest of their features alone, which need not be those of their words.
WITH_FEW_WORDS = {"ssi-dense", "ssi-dense-zero-diagonal", "hash-kernels-identity"}


@dataclass(frozen=True, eq=False)
class Trained:
    """The bundle of a case as it is served, and the collection that it was trained on."""

    case: Case
    folder: Path
    collection: Collection
    bundle: Bundle
    queries: list[str]

    @cached_property
    def documents(self) -> list[dict[str, str]]:
        """The text fields of the documents, with their clicked text for models that use it."""
        found = with_clicks(self.collection).documents
        return [document.texts(["title", "text", "clicked"]) for document in found]

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with the overrides of the case."""
        return load_recipe(self.case.recipe).override(self.case.overrides)

    def in_memory(self) -> tuple[Trainer, Candidate]:
        """Train again, up to the model in memory."""
        out = self.folder.parent / "again"
        trainer = Trainer(self.collection, QUIET, out, "again", seed=1, threads=1, resume=False)
        return trainer, trainer.search(self.recipe)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            case,
            id=case.label.replace(" ", "-"),
            marks=[] if case.label in EVERYDAY else pytest.mark.sweep,
        )
        for case in CASES
    ],
)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Train one case with one thread and seed 1."""
    case: Case = request.param
    root = tmp_path_factory.mktemp("contract")
    folder = (write_planted_links if case.links else write_planted)(root / "collection")
    result = train(
        folder, root / "bundles", "planted", recipe=case.recipe, overrides=case.overrides,
        threads=1, reporter=QUIET,
    )  # fmt: skip
    collection = read_collection(folder)
    bundle = open_bundle(result.path)
    texts = [bundle.model.query_text(d.fields) for d in collection.documents[::7]]
    if collection.queries is not None:
        texts = [query.text for query in collection.queries[::9]]
    return Trained(case, folder, collection, bundle, [*NASTY, *texts])


@pytest.fixture(scope="module")
def again(trained: Trained) -> tuple[Trainer, Candidate]:
    """Train the case a second time, in memory only."""
    return trained.in_memory()


def same(a: Encoded, b: Encoded) -> bool:
    """Tell whether two encodings are equal bit for bit."""
    return all(
        mine.dtype == other.dtype and np.array_equal(mine, other)
        for mine, other in zip(a.arrays().values(), b.arrays().values(), strict=True)
    ) and (a.sparse.width == b.sparse.width)


def is_mapped(array: object) -> bool:
    """Tell whether an array, or the array that it views, is mapped from a file."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap | mmap.mmap)


def test_training_finds_the_planted_answers(trained: Trained) -> None:
    """MAP 1 is the known best answer: a dense part or a full W reaches it, a diagonal beats overlap by a margin."""
    split = "valid" if trained.case.links else "test"
    excluded = ["train"] if trained.case.links else ["train", "valid"]
    found = evaluate(trained.bundle, trained.collection, split, excluded)
    overlap = next(row["map"] for row in trained.bundle.card["table"] if row["system"] == "tfidf")
    model, reached = trained.recipe.model, found.measures["map"].mean
    if model.latent == "learned" or trained.recipe.system == "pairs":
        assert reached > 0.9
        assert reached > overlap + 0.1
    elif model.diagonal == "learned":
        assert reached > overlap + 0.15
    else:
        assert reached > 2 / 6  # chance is one topic of six
    assert trained.bundle.card["table"][0]["map"] <= 1


def test_exact_mode_equals_the_product_of_full_matrices(trained: Trained) -> None:
    """The golden property: scores are qᵀWd, with W read from the stored parts, on every query."""
    bundle = trained.bundle
    twin = twin_of(
        bundle.model.parts(), bundle.encoded.whole(), transductive=trained.case.transductive
    )
    dense, lexical = twin.scores(trained.queries, trained.documents)
    bias = bundle.encoded.bias.astype(np.float64)
    wanted = dense + lexical + bias
    tolerance = 2e-6 * (1 + np.abs(dense) + np.abs(lexical))
    rankings = bundle.retriever.search(
        bundle.model.encode_queries(trained.queries), len(trained.documents)
    )
    for i, ranking in enumerate(rankings):
        rows = ranking.rows
        assert sorted(rows.tolist()) == list(range(len(trained.documents)))
        np.testing.assert_array_less(np.abs(ranking.dense - dense[i, rows]), tolerance[i, rows])
        np.testing.assert_array_less(np.abs(ranking.lexical - lexical[i, rows]), tolerance[i, rows])
        np.testing.assert_array_equal(ranking.bias, bias[rows])
        # The order is that of W too, wherever two scores differ by more than the tolerance.
        slack = 2 * tolerance[i].max()
        assert (np.diff(wanted[i, rows]) <= slack).all()


def test_the_top_k_is_the_head_of_the_full_ranking(trained: Trained) -> None:
    """Ties are ordered by row, and a shorter result is the head of a longer one, bit for bit."""
    bundle = trained.bundle
    queries = bundle.model.encode_queries(trained.queries)
    full = bundle.retriever.search(queries, len(trained.documents))
    for short, ranking in zip(bundle.retriever.search(queries, 5), full, strict=True):
        order = np.lexsort((ranking.rows, -ranking.scores))
        np.testing.assert_array_equal(order, np.arange(len(order)))
        np.testing.assert_array_equal(short.rows, ranking.rows[:5])
        np.testing.assert_array_equal(short.scores, ranking.scores[:5])
        assert short.certified


def test_a_batch_of_queries_equals_its_queries_one_by_one(trained: Trained) -> None:
    """A text has the same bits in a batch as alone."""
    model, retriever = trained.bundle.model, trained.bundle.retriever
    batch = model.encode_queries(trained.queries)
    rankings = retriever.search(batch, 10)
    for i, text in enumerate(trained.queries):
        single = model.encode_queries([text])
        assert same(batch.slice(i, i + 1), single), text
        alone = retriever.search(single, 10)[0]
        np.testing.assert_array_equal(rankings[i].rows, alone.rows)
        np.testing.assert_array_equal(rankings[i].scores, alone.scores)
    documents = [{}, {"title": "", "text": ""}, {"text": "neverseen"}, *trained.documents[::5]]
    encoded = model.encode_documents(documents)
    for i, document in enumerate(documents):
        assert same(encoded.slice(i, i + 1), model.encode_documents([document])), document


def test_same_seed_and_one_thread_give_the_same_bits(
    trained: Trained, again: tuple[Trainer, Candidate]
) -> None:
    """Two trainings, one stored and loaded, are equal at tolerance 0 in every array and string."""
    stored, fresh = trained.bundle.model.parts(), again[1].fitted.model.parts()
    assert stored.config == fresh.config
    assert stored.arrays.keys() == fresh.arrays.keys()
    for name, array in fresh.arrays.items():
        assert array.dtype == stored.arrays[name].dtype, name
        np.testing.assert_array_equal(stored.arrays[name], array, err_msg=name)
    assert {name: list(strings) for name, strings in stored.strings.items()} == {
        name: list(strings) for name, strings in fresh.strings.items()
    }
    assert same(trained.bundle.encoded.whole(), again[1].fitted.documents)


def test_a_saved_model_equals_the_one_in_memory(
    trained: Trained, again: tuple[Trainer, Candidate]
) -> None:
    """Memory, loaded and mapped give equal scores at tolerance 0."""
    candidate = again[1].fitted
    bundle = trained.bundle
    for name in ("dense", "indices", "weights", "bias"):
        array = bundle.encoded.whole().arrays()[name]
        assert is_mapped(array) or not array.size, name
    rebuilt = load_model(candidate.model.parts())
    memory = candidate.model.encode_queries(trained.queries)
    assert same(memory, bundle.model.encode_queries(trained.queries))
    assert same(memory, rebuilt.encode_queries(trained.queries))
    documents = candidate.documents
    here = Retriever(documents, candidate.model.scorer(documents)).search(memory, 20)
    there = bundle.retriever.search(bundle.model.encode_queries(trained.queries), 20)
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a.rows, b.rows)
        np.testing.assert_array_equal(a.scores, b.scores)


def test_documents_unknown_to_training_can_be_indexed(trained: Trained, tmp_path: Path) -> None:
    """Indexing batch by batch stores the encoding of the model's public encoder."""
    given = [{"_id": f"new{i:02}", "text": text} for i, text in enumerate(NASTY)]
    given += [{"_id": d.id, **d.fields} for d in trained.collection.documents[::3]]
    write_lines(tmp_path / "corpus.jsonl", given)
    path = index(
        trained.bundle.path, tmp_path, tmp_path / "out", batch=3, processes=1, reporter=QUIET
    ).path
    found = open_bundle(path)
    ids = sorted(item["_id"] for item in given)
    assert list(found.documents.ids) == ids
    by_id = {item.pop("_id"): item for item in given}
    assert same(
        found.encoded.whole(), trained.bundle.model.encode_documents([by_id[id] for id in ids])
    )


def test_explanations_add_up_to_the_score(trained: Trained) -> None:
    """The parts and the words add up to the score."""
    bundle = trained.bundle
    rankings = bundle.retriever.search(bundle.model.encode_queries(trained.queries), 3)
    for text, ranking in zip(trained.queries, rankings, strict=True):
        query = bundle.model.encode_queries([text])
        terms = bundle.model.query_terms(text)
        for place, row in enumerate(ranking.rows.tolist()):
            found = explain(terms, bundle.retriever, query, row, limit=1000)
            assert found.dense == pytest.approx(ranking.dense[place], rel=1e-5, abs=1e-5)
            assert found.lexical == pytest.approx(ranking.lexical[place], rel=1e-5, abs=1e-5)
            assert found.bias == ranking.bias[place]
            total = sum(word.dense + word.lexical for word in found.words)
            assert total + found.bias == pytest.approx(ranking.scores[place], rel=1e-5, abs=1e-5)


def test_shares_of_the_words_of_documents_add_up_to_the_score(trained: Trained) -> None:
    model, documents = trained.bundle.model, trained.documents[:5]
    encoded = model.encode_documents(documents)
    columns = [document.values() for document in documents]
    words = sorted({word for texts in columns for text in texts for word in count_words(text)})
    kinds = str(model.config)
    # A language model is no sum over the words of a document; words of one bucket share its weight.
    adds_up = "'language'" not in kinds and trained.case.label != "fielded buckets"
    scorer = model.scorer(encoded)
    for text in trained.queries:
        query = model.encode_queries([text])
        shares = model.word_shares(query, documents, encoded, words)
        assert shares.shape == (len(documents), len(words))
        assert np.isfinite(shares).all()
        own = count_words(text)
        assert model.matching_words(text, sorted(own.keys() & set(words))).all()
        if not adds_up or isinstance(model, ExpansionModel):
            continue
        assert scorer is None
        dense, lexical = InnerProduct(encoded).score(query, np.arange(len(documents)))
        for i, document in enumerate(documents):
            if document["title"] not in text:  # a title in a query is a phrase, which is no word
                expected = dense[i] + lexical[i]
                assert shares[i].sum() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_live_documents_rank_like_documents_of_the_bundle(trained: Trained) -> None:
    """Added, replaced and deleted documents give the order and bits of one bundle with the same documents."""
    bundle = trained.bundle
    view = View.of(bundle)
    if isinstance(bundle.model, ExpansionModel):
        with pytest.raises(DocumentRefused, match="supports no live documents"):
            view.apply([Operation(1, "new", {"text": "tell1a"})])
        return
    ids = list(bundle.documents.ids)
    new = {f"new{i}": {"title": text, "text": "tell1a"} for i, text in enumerate(NASTY)}
    new[ids[3]] = {"title": "name0n0 unheard", "text": "tell2b decoy1 unheard"}
    writes: list[tuple[str, Any]] = [*new.items(), (ids[0], None), (ids[5], None), ("no", None)]
    for cut in range(0, len(writes), 4):
        part = enumerate(writes[cut : cut + 4], start=cut + 1)
        view = view.apply([Operation(seq, id, fields) for seq, (id, fields) in part])
    left: dict[str, dict[str, Any]] = {id: {} for id in ids if id not in (ids[0], ids[3], ids[5])}
    here, documents = flat(view, left, new)
    truth = Retriever(documents, view.encoder.scorer(documents))
    for text in [*trained.queries, "unheard", "neverseen decoy1 unheard"]:
        query = view.model.encode_queries([text])
        assert same(query, view.encoder.encode_queries([text]))
        found = view.search(query, 7, offset=1)
        [expected] = truth.search(query, 7, offset=1)
        assert [hit.id for hit in found.hits] == [here[row] for row in expected.rows.tolist()]
        assert [hit.score for hit in found.hits] == expected.scores.tolist()
        assert found.certified
        assert found.total == len(here)
        terms = view.model.query_terms(text)
        for hit in found.hits[:2]:
            why = hit.part.explain(terms, query, hit.row)
            assert why.dense == pytest.approx(hit.dense, rel=1e-5, abs=1e-5)
            assert why.lexical == pytest.approx(hit.lexical, rel=1e-5, abs=1e-5)


def test_a_document_of_unknown_words_is_found_by_them(trained: Trained) -> None:
    bundle = trained.bundle
    if isinstance(bundle.model, ExpansionModel):
        return
    view = View.of(bundle).apply([Operation(1, "new", {"title": "", "text": "qqxx qqzz"})])
    asked = view.search(view.model.encode_queries(["qqzz"]), 1000)
    [hit] = [hit for hit in asked.hits if hit.id == "new"]
    assert hit.lexical > 0
    query = Query.from_encoded(view.model.encode_queries(["qqzz"]), floor=bundle.floor)
    found = view.search(query, 1000)
    assert hit.id in [one.id for one in found.hits]
    other = view.search(view.model.encode_queries(["qqyy"]), 1000)
    [without] = [hit for hit in other.hits if hit.id == "new"]
    model = bundle.live_model
    assert model is not None
    # A model with few trained buckets puts unrelated words into one.
    if not model.rule.words.buckets:
        assert without.lexical == 0
    if not bundle.model.n_dense:
        assert asked.hits[0].id == "new"


def test_a_document_with_the_one_word_of_a_query_is_found(trained: Trained) -> None:
    bundle = trained.bundle
    if bundle.floor is None or bundle.floor.per_word is None:
        assert trained.case.recipe in WITHOUT_WORDS
        return
    of_words: dict[str, set[str]] = {}
    for document in trained.collection.documents:
        for word in {*words(document.texts(["text"])["text"])}:
            of_words.setdefault(word, set()).add(document.id)
    known = bundle.known_words
    # A model that translates its queries knows no word by name.
    asked = [word for word in sorted(of_words) if known.is_known(word) or not known.tables][::9]
    assert len(asked) > 5
    for word in asked:
        found = bundle.search(word, len(bundle.documents))
        if trained.case.recipe not in WITH_FEW_WORDS:
            assert {hit.id for hit in found} >= of_words[word], word
        assert found.total == len(found)


def test_a_model_with_features_for_unknown_words_is_loaded_unchanged(trained: Trained) -> None:
    model = trained.bundle.live_model
    if model is None:
        assert isinstance(trained.bundle.model, ExpansionModel)
        return
    parts = model.parts()
    found = load_model(Parts(json.loads(json.dumps(parts.config)), parts.arrays, parts.strings))
    assert found.config == model.config
    assert found.n_sparse == model.n_sparse == trained.bundle.model.n_sparse + (1 << 20)
    assert same(found.encode_queries(trained.queries), model.encode_queries(trained.queries))
    given = trained.documents[::5]
    assert same(found.encode_documents(given), model.encode_documents(given))
    # One by one the same bits, and the encoding of the model itself is unchanged.
    one = concatenate([model.encode_queries([text]) for text in trained.queries])
    assert same(one, model.encode_queries(trained.queries))
    own = without_unseen(one, trained.bundle.model.n_sparse)
    assert same(own, trained.bundle.model.encode_queries(trained.queries))


def assert_one_table(parts: Parts) -> None:
    """A word has the same vector in a document as in a query."""
    place = {word: row for row, word in enumerate(parts.strings["query.words"])}
    rows = [place[word] for word in parts.strings["document.words"]]
    np.testing.assert_array_equal(parts.arrays["document.table"], parts.arrays["query.table"][rows])


def test_the_service_returns_the_results_of_retrieval(trained: Trained) -> None:
    """Over HTTP: the same documents, scores and parts, certified and explained, for queries unknown to training."""
    texts = [text for text in trained.queries if text.strip()][:8]

    async def ask() -> list[dict[str, Any]]:
        async with running(trained.folder.parent / "bundles") as client:
            plain = {"limit": 5, "explain": True, "prefix": "none"}
            requests = [{"query": text, **plain} for text in texts]
            replies = [await client.post("/v1/search", json=request) for request in requests]
        assert [reply.status_code for reply in replies] == [200] * len(texts)
        return [reply.json() for reply in replies]

    bundle = trained.bundle
    queries = bundle.model.encode_queries(texts)
    for place, (answer, text) in enumerate(zip(anyio.run(ask), texts, strict=True)):
        assert answer["certified"]
        query, floor = queries.slice(place, place + 1), bundle.analyzer.query(text).floor
        [ranking] = bundle.retriever.search(query, 5, floor=floor)
        if not len(ranking.rows) and floor is not None:
            [ranking] = bundle.retriever.search(query, 5, floor=floor.of_any_word())
        hits = answer["hits"]
        assert [hit["id"] for hit in hits] == [bundle.documents.ids[row] for row in ranking.rows]
        assert [hit["score"] for hit in hits] == ranking.scores.tolist()
        for hit in hits:
            parts = hit["explanation"]
            total = parts["dense"] + parts["lexical"] + parts["bias"]
            assert total == pytest.approx(hit["score"], rel=1e-12, abs=1e-12)


def test_training_and_serving_encode_the_same(
    trained: Trained, again: tuple[Trainer, Candidate]
) -> None:
    """Training measures, bit for bit, the encodings that the served model computes."""
    trainer, candidate = again[0], again[1].fitted
    served = trained.bundle.model
    encoded = served.encode_documents(trained.documents)
    learned_bias = candidate.documents.bias
    wanted = replace(encoded, bias=learned_bias)
    if trained.case.transductive:
        # Documents of the corpus have trained vectors; a new text is encoded through W on both sides.
        assert not np.array_equal(encoded.dense, candidate.documents.dense)
        wanted = replace(wanted, dense=candidate.documents.dense)
        assert_one_table(served.parts())
    assert same(candidate.documents, wanted)
    np.testing.assert_array_equal(encoded.bias, np.float32(np.median(learned_bias)))
    rows = np.arange(0, len(trainer.corpus.query_ids), 5)
    ids = [trainer.corpus.query_ids[row] for row in rows.tolist()]
    texts = query_texts(trained.collection, served, ids)
    assert same(candidate.encode(rows), served.encode_queries(texts))


def test_the_scan_of_validation_agrees_with_the_compiled_model(
    trained: Trained, again: tuple[Trainer, Candidate]
) -> None:
    """The quick scores that choose an epoch equal those of the written model."""
    trainer, recipe = again[0], trained.recipe
    if recipe.system != "linear" or recipe.model.latent == "lsi":
        return  # this system has no scan, or this case no queries
    features, rng = trainer.context.features(recipe.model), np.random.default_rng(3)
    parameters = start(features, recipe.train, rng)
    parameters.D *= rng.random(parameters.D.shape, np.float32) * 3
    if recipe.model.bias:
        parameters.bias += rng.standard_normal(parameters.bias.shape, np.float32)
    model = compile_model(features, parameters)
    rows = np.arange(0, len(trainer.corpus.query_ids), 3)
    scanned = Retriever(scan_documents(features, parameters)).scores(
        scan_queries(features, parameters, rows)
    )
    compiled = Retriever(encode_corpus(features, model, parameters)).scores(
        encode_judged(features, model, rows)
    )
    assert np.ptp(compiled) > 0.01
    np.testing.assert_allclose(scanned, compiled, rtol=1e-4, atol=1e-4)
