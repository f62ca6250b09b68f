"""Clicks that are remembered: scores by hand, look-up of queries, and a shop whose clicks contradict its words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fullrank import open_bundle
from fullrank.bundle import Bundle
from fullrank.errors import BundleError
from fullrank.live import Operation, View
from fullrank.models.contract import Parts
from fullrank.models.memory import LinkModel, MemoryModel, query_key
from fullrank.models.mixed import Lift, MixedModel
from fullrank.models.registry import load_model
from fullrank.progress import Reporter
from fullrank.storage.strings import Lexicon
from fullrank_trainer.indexing import index
from fullrank_trainer.train import train
from tests.planted import write_lines, write_qrels
from tests.weighted import write_values

PRODUCTS = {
    "reach": "halo reach for the console",
    "four": "halo four for the console",
    "gears": "gears of war for the console",
    "skies": "wing commander skies",
    "unsold": "halo halo halo",
}
CLICKS = {
    "halo": {"reach": 656, "four": 1},
    "halo reach": {"reach": 40},
    "gears": {"gears": 300, "reach": 2},
    "nba 2k12": {"skies": 25},
    "console games": {"gears": 80, "reach": 20, "four": 9},
    **{f"wing {n}": {"skies": 1} for n in "abcdefghij"},
}
SMALL = (
    "blend.recipes=bm25;clicked dimension=8 epochs=6 batch=32 candidates=5 train.rate=0.1",
    "auto.seconds=0",
)


def write_shop(folder: Path) -> Path:
    write_lines(folder / "corpus.jsonl", [{"_id": i, "title": t} for i, t in PRODUCTS.items()])
    write_lines(folder / "queries.jsonl", [{"_id": f"q-{q}", "text": q} for q in CLICKS])
    pairs = [(q, d, n) for q, found in CLICKS.items() for d, n in found.items()]
    for name, column in (("qrels", "score"), ("weights", "weight")):
        (folder / name).mkdir()
        lines = [f"query-id\tcorpus-id\t{column}"]
        lines += [f"q-{q}\t{d}\t{1 if name == 'qrels' else n}" for q, d, n in pairs]
        (folder / name / "train.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root = tmp_path_factory.mktemp("shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fullrank_trainer.training.validation._FEWEST_QUERIES", 1)
        patch.setattr("fullrank_trainer.training.validation._FEWEST_CLICKED", 1)
        patch.setattr(
            "fullrank_trainer.systems.blend.choose", lambda _: np.array([0.6, 0.0, 0.3, 0.1])
        )
        patch.setattr("fullrank_trainer.systems.blend.lift_unjudged", lambda *_: Lift(1.0, 9.0))
        folder = write_shop(root / "shop")
        result = train(
            folder, root / "out", "shop", overrides=SMALL, threads=1,
            reporter=Reporter(quiet=True),
        )  # fmt: skip
    return open_bundle(result.path)


def test_clicks_that_validation_set_aside_are_remembered(tmp_path: Path) -> None:
    """No figure of them is left, as the bundle knows the answers."""
    folder = write_shop(tmp_path / "shop")
    with (folder / "queries.jsonl").open("a") as queries:
        queries.write('{"_id": "q-new", "text": "pilots"}\n')
    write_qrels(folder / "qrels" / "valid.tsv", [("q-new", "skies")])
    write_values(folder, "weights", "valid", {("q-new", "skies"): 3})
    out, quiet = tmp_path / "out", Reporter(quiet=True)
    result = train(folder, out, "shop", overrides=SMALL, threads=1, reporter=quiet)
    bundle = open_bundle(result.path)
    assert ranked(bundle, "pilots") == ["skies"]
    [clicks] = [word for word in bundle.explain("pilots", "skies").words if word.word == "“pilots”"]
    assert clicks.lexical > 0
    assert result.table == []


def ranked(bundle: Bundle, query: str) -> list[str]:
    return [hit.id for hit in bundle.search(query, limit=5)]


def test_clicks_after_the_same_query_decide(bundle: Bundle) -> None:
    assert ranked(bundle, "halo")[0] == "reach"
    assert ranked(bundle, "console games")[:2] == ["gears", "reach"]


def test_a_document_that_nobody_clicked_stays_below_those_that_this_query_led_to(
    bundle: Bundle,
) -> None:
    """It matches best by its words, and is raised by more than all scores."""
    found = ranked(bundle, "halo")
    assert found.index("unsold") > found.index("reach")


@pytest.mark.parametrize("query", ["HALO   reach", "reach halo", "haloreach", "haloo reach"])
def test_other_spellings_of_a_known_query_find_its_clicks(bundle: Bundle, query: str) -> None:
    words = bundle.explain(query, "reach", limit=50).words
    assert "“halo reach”" in [word.word for word in words]


def test_the_clicks_of_a_query_without_words_in_common_are_found(bundle: Bundle) -> None:
    assert ranked(bundle, "nba2k12")[0] == "skies"


def test_required_words_leave_documents_that_people_clicked_after_the_query(bundle: Bundle) -> None:
    assert {hit.id for hit in bundle.search("gears", match="all")} == {"gears"}
    assert {hit.id for hit in bundle.search("gears", match="auto")} == {"gears", "reach"}
    assert bundle.match == "any"


def test_scores_are_those_of_the_counts(bundle: Bundle) -> None:
    model = bundle.model
    assert isinstance(model, MixedModel)
    [place] = [i for i, own in enumerate(model.models) if isinstance(own, MemoryModel)][:1]
    memory, weight = model.models[place], model.weights[place]
    ids = list(bundle.documents.ids)
    for query, clicks in CLICKS.items():
        wanted = np.zeros(len(ids))
        for id, count in clicks.items():
            wanted[ids.index(id)] = weight * np.log1p(count / 3) + 9.0
        own = model.places()[place]
        s = own.of(model.encode_queries([query])).sparse.csr().toarray()
        t = own.of(bundle.encoded.whole()).sparse.csr().toarray()
        np.testing.assert_allclose((s @ t.T)[0], wanted, rtol=1e-5)
    assert not own.of(model.encode_queries(["unheard of"])).sparse.indices.size
    assert memory.query_terms("unheard of") == []


def test_how_often_documents_were_clicked_is_in_their_bias(bundle: Bundle) -> None:
    """The document that nobody clicked counts as one of the middle, and is raised."""
    total = {id: sum(found.get(id, 0) for found in CLICKS.values()) for id in PRODUCTS}
    wanted = {id: np.log1p(n) for id, n in total.items() if n}
    wanted["unsold"] = float(np.median([*wanted.values()])) + 9.0 / 0.1
    found = dict(zip(bundle.documents.ids, bundle.encoded.bias.tolist(), strict=True))
    assert found == pytest.approx({id: 0.1 * value for id, value in wanted.items()}, rel=1e-5)


def test_a_live_document_ranks_like_one_that_nobody_clicked(bundle: Bundle) -> None:
    new = {"title": PRODUCTS["unsold"]}
    view = View.of(bundle).apply([Operation(1, "new", new), Operation(2, "odd", {"title": "qx"})])
    halo, odd = (view.search(view.model.encode_queries([q]), 9).hits for q in ("halo", "qx"))
    score = {hit.id: hit.score for hit in halo}
    assert score["new"] == pytest.approx(score["unsold"], rel=1e-5)
    for hit in bundle.search("halo", limit=9):
        assert score[hit.id] == pytest.approx(hit.score, rel=1e-5)
    assert odd[0].id == "odd"


def test_a_document_that_is_replaced_keeps_its_clicks(bundle: Bundle) -> None:
    """A new price or title leaves what people chose; words that went count no more."""
    new = {"title": "renamed altogether"}
    writes = [Operation(1, "reach", new), Operation(2, "other", {"title": "other"})]
    view = View.of(bundle).apply(writes)
    for query, place in (("halo", 0), ("console games", 1)):
        hits = view.search(view.model.encode_queries([query]), 9).hits
        assert hits[place].id == "reach"
    score = {hit.id: hit for hit in hits}
    before = next(hit for hit in bundle.search(query, limit=9) if hit.id == "reach")
    assert score["reach"].bias == pytest.approx(before.bias)
    assert 0 < score["reach"].lexical < before.lexical
    view = view.apply([Operation(3, "reach", None), Operation(4, "reach", {"title": "back"})])
    assert view.search(view.model.encode_queries(["halo"]), 9).hits[0].id == "reach"


def test_indexing_documents_anew_keeps_their_clicks(bundle: Bundle, tmp_path: Path) -> None:
    texts = {**PRODUCTS, "reach": "halo reach, second edition", "new": "halo new"}
    write_lines(tmp_path / "corpus.jsonl", [{"_id": i, "title": t} for i, t in texts.items()])
    found = index(
        bundle.path, tmp_path / "corpus.jsonl", tmp_path, processes=1, reporter=Reporter(quiet=True)
    )
    again = open_bundle(found.path)
    for query in ("halo", "nba 2k12"):
        before, after = (
            {hit.id: hit.clicks for hit in one.search(query, explain=True)}
            for one in (bundle, again)
        )
        assert {id: after[id] for id in before} == before
    kept = before["skies"]
    assert kept is not None
    assert kept.after_query == 25


def test_words_of_a_text_that_is_no_query_have_no_key() -> None:
    assert query_key("") is None
    assert query_key("word " * 17) is None
    assert query_key("Red  APPLE") == "red apple"


@pytest.mark.parametrize(
    ("kappa", "clicks"), [(0.0, [1.0]), (1.0, [0.0]), (1.0, [1.0, 2.0]), (1.0, [])]
)
def test_parts_that_do_not_fit_are_refused(kappa: float, clicks: list[float]) -> None:
    config = {"kind": "memory", "kappa": kappa, "sources": [], "bias": 0.0}
    parts = Parts(config, {"clicks": np.array(clicks, np.float32)}, {"queries": ["one"]})
    with pytest.raises(BundleError, match="memory"):
        load_model(parts)


def test_a_query_asked_often_answers_for_its_other_spellings() -> None:
    model = MemoryModel(Lexicon.of(["b a", "a b"]), np.array([1, 9], np.float32), 1.0)
    assert [model.find(text) for text in ("b a", "a b", "ab", "ba", "c")] == [0, 1, 1, 0, -1]


def test_the_table_of_training_has_bm25_with_popularity(bundle: Bundle) -> None:
    systems = {row["system"] for row in bundle.card["table"]}
    assert systems == {"auto", "bm25", "bm25 + popularity", "tfidf"}


LINKED = {
    "tea": ["cup", "pot", "kettle"],
    "coffee": ["cup", "pot", "mill"],
    "cocoa": ["cup", "pot"],
    "bread": ["oven"],
    "oven": ["kettle"],
}


def test_pages_that_link_alike_recommend_their_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted({*LINKED, *(d for found in LINKED.values() for d in found)})
    text = {id: f"{id} page" for id in ids}
    write_lines(tmp_path / "corpus.jsonl", [{"_id": id, "title": text[id]} for id in ids])
    lines = [f"{q}\t{d}\t1" for q, found in LINKED.items() for d in found]
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "train.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n"
    )
    monkeypatch.setattr("fullrank_trainer.training.validation._FEWEST_QUERIES", 1)
    monkeypatch.setattr("fullrank_trainer.training.validation.is_held_out", lambda id: id == "mill")
    monkeypatch.setattr(
        "fullrank_trainer.training.validation.is_query_held_out", lambda id: id == "cocoa"
    )
    monkeypatch.setattr("fullrank_trainer.systems.blend.choose", lambda _: np.array([0.5, 0, 0.5]))
    overrides = ("blend.linked=bm25;tfidf", "auto.seconds=0", "blend.mentions=false")
    quiet = Reporter(quiet=True)
    path = train(
        tmp_path, tmp_path / "out", "x", overrides=overrides, threads=1, reporter=quiet
    ).path
    bundle = open_bundle(path)
    model = bundle.model.for_documents
    assert isinstance(model, MixedModel)
    [place] = [i for i, own in enumerate(model.models) if isinstance(own, LinkModel)]
    t = model.places()[place].of(bundle.encoded.whole()).sparse.csr().toarray()

    cites = np.array([[d in LINKED.get(q, ()) for d in ids] for q in ids], float)
    weighed = cites * np.log(len(ids) / (1 + cites.sum(axis=0)))
    norms = np.linalg.norm(weighed, axis=1, keepdims=True)
    weighed /= np.where(norms > 0, norms, 1)
    alike = weighed @ weighed.T
    np.fill_diagonal(alike, 0)
    wanted = np.log1p(5 * alike @ cites)
    own = model.models[place].encode_queries([text[id] for id in ids]).sparse.csr().toarray()
    np.testing.assert_allclose(own @ t.T, wanted, atol=1e-6)
    cocoa = dict(zip(ids, wanted[ids.index("cocoa")], strict=True))
    assert cocoa["mill"] > 0 == cocoa["oven"]

    words = [term.term for term in model.query_terms(text["cocoa"])]
    assert "links of documents that link alike" in words
    # A page that was edited, and typed text, are no known page.
    assert not model.models[place].encode_queries(["cocoa page two", "cocoa"]).sparse.indices.size
