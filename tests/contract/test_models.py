"""What every model must do, whichever recipe made it.

Each recipe is trained once, tiny, on planted data; every test below runs over all of them.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import numba
import numpy as np
import pytest

from fullrank.bundle.catalog import Bundle, open_bundle
from fullrank.encoding import Encoded, concatenate
from fullrank.errors import DocumentRefused
from fullrank.explain import explain
from fullrank.live import Operation, View
from fullrank.model import Parts
from fullrank.models.expansion import ExpansionModel
from fullrank.models.registry import load_model
from fullrank.retrieval import Retriever
from fullrank.unseen.columns import known
from tests.api.support import running
from tests.contract.cases import CASES, Case
from tests.contract.twins import twin_of
from tests.live import flat
from tests.planted import write_lines, write_planted, write_planted_links
from trainer.collection import Collection, read_collection
from trainer.evaluation.evaluate import evaluate, query_texts
from trainer.features.clicks import with_clicks
from trainer.indexing.index import index
from trainer.progress import Reporter
from trainer.recipes.recipe import Recipe, load_recipe
from trainer.systems.linear.parameters import compile_model, encode_corpus, encode_judged, start
from trainer.train import Candidate, Trainer, train
from trainer.training.validation import scan_documents, scan_queries

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
    "日本語 decoy1 ภาษาไทย",
    "\x00 \ufffd 🙂 ‘decoy2’",
]


@dataclass(frozen=True, eq=False)
class Trained:
    """A case's bundle as it is served, and the collection it was trained on."""

    case: Case
    folder: Path
    collection: Collection
    bundle: Bundle
    queries: list[str]

    @property
    def documents(self) -> list[dict[str, str]]:
        """The documents' text fields, and their clicked text for models that take it for one."""
        found = with_clicks(self.collection).documents
        return [document.texts(["title", "text", "clicked"]) for document in found]

    @property
    def recipe(self) -> Recipe:
        """With its overrides."""
        return load_recipe(self.case.recipe).override(self.case.overrides)

    def in_memory(self) -> tuple[Trainer, Candidate]:
        """The same training again, up to the model in memory."""
        out = self.folder.parent / "again"
        trainer = Trainer(self.collection, QUIET, out, "again", seed=1, threads=1, resume=False)
        return trainer, trainer.search(self.recipe)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.label.replace(" ", "-"))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """One case, trained with one thread and seed 1."""
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
    """The case trained a second time, in memory only."""
    return trained.in_memory()


def same(a: Encoded, b: Encoded) -> bool:
    """Bit for bit."""
    return all(
        getattr(a, name).dtype == getattr(b, name).dtype
        and np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("dense", "indptr", "indices", "weights", "bias")
    ) and (a.width == b.width)


def is_mapped(array: object) -> bool:
    """Whether an array, or what it is a view of, lies in a file."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap | mmap.mmap)


def test_planted_data_is_learned(trained: Trained) -> None:
    """MAP 1 is the known best answer; a latent part or a whole W finds it, a diagonal beats overlap by a margin."""
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


def test_exact_mode_is_the_dense_product(trained: Trained) -> None:
    """The golden property: scores are qᵀWd, with W read from the stored parts, on every query."""
    bundle = trained.bundle
    twin = twin_of(bundle.model.parts(), bundle.encoded, transductive=trained.case.transductive)
    learned, exact = twin.scores(trained.queries, trained.documents)
    bias = bundle.encoded.bias.astype(np.float64)
    wanted = learned + exact + bias
    tolerance = 2e-6 * (1 + np.abs(learned) + np.abs(exact))
    rankings = bundle.retriever.search(
        bundle.model.encode_queries(trained.queries), len(trained.documents)
    )
    for i, ranking in enumerate(rankings):
        rows = ranking.rows
        assert sorted(rows.tolist()) == list(range(len(trained.documents)))
        np.testing.assert_array_less(np.abs(ranking.learned - learned[i, rows]), tolerance[i, rows])
        np.testing.assert_array_less(np.abs(ranking.exact - exact[i, rows]), tolerance[i, rows])
        np.testing.assert_array_equal(ranking.bias, bias[rows])
        # The order is that of W too, wherever W tells two documents apart.
        slack = 2 * tolerance[i].max()
        assert (np.diff(wanted[i, rows]) <= slack).all()


def test_top_k_is_the_head_of_the_full_ranking(trained: Trained) -> None:
    """Ties by row, and a short answer is the beginning of the long one, bit for bit."""
    bundle = trained.bundle
    queries = bundle.model.encode_queries(trained.queries)
    full = bundle.retriever.search(queries, len(trained.documents))
    for short, ranking in zip(bundle.retriever.search(queries, 5), full, strict=True):
        order = np.lexsort((ranking.rows, -ranking.scores))
        np.testing.assert_array_equal(order, np.arange(len(order)))
        np.testing.assert_array_equal(short.rows, ranking.rows[:5])
        np.testing.assert_array_equal(short.scores, ranking.scores[:5])
        assert short.certified


def test_batch_equals_single(trained: Trained) -> None:
    """A text has the same bits among others as alone."""
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
    """Twice trained, and once through the disk: at tolerance 0 in every array and string."""
    stored, fresh = trained.bundle.model.parts(), again[1].fitted.model.parts()
    assert stored.config == fresh.config
    assert stored.arrays.keys() == fresh.arrays.keys()
    for name, array in fresh.arrays.items():
        assert array.dtype == stored.arrays[name].dtype, name
        np.testing.assert_array_equal(stored.arrays[name], array, err_msg=name)
    assert {name: list(strings) for name, strings in stored.strings.items()} == {
        name: list(strings) for name, strings in fresh.strings.items()
    }
    assert same(trained.bundle.encoded, again[1].fitted.documents)


def test_saved_equals_memory(trained: Trained, again: tuple[Trainer, Candidate]) -> None:
    """Memory, loaded and mapped give equal scores at tolerance 0."""
    candidate = again[1].fitted
    bundle = trained.bundle
    for name in ("dense", "indices", "weights", "bias"):
        array = getattr(bundle.encoded, name)
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


def test_documents_that_training_did_not_see_are_indexed(trained: Trained, tmp_path: Path) -> None:
    """Batch by batch into a bundle of the same model: what its own front door makes of them."""
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
    assert same(found.encoded, trained.bundle.model.encode_documents([by_id[id] for id in ids]))


def test_explanations_add_up_to_the_score(trained: Trained) -> None:
    """learned + exact + bias, and the words of each part."""
    bundle = trained.bundle
    rankings = bundle.retriever.search(bundle.model.encode_queries(trained.queries), 3)
    for text, ranking in zip(trained.queries, rankings, strict=True):
        for place, row in enumerate(ranking.rows.tolist()):
            query = bundle.model.encode_queries([text])
            terms = bundle.model.query_terms(text)
            found = explain(terms, bundle.retriever, query, row, limit=1000)
            assert found.learned == pytest.approx(ranking.learned[place], rel=1e-5, abs=1e-5)
            assert found.exact == pytest.approx(ranking.exact[place], rel=1e-5, abs=1e-5)
            assert found.bias == ranking.bias[place]
            total = sum(word.learned + word.exact for word in found.words)
            assert total + found.bias == pytest.approx(ranking.scores[place], rel=1e-5, abs=1e-5)


def test_live_documents_rank_as_if_they_had_always_been_there(trained: Trained) -> None:
    """Added, replaced and deleted: the same order and the same bits as one piece with the same documents."""
    bundle = trained.bundle
    view = View.of(bundle)
    if isinstance(bundle.model, ExpansionModel):
        with pytest.raises(DocumentRefused, match="takes no live documents"):
            view.apply([Operation(1, "new", {"text": "tell1a"})])
        return
    ids = list(bundle.documents.ids)
    new = {f"new{i}": {"title": text, "text": "tell1a"} for i, text in enumerate(NASTY)}
    new[ids[3]] = {"title": "name0n0 unheard", "text": "tell2b decoy1 unheard"}
    writes: list[tuple[str, Any]] = [*new.items(), (ids[0], None), (ids[5], None), ("no", None)]
    for cut in range(0, len(writes), 4):
        part = enumerate(writes[cut : cut + 4], start=cut + 1)
        view = view.apply([Operation(seq, id, fields) for seq, (id, fields) in part])
    left = {id: {} for id in ids if id not in (ids[0], ids[3], ids[5])}
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
            assert why.learned == pytest.approx(hit.learned, rel=1e-5, abs=1e-5)
            assert why.exact == pytest.approx(hit.exact, rel=1e-5, abs=1e-5)


def test_a_document_without_a_known_word_is_found_by_its_own(trained: Trained) -> None:
    bundle = trained.bundle
    if isinstance(bundle.model, ExpansionModel):
        return
    view = View.of(bundle).apply([Operation(1, "new", {"title": "", "text": "qqxx qqzz"})])
    asked = view.search(view.model.encode_queries(["qqzz"]), 1000)
    [hit] = [hit for hit in asked.hits if hit.id == "new"]
    assert hit.exact > 0
    other = view.search(view.model.encode_queries(["qqyy"]), 1000)
    [without] = [hit for hit in other.hits if hit.id == "new"]
    model = bundle.live_model
    assert model is not None
    # In few buckets of the model's own, words that have nothing in common meet.
    if not model.rule.words.buckets:
        assert without.exact == 0
    if not bundle.model.n_dense:
        assert asked.hits[0].id == "new"


def test_a_model_with_rows_for_unseen_words_comes_back_from_its_parts(trained: Trained) -> None:
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
    # One by one the same bits, and what the model itself says is untouched.
    one = concatenate([model.encode_queries([text]) for text in trained.queries])
    assert same(one, model.encode_queries(trained.queries))
    own = known(one, trained.bundle.model.n_sparse)
    assert same(own, trained.bundle.model.encode_queries(trained.queries))


def assert_one_table(parts: Parts) -> None:
    """A word has the same vector in a document as in a query."""
    place = {word: row for row, word in enumerate(parts.strings["query.words"])}
    rows = [place[word] for word in parts.strings["document.words"]]
    np.testing.assert_array_equal(parts.arrays["document.table"], parts.arrays["query.table"][rows])


def test_the_service_answers_as_retrieval_does(trained: Trained) -> None:
    """Over HTTP: the same documents, scores and parts, certified, explained, for queries that training did not see."""
    texts = [text for text in trained.queries if text.strip()][:8]

    async def ask() -> list[dict[str, Any]]:
        async with running(trained.folder.parent / "bundles") as client:
            wishes = [{"query": text, "limit": 5, "explain": True} for text in texts]
            replies = [await client.post("/v1/search", json=wish) for wish in wishes]
        assert [reply.status_code for reply in replies] == [200] * len(texts)
        return [reply.json() for reply in replies]

    bundle = trained.bundle
    rankings = bundle.retriever.search(bundle.model.encode_queries(texts), 5)
    for answer, ranking in zip(anyio.run(ask), rankings, strict=True):
        assert answer["certified"]
        hits = answer["hits"]
        assert [hit["id"] for hit in hits] == [bundle.documents.ids[row] for row in ranking.rows]
        assert [hit["score"] for hit in hits] == ranking.scores.tolist()
        for hit in hits:
            parts = hit["explanation"]
            total = parts["learned"] + parts["exact"] + parts["bias"]
            assert total == pytest.approx(hit["score"], rel=1e-12, abs=1e-12)


def test_training_and_serving_encode_alike(
    trained: Trained, again: tuple[Trainer, Candidate]
) -> None:
    """What training measured is, bit for bit, what the served model makes of the same texts."""
    trainer, candidate = again[0], again[1].fitted
    served = trained.bundle.model
    encoded = served.encode_documents(trained.documents)
    learned_bias = candidate.documents.bias
    wanted = replace(encoded, bias=learned_bias)
    if trained.case.transductive:
        # The corpus has vectors of its own; a text that training did not see is read through W on both sides.
        assert not np.array_equal(encoded.dense, candidate.documents.dense)
        wanted = replace(wanted, dense=candidate.documents.dense)
        assert_one_table(served.parts())
    assert same(candidate.documents, wanted)
    np.testing.assert_array_equal(encoded.bias, np.float32(np.median(learned_bias)))
    rows = np.arange(0, len(trainer.collection.corpus.query_ids), 5)
    ids = [trainer.collection.corpus.query_ids[row] for row in rows.tolist()]
    texts = query_texts(trained.collection, served, ids)
    assert same(candidate.encode(rows), served.encode_queries(texts))


def test_validations_scan_agrees_with_the_compiled_model(
    trained: Trained, again: tuple[Trainer, Candidate]
) -> None:
    """The quick scores that choose an epoch are those of the model that is written, whatever was learned."""
    trainer, recipe = again[0], trained.recipe
    if recipe.system != "linear" or recipe.model.latent == "lsi":
        return  # not scanned, or nothing to scan for
    features, rng = trainer.workshop.features(recipe.model), np.random.default_rng(3)
    parameters = start(features, recipe.train, rng)
    parameters.D *= rng.random(parameters.D.shape, np.float32) * 3
    if recipe.model.bias:
        parameters.bias += rng.standard_normal(parameters.bias.shape, np.float32)
    model = compile_model(features, parameters)
    rows = np.arange(0, len(trainer.collection.corpus.query_ids), 3)
    scanned = Retriever(scan_documents(features, parameters)).scores(
        scan_queries(features, parameters, rows)
    )
    compiled = Retriever(encode_corpus(features, model, parameters)).scores(
        encode_judged(features, model, rows)
    )
    assert np.ptp(compiled) > 0.01
    np.testing.assert_allclose(scanned, compiled, rtol=1e-4, atol=1e-4)
