"""A mix of two recipes: weighted scores, each part fitted once, and errors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank import open_bundle as mentions_open_bundle
from fullrank.bundle import open_bundle
from fullrank.errors import BundleError, RecipeError, TrainingError
from fullrank.models.contract import Parts
from fullrank.models.mentions import MentionsModel, names_of
from fullrank.models.mixed import MixedModel
from fullrank.models.registry import load_model
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evaluate
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, validate
from fullrank_trainer.systems.linear import system as linear
from fullrank_trainer.systems.mentions import MENTIONS
from fullrank_trainer.train import Trainer, train
from tests.planted import write_lines, write_planted, write_qrels

QUIET = Reporter(quiet=True)
SSI = "ssi dimension=4 epochs=2 rates=0.1"


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    collection = read_collection(write_planted(tmp_path / "planted"))
    return Trainer(collection, QUIET, tmp_path, "mixed", seed=1, threads=1, resume=False)


def mix(first: str, second: str, *more: str) -> Recipe:
    return load_recipe("cross-language-mixed").override(
        [f"mixed.recipes={first};{second}", "trials=", *more]
    )


def test_the_score_is_the_weighted_sum_of_both_parts(trainer: Trainer) -> None:
    """Each part counts once, a bias and phrases included."""
    fielded = "fielded dimension=4 epochs=2 batch=32 candidates=30"
    rows = np.arange(0, 60, 7)
    scores = []
    for recipe in (load_recipe("fielded").override(fielded.split()[1:]), load_recipe("bm25")):
        found = trainer.fit(recipe, 0, 0.0).fitted
        scores.append(Retriever(found.documents).scores(found.encode(rows)))
    found = trainer.fit(mix(fielded, "bm25", "alpha=0.3"), 0, 0.0).fitted
    mixed = Retriever(found.documents).scores(found.encode(rows))
    np.testing.assert_allclose(mixed, 0.3 * scores[0] + 0.7 * scores[1], rtol=1e-4, atol=1e-4)
    assert found.documents.bias.any()
    assert [list(part) for part in found.facts["parts"]] == [["best_epoch", "history"], []]


def test_a_search_fits_each_part_once(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[str] = []
    plain = linear.learner_of

    def counting(features: Any, recipe: Recipe, *more: Any) -> Any:
        fitted.append(recipe.name)
        return plain(features, recipe, *more)

    monkeypatch.setattr(linear, "learner_of", counting)
    recipe = mix(SSI, "tfidf", "auto.seconds=60").override(["trials=alpha=0.1;alpha=0.4;alpha=0.9"])
    best = trainer.search(recipe)
    assert fitted == ["ssi"]
    measured = {trial["overrides"]: trial["map"] for trial in best.fitted.facts["trials"]}
    assert len(measured) == 3
    assert f"alpha={best.recipe.model.alpha:g}" == max(measured, key=lambda name: measured[name])
    assert len(set(measured.values())) > 1


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("auto", "tfidf", "auto is a mix or a search itself"),
        ("tfidf", "cross-language-mixed", "is a mix or a search itself"),
        ("query-expansion trials=", "tfidf", "query-expansion is not linear in the query"),
        ("tfidf", "absent", "no recipe 'absent'"),
    ],
)
def test_recipes_that_cannot_be_mixed_are_refused(first: str, second: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(mix(first, second))


def test_a_mix_needs_exactly_two_recipes() -> None:
    with pytest.raises(RecipeError, match="name two recipes"):
        validate(load_recipe("cross-language-mixed").override(["mixed.recipes=tfidf"]))


def test_malformed_model_parts_are_refused(trainer: Trainer) -> None:
    model = trainer.fit(mix("tfidf", "bm25"), 0, 0.0).fitted.model
    parts = model.parts()
    assert load_model(parts).config == parts.config
    broken = Parts({**parts.config, "weights": [1.0]}, parts.arrays, parts.strings)
    with pytest.raises(ValueError, match="2 models, 1 weights"):
        MixedModel.from_parts(broken, load_model)


def test_the_weight_and_the_number_are_chosen_on_validation(tmp_path: Path) -> None:
    """The best trial is no worse than tf-idf, which is the first trial."""
    collection = write_planted(tmp_path / "collection")
    result = train(
        collection, tmp_path / "out", "m", recipe="query-expansion", threads=1, reporter=QUIET
    )
    card = open_bundle(result.path).card
    trials = {trial["overrides"]: trial["map"] for trial in card["training"]["trials"]}
    assert len(trials) == 8
    rows = {row["system"]: row["map"] for row in card["table"]}
    assert trials["beta=0"] == rows["tfidf"]
    assert rows["query-expansion"] == max(trials.values())


@pytest.mark.parametrize("override", ["buckets=3", "latent=lsi", "loss=margin"])
def test_query_expansion_without_words_to_add_is_refused(tmp_path: Path, override: str) -> None:
    collection = write_planted(tmp_path / "collection")
    with pytest.raises(RecipeError, match="query expansion adds words"):
        train(
            collection,
            tmp_path / "out",
            "m",
            recipe="query-expansion",
            overrides=[override],
            threads=1,
            reporter=QUIET,
        )


PAGES = {
    "cd": ("Compact disc", "Red Book is a standard of the compact disc."),
    "red": ("Red Book (standard)", "A compact disc of music follows the Red Book standard."),
    "oslo": ("Oslo", "A city. Its red book shop sells a compact disc now and then."),
    "book": ("Book: bound pages", "Pages, as Oslo has them."),
    "new": ("Turntable", "It plays what no compact disc holds."),
}
LINKS = [("cd", "red"), ("red", "cd"), ("oslo", "book"), ("book", "oslo")]
NAMES = {  # by page, lower-case words
    "cd": ["compact disc"],
    "red": ["red book standard", "red book"],
    "oslo": ["oslo"],
    "book": ["book bound pages", "book"],
    "new": ["turntable"],
}
SIGMA = 5.0


def write_pages(folder: Path) -> Path:
    lines = [{"_id": id, "title": t, "text": text} for id, (t, text) in PAGES.items()]
    write_lines(folder / "corpus.jsonl", lines)
    write_qrels(folder / "qrels" / "train.tsv", LINKS)
    return folder


def spoken(id: str) -> str:
    """The words of a page with a space around each, without punctuation."""
    text = " ".join(PAGES[id]).lower()
    return f" {' '.join(''.join(c if c.isalnum() else ' ' for c in text).split())} "


def twin() -> dict[str, float]:
    """The value of each name, counted pair by pair."""
    queries, judged = {q for q, _ in LINKS}, {d for _, d in LINKS}
    led: dict[str, int] = {}
    pairs: dict[str, int] = {}
    for q in queries:
        for d in judged - {q}:
            for name in NAMES[d]:
                said = f" {name} " in spoken(q)
                pairs[name] = pairs.get(name, 0) + said
                led[name] = led.get(name, 0) + (said and (q, d) in LINKS)
    chance = sum(led.values()) / sum(pairs.values())
    base = len(LINKS) / (len(queries) * len(judged))
    names = {name for own in NAMES.values() for name in own}
    return {
        name: max(
            0.0, math.log((led.get(name, 0) + SIGMA * chance) / (pairs.get(name, 0) + SIGMA) / base)
        )
        for name in names
    }


@pytest.fixture(scope="module")
def mentions_trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    root = tmp_path_factory.mktemp("pages")
    folder = write_pages(root / "pages")
    return Trainer(
        read_collection(folder), QUIET, root / "out", "pages", seed=1, threads=1, resume=False
    )


@pytest.fixture(scope="module")
def model(mentions_trainer: Trainer) -> MentionsModel:
    found = mentions_trainer.search(MENTIONS).fitted.model
    assert isinstance(found, MentionsModel)
    return found


def test_a_name_counts_how_often_it_leads_to_its_document(model: MentionsModel) -> None:
    found = dict(zip(model.names, model.values.tolist(), strict=True))
    assert found == pytest.approx(twin(), abs=1e-6)
    # Judged or not, a name that nobody said yet has the value of the mean.
    assert found["turntable"] > 0


def test_the_score_is_the_sum_over_names_that_the_text_says(
    model: MentionsModel, mentions_trainer: Trainer
) -> None:
    values = twin()
    documents = mentions_trainer.search(MENTIONS).fitted.documents.sparse.csr().toarray()
    for id in PAGES:
        text = " ".join(PAGES[id])
        scores = model.encode_queries([text]).sparse.csr().toarray() @ documents.T
        expected = [
            sum(values[name] for name in NAMES[d] if f" {name} " in spoken(id))
            for d in sorted(PAGES)
        ]
        assert scores[0] == pytest.approx(expected, abs=1e-5)
    assert not model.encode_queries(["", "red", "disc compact"]).n_entries


def test_a_new_document_with_a_known_name_has_its_value(model: MentionsModel) -> None:
    new = [{"title": "Oslo (album)", "text": "Oslo Oslo"}, {"title": "Bergen"}, {}]
    found = model.encode_documents(new).sparse
    assert np.diff(found.indptr).tolist() == [1, 0, 0]
    assert model.names[int(found.indices[0])] == "oslo"


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("tar: archive files", ["tar archive files", "tar"]),
        ("Mercury (planet)", ["mercury planet", "mercury"]),
        ("Jean-Luc - a life", ["jean luc a life", "jean luc"]),
        ("red\nblue (2)", ["red", "blue 2", "blue"]),
        (" ".join("abcdefghijkl"), []),
        ("(…)", []),
    ],
)
def test_names_are_the_title_and_what_stands_before_its_addition(
    title: str, names: list[str]
) -> None:
    assert sorted({*names_of(title)}) == sorted(names)


def test_a_model_that_does_not_fit_its_names_is_refused(model: MentionsModel) -> None:
    parts = model.parts()
    again = load_model(parts)
    assert again.encode_queries(["a compact disc"]).n_entries == 1
    for values in (model.values[1:], -model.values):
        with pytest.raises(BundleError, match="names"):
            load_model(Parts(parts.config, {"values": values}, parts.strings))


def test_documents_without_titles_have_no_names(tmp_path: Path) -> None:
    write_lines(tmp_path / "corpus.jsonl", [{"_id": i, "text": i * 3} for i in "abc"])
    write_qrels(tmp_path / "qrels" / "train.tsv", [("a", "b"), ("b", "c")])
    trainer = Trainer(
        read_collection(tmp_path), QUIET, tmp_path / "o", "n", seed=1, threads=1, resume=False
    )
    with pytest.raises(TrainingError, match="no title"):
        trainer.search(MENTIONS)


def test_pages_lead_to_those_that_they_name_and_link(tmp_path: Path) -> None:
    """Nearly each page links two of three pages that it names: always the same ones."""
    rng, titles = np.random.default_rng(1), [f"alpha{i} beta{i}" for i in range(60)]
    links, lines = [], []
    for i, title in enumerate(titles):
        named = [j for j in rng.permutation(60).tolist() if j != i][:15]
        text = ". ".join(f"see {titles[j]}" for j in named)
        lines.append({"_id": f"p{i}", "title": title, "text": text})
        links += [(f"p{i}", f"p{j}") for j in named if j % 3 or not i % 9]
    write_lines(tmp_path / "site" / "corpus.jsonl", lines)
    rng.shuffle(links)
    for split, pairs in (("train", links[40:]), ("test", links[:40])):
        write_qrels(
            tmp_path / "site" / "qrels" / f"{split}.tsv", [(str(q), str(d)) for q, d in pairs]
        )
    fielded = "fielded dimension=4 epochs=2 batch=16 candidates=8"
    overrides = (f"blend.linked=bm25;{fielded}", "auto.seconds=0", "blend.linked_rates=")
    quality = {}
    for mentions in ("true", "false"):
        more = (*overrides, f"blend.mentions={mentions}")
        found = train(
            tmp_path / "site", tmp_path / "out", "site", overrides=more, threads=1, reporter=QUIET
        )
        site = read_collection(tmp_path / "site")
        measured = evaluate(mentions_open_bundle(found.path), site, "test", ["train"])
        quality[mentions] = measured.measures["map"].mean
    assert quality["true"] > 0.8 > quality["false"]
