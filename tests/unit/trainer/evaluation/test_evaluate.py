"""Evaluation: candidates, averages, runs, and agreement with ir-measures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import AP, RR, P, R, nDCG

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import CollectionError
from fullrank.measures import MEASURES, estimates
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded, Rows
from fullrank.storage.strings import DocumentStore
from fullrank_trainer.collection import Collection, Qrels, Query, ReadReport, read_collection
from fullrank_trainer.collection.pairs import Ids, PairReader
from fullrank_trainer.columns import measure_columns
from fullrank_trainer.evaluation.evaluate import (
    Evaluation,
    Judgement,
    evaluate,
    evenly_chosen,
    judge,
    measure_rankings,
    relative_weights,
)
from fullrank_trainer.evaluation.trec import RunWriter, strictly_descending, write_qrels
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.train import train
from fullrank_trainer.training.validation import hold_out, validation
from tests.runs import read_run
from tests.weighted import write_values

PEERS = {
    "map": AP,
    "p@10": P @ 10,
    "ndcg@1": nDCG @ 1,
    "ndcg@3": nDCG @ 3,
    "ndcg@10": nDCG @ 10,
    "mrr": RR,
    "recall@100": R @ 100,
}


def dense(vectors: np.ndarray) -> Encoded:
    """Texts with a dense part only."""
    count = len(vectors)
    return Encoded(
        np.ascontiguousarray(vectors, np.float32),
        Rows(np.zeros(count + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 1),
        np.zeros(count, np.float32),
    )


class NumberModel:
    """Encodes a text of numbers as the vector of those numbers."""

    @property
    def for_documents(self) -> NumberModel:
        return self

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        return dense(np.array([[float(word) for word in text.split()] for text in texts]))

    def query_text(self, fields: Mapping[str, Any]) -> str:
        return str(fields["text"])


def numbers(vector: np.ndarray) -> str:
    return " ".join(map(str, vector.tolist()))


def collection(
    documents: np.ndarray,
    queries: np.ndarray | None,
    judgements: Mapping[str, Qrels],
    *,
    mates: bool = False,
) -> Collection:
    """Make documents d000, d001, … and queries q0, q1, …; without queries the documents are the queries.

    With ``mates`` each query has the id of the document that it describes.
    """
    named = "d{:03}" if mates else "q{}"
    document_ids = Ids(f"d{i:03}" for i in range(len(documents)))
    query_ids = document_ids if queries is None else Ids(map(named.format, range(len(queries))))
    pairs = {}
    for split, qrels in judgements.items():
        reader = PairReader(query_ids, document_ids, np.int32)
        for query, found in qrels.items():
            for document, grade in found.items():
                reader.add(1, query_ids.rows[query], document_ids.rows[document], grade)
        read, grades, _ = reader.pairs()
        pairs[split] = replace(read, grades=grades)
    return Collection(
        path=Path("planted"),
        documents=[
            Document(*item) for item in zip(document_ids, map(text, documents), strict=True)
        ],
        queries=None
        if queries is None
        else [Query(*item) for item in zip(query_ids, map(numbers, queries), strict=True)],
        has_mates=mates or queries is None,
        splits=tuple(judgements),
        report=ReadReport(),
        fingerprint="",
        judgements=pairs,
    )


def text(vector: np.ndarray) -> dict[str, str]:
    return {"text": numbers(vector)}


def bundle_of(planted: Collection) -> Bundle:
    """The parts of a bundle that evaluate() uses, over the collection's own vectors."""
    encoded = NumberModel().encode_queries([item.fields["text"] for item in planted.documents])
    return cast(
        Bundle,
        SimpleNamespace(
            version="planted-1",
            model=NumberModel(),
            encoded=encoded,
            documents=DocumentStore.of(planted.documents),
            retriever=Retriever(encoded),
            second_stage=None,
        ),
    )


def agrees_with_ir_measures(found: Evaluation, run: Path, qrels: Qrels) -> None:
    """All measures agree, for each query and in the mean."""
    ranked = list(ir_measures.read_trec_run(str(run)))
    judged = [
        ir_measures.Qrel(query, document, grade)
        for query in found.query_ids
        for document, grade in qrels[query].items()
    ]
    expected: dict[tuple[str, str], float] = {
        (str(metric.measure), metric.query_id): metric.value
        for metric in ir_measures.iter_calc(list(PEERS.values()), judged, ranked)
    }
    for name, peer in PEERS.items():
        for query, value in zip(found.query_ids, found.per_query[name], strict=True):
            assert value == pytest.approx(expected[str(peer), query], abs=1e-9), (name, query)
        mean = np.mean([expected[str(peer), query] for query in found.query_ids])
        assert found.measures[name].mean == pytest.approx(mean, abs=1e-9)


def random_qrels(rng: np.random.Generator, queries: Sequence[str], documents: int) -> Qrels:
    return {
        query: {
            f"d{row:03}": int(rng.integers(0, 4))
            for row in rng.choice(documents, size=rng.integers(1, 9), replace=False)
        }
        for query in queries
    }


@pytest.mark.parametrize("depth", [1000, 40])
@pytest.mark.parametrize("levels", [3, 1000])  # 3 levels of score: ties everywhere
def test_agrees_with_ir_measures_on_its_own_run(tmp_path: Path, depth: int, levels: int) -> None:
    rng = np.random.default_rng(7)
    documents = rng.integers(-levels, levels, (300, 2)) / levels
    queries = rng.integers(-levels, levels, (60, 2)) / levels
    qrels = random_qrels(rng, [f"q{i}" for i in range(60)], 300)
    planted = collection(documents, queries, {"test": qrels})
    run = tmp_path / "run.txt"
    found = evaluate(bundle_of(planted), planted, "test", run=run, depth=depth)
    assert found.queries + found.left_out == 60
    agrees_with_ir_measures(found, run, qrels)


def test_rankings_in_the_run_break_ties_by_ascending_id(tmp_path: Path) -> None:
    planted = collection(np.ones((5, 1)), np.ones((1, 1)), {"test": {"q0": {"d003": 1}}})
    evaluate(bundle_of(planted), planted, "test", run=tmp_path / "run.txt")
    ranked = [document for document, _ in read_run(tmp_path / "run.txt")["q0"]]
    assert ranked == ["d000", "d001", "d002", "d003", "d004"]


def test_rank_loss_equals_its_definition() -> None:
    rng = np.random.default_rng(3)
    documents, queries = rng.normal(size=(50, 3)), rng.normal(size=(20, 3))
    qrels = random_qrels(rng, [f"q{i}" for i in range(20)], 50)
    planted = collection(documents, queries, {"test": qrels})
    found = evaluate(bundle_of(planted), planted, "test")
    losses = []
    for query in found.query_ids:
        scores = documents @ queries[int(query[1:])]
        relevant = np.array([qrels[query].get(f"d{row:03}", 0) > 0 for row in range(50)])
        losses.append(np.mean(scores[relevant][:, None] < scores[~relevant][None, :]))
    assert found.per_query["rank_loss"] == pytest.approx(losses, abs=1e-12)
    error = np.std(losses, ddof=1) / np.sqrt(len(losses))
    assert found.measures["rank_loss"].standard_error == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize("described", [False, True])
def test_a_document_as_query_never_finds_itself(described: bool, tmp_path: Path) -> None:
    """Nor does a description find its own document."""
    documents = np.eye(4) + 0.1
    queries = documents if described else None
    planted = collection(documents, queries, {"test": {"d001": {"d002": 1}}}, mates=described)
    run = tmp_path / "run.txt"
    found = evaluate(bundle_of(planted), planted, "test", run=run)
    assert "d001" not in [document for document, _ in read_run(run)["d001"]]
    # All three others tie: the answer is second by id, and ties count half.
    assert found.measures["mrr"].mean == 0.5
    assert found.measures["rank_loss"].mean == 0.5
    agrees_with_ir_measures(found, run, planted.qrels("test"))


@pytest.mark.parametrize("as_queries", [False, True])
def test_links_of_excluded_splits_are_no_candidates(tmp_path: Path, as_queries: bool) -> None:
    documents = np.array([[3.0], [1.0], [2.0], [0.5]])
    query = "d003" if as_queries else "q0"
    judgements = {"train": {query: {"d000": 1, "d001": 0}}, "test": {query: {"d002": 1, "d000": 1}}}
    queries = None if as_queries else np.array([[1.0]])
    planted = collection(documents, queries, judgements)
    bundle = bundle_of(planted)
    plain = evaluate(bundle, planted, "test")
    assert plain.measures["map"].mean == 1.0
    run = tmp_path / "run.txt"
    found = evaluate(bundle, planted, "test", ["train"], run=run)
    ranked = [document for document, _ in read_run(run)[query]]
    # d000 was linked in training; d001 was judged there but is no link.
    assert ranked[:2] == ["d002", "d001"]
    assert "d000" not in ranked
    assert found.measures["map"].mean == 1.0
    assert found.excluded_splits == ("train",)


def test_only_queries_with_a_relevant_candidate_are_averaged() -> None:
    planted = collection(
        np.eye(3),
        np.eye(3),
        {
            "train": {"q1": {"d001": 1}},
            "test": {"q0": {"d000": 1}, "q1": {"d001": 1}, "q2": {"d002": 0}},
        },
    )
    found = evaluate(bundle_of(planted), planted, "test", ["train"])
    assert found.query_ids == ["q0"]
    assert (found.queries, found.left_out) == (1, 2)


def test_measures_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    planted = collection(
        rng.normal(size=(40, 3)),
        rng.normal(size=(30, 3)),
        {"test": random_qrels(rng, [f"q{i}" for i in range(30)], 40)},
    )
    bundle = bundle_of(planted)
    whole = evaluate(bundle, planted, "test")
    monkeypatch.setattr("fullrank_trainer.evaluation.evaluate._BATCH_CELLS", 1)
    monkeypatch.setattr("fullrank_trainer.evaluation.evaluate._ENCODE_QUERIES", 7)
    single = evaluate(bundle, planted, "test")
    for name in MEASURES:
        assert np.array_equal(whole.per_query[name], single.per_query[name])
    judgements, _ = judge(planted, "test")
    texts = {query.id: query.text for query in planted.queries or []}
    queries = NumberModel().encode_queries([texts[item.query] for item in judgements])
    direct = measure_rankings(
        bundle.retriever, queries, judgements, documents=40, with_rank_loss=False
    )
    assert "rank_loss" not in direct
    assert np.array_equal(direct["map"], whole.per_query["map"])


def test_the_report_is_json() -> None:
    planted = collection(np.eye(2), np.eye(2), {"test": {"q0": {"d000": 1}}})
    report = evaluate(bundle_of(planted), planted, "test").as_dict()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert list(report["measures"]) == list(MEASURES)
    assert report["measures"]["mrr"] == {"mean": 1.0, "standard_error": None}


def test_a_split_that_cannot_be_measured_is_refused() -> None:
    planted = collection(
        np.eye(2), np.eye(2), {"test": {"q0": {"d000": 1}}, "none": {"q0": {"d000": 0}}}
    )
    with pytest.raises(CollectionError, match="no split 'dev'"):
        judge(planted, "dev")
    with pytest.raises(CollectionError, match="both measured and excluded"):
        judge(planted, "test", ["test"])
    with pytest.raises(CollectionError, match="no query with a relevant candidate"):
        judge(planted, "none")
    with pytest.raises(CollectionError, match="'d000' is judged but the bundle lacks it"):
        judge(planted, "test", rows={"d001": 0})


@pytest.mark.sweep
@pytest.mark.data
def test_agrees_with_ir_measures_on_real_text(data_dir: Path, tmp_path: Path) -> None:
    collection = read_collection(data_dir / "tldr" / "ja")
    quiet = Reporter(quiet=True)
    trained = train(collection.path, tmp_path, "peer", recipe="tfidf", threads=1, reporter=quiet)
    run = tmp_path / "run.txt"
    found = evaluate(open_bundle(trained.path), collection, "test", ["train", "valid"], run=run)
    assert found.documents == 7425
    agrees_with_ir_measures(found, run, collection.qrels("test"))


def test_chosen_items_are_spread_over_all() -> None:
    assert evenly_chosen(range(399), 200)[-1] == 398
    assert evenly_chosen(range(5), 3) == [0, 2, 4]
    assert evenly_chosen("abc", 0) == evenly_chosen("abc", 5) == ["a", "b", "c"]


def test_clicks_are_measured_by_what_training_knew(tmp_path: Path) -> None:
    """Against the scores of the bundle: BM25 ranks, and ln(1 + clicks) is added by the best of four weights."""
    words = ["ant", "bee", "cat", "dog"]
    documents = {f"d{i:02}": f"{words[i % 4]} {words[i % 3]} thing{i}" for i in range(12)}
    queries = {"q0": "ant", "q1": "bee thing1", "q2": "cat", "q3": "dog ant", "q4": "cat dog"}
    before = {
        ("q0", "d03"): 9,
        ("q0", "d00"): 1,
        ("q1", "d01"): 2,
        ("q2", "d08"): 5,
        ("q3", "d07"): 1,
    }
    later = {
        ("q0", "d03"): 4,
        ("q0", "d08"): 1,
        ("q1", "d05"): 2,
        ("q4", "d08"): 3,
        ("q4", "d11"): 1,
    }
    for name in ("qrels", "weights"):
        (tmp_path / name).mkdir()
        column = "score" if name == "qrels" else "weight"
        for split, clicks in (("train", before), ("test", later)):
            lines = [f"{q}\t{d}\t{1 if name == 'qrels' else n}\n" for (q, d), n in clicks.items()]
            (tmp_path / name / f"{split}.tsv").write_text(
                f"query-id\tcorpus-id\t{column}\n{''.join(lines)}"
            )
    for name, named_texts in (("corpus", documents), ("queries", queries)):
        text = "".join(f'{{"_id": "{id}", "text": "{t}"}}\n' for id, t in named_texts.items())
        (tmp_path / f"{name}.jsonl").write_text(text)
    quiet = Reporter(quiet=True)
    bundle = open_bundle(train(tmp_path, tmp_path / "out", "m", recipe="bm25", reporter=quiet).path)
    found = {
        column.name: column for column in measure_columns(bundle, read_collection(tmp_path), "test")
    }
    chosen: Counter[str] = Counter()
    for (_, document), n in before.items():
        chosen[document] += n
    middle = float(np.median([np.log1p(n) for n in chosen.values()]))
    bias = np.array([np.log1p(chosen[d]) if d in chosen else middle for d in documents])
    scores = {q: bundle.retriever.scores(bundle.encode(text))[0] for q, text in queries.items()}
    ids = [*documents]

    def rr(query: str, document: str, weight: float) -> float:
        order = np.argsort(-(scores[query] + weight * bias), kind="stable")
        return 1 / (1 + [ids[row] for row in order].index(document))

    def mean(clicks: Mapping[tuple[str, str], int], weight: float) -> float:
        total = sum(n * rr(*pair, weight) for pair, n in clicks.items())
        return total / sum(clicks.values())

    best = max((0.1, 0.3, 1.0, 3.0), key=lambda weight: mean(before, weight))
    parts = {
        "known": [("q0", "d03"), ("q0", "d08")],
        "new": [("q4", "d08")],
        "cold": [("q1", "d05"), ("q4", "d11")],
        "all": [*later],
    }
    assert found.keys() == parts.keys()
    for name, pairs in parts.items():
        clicks = {pair: later[pair] for pair in pairs}
        assert found[name].clicks == sum(clicks.values())
        wanted = {"bundle": 0.0, "bm25": 0.0, "bm25 + popularity": best}
        assert {s: e.mean for s, e in found[name].mrr.items()} == pytest.approx(
            {system: mean(clicks, weight) for system, weight in wanted.items()}, rel=1e-5
        )
    collection = read_collection(tmp_path)
    links = {split: replace(p, weights=None) for split, p in collection.judgements.items()}
    assert measure_columns(bundle, replace(collection, judgements=links), "test") == []


SCORES = st.lists(st.floats(-1e6, 1e6, width=64), max_size=30).map(lambda x: sorted(x)[::-1])


@given(SCORES)
def test_scores_descend_strictly_and_hardly_change(scores: list[float]) -> None:
    low = strictly_descending(scores)
    assert low.dtype == np.float32
    assert np.all(np.diff(low) < 0)
    expected = np.array(scores, np.float32)
    steps = np.spacing(np.abs(expected) + np.float32(1e-3)) * len(scores)
    assert np.all(np.abs(low.astype(np.float64) - expected) <= steps)


def test_distinct_scores_are_not_changed() -> None:
    assert strictly_descending([3.0, 2.0, 1.0]).tolist() == [3.0, 2.0, 1.0]


def test_a_long_tie_lowers_the_scores_after_it_too() -> None:
    one_below = float(np.nextafter(np.float32(1), np.float32(0)))
    low = strictly_descending([1.0, 1.0, 1.0, one_below])
    assert len(set(low.tolist())) == 4
    assert np.all(np.diff(low) < 0)


@pytest.mark.parametrize("scores", [[1.0, 2.0], [float("nan")], [float("inf"), 1.0]])
def test_infinite_or_unsorted_scores_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError):
        strictly_descending(scores)


def test_trec_eval_reads_ties_in_our_order(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    with RunWriter(path, "tag") as run:
        run.write("q1", ["a", "b", "c"], [0.5, 0.5, 0.5])
        run.write("q2", ["日本", "b"], [2.0, -1.0])
    assert [document for document, _ in read_run(path)["q1"]] == ["a", "b", "c"]
    assert [document for document, _ in read_run(path)["q2"]] == ["日本", "b"]
    assert path.read_text("utf-8").splitlines()[0] == "q1 Q0 a 1 0.5 tag"


def test_an_interrupted_run_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyError), RunWriter(tmp_path / "run.txt") as run:  # noqa: PT012
        run.write("q", ["a"], [1.0])
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_run_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=r"nowhere/run\.txt: cannot be written"):
        RunWriter(tmp_path / "nowhere" / "run.txt").__enter__()


@pytest.mark.parametrize("id", ["two words", "", " a", "tab\tbed"])
def test_ids_with_spaces_are_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(CollectionError, match="not one word"), RunWriter(tmp_path / "run") as run:
        run.write(id, ["a"], [1.0])
    with pytest.raises(CollectionError, match="not one word"):
        write_qrels(tmp_path / "qrels", {"q": {id: 1}})


WORDS = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)
GRADES = st.dictionaries(WORDS, st.integers(-2, 5), min_size=1, max_size=5)


@pytest.mark.sweep
@given(qrels=st.dictionaries(WORDS, GRADES, max_size=5))
def test_qrels_round_trip(
    tmp_path_factory: pytest.TempPathFactory, qrels: dict[str, dict[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("qrels") / "qrels.txt"
    write_qrels(path, qrels)
    found: dict[str, dict[str, int]] = {}
    for line in path.read_text("utf-8").splitlines():
        query, _, document, grade = line.split()
        found.setdefault(query, {})[document] = int(grade)
    assert found == qrels


DOCUMENTS = 60
CLICKED, SHOWN = 1, 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty queries, each shown five documents and one of them clicked."""
    (tmp_path / "qrels").mkdir()
    lines = [f'{{"_id": "d{i:02}", "title": "word{i} thing"}}\n' for i in range(DOCUMENTS)]
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    lines = [f'{{"_id": "q{i}", "text": "word{i}"}}\n' for i in range(40)]
    (tmp_path / "queries.jsonl").write_text("".join(lines))
    for split, queries in (("train", range(30)), ("valid", range(30, 40))):
        rows = [
            f"q{q}\td{(q + k) % DOCUMENTS:02}\t{CLICKED if k == 2 else SHOWN}\n"
            for q in queries
            for k in range(5)
        ]
        (tmp_path / "qrels" / f"{split}.tsv").write_text(
            "query-id\tcorpus-id\tscore\n" + "".join(rows)
        )
        weights = {(f"q{q}", f"d{(q + 2) % DOCUMENTS:02}"): 0.5 for q in queries}
        write_values(tmp_path, "weights", split, weights)
    return tmp_path


def test_only_what_was_shown_is_a_candidate(folder: Path) -> None:
    judgements, _ = judge(read_collection(folder), "valid", ["train"])
    for judgement in judgements:
        query = int(judgement.query[1:])
        shown = sorted((query + k) % DOCUMENTS for k in range(5))
        assert np.flatnonzero(~judgement.left_out(DOCUMENTS)).tolist() == shown
        assert judgement.relevant.tolist() == [(query + 2) % DOCUMENTS]


def test_grades_of_people_leave_all_documents_candidates(folder: Path) -> None:
    for split in ("train", "valid"):
        (folder / "weights" / f"{split}.tsv").unlink()
    judgements, _ = judge(read_collection(folder), "valid", ["train"])
    assert all(not judgement.left_out(DOCUMENTS).any() for judgement in judgements)


def test_cold_queries_are_compared_on_what_was_shown(folder: Path) -> None:
    held = hold_out(count_collection(read_collection(folder), processes=1), 0)
    found = [v.judgements for v in (held.warm, held.cold) if v is not None]
    assert found
    for judgement in [j for judgements in found for j in judgements]:
        query = int(judgement.query[1:])
        shown = {(query + k) % DOCUMENTS for k in range(5)}
        assert set(np.flatnonzero(~judgement.left_out(DOCUMENTS)).tolist()) <= shown


def rename(folder: Path, before: str, after: str) -> None:
    corpus = folder / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace(f'"{before}"', f'"{after}"'))


def test_an_evaluation_weighs_queries_as_a_training_does(folder: Path, tmp_path: Path) -> None:
    weights = {(f"q{q}", f"d{(q + 2) % DOCUMENTS:02}"): 1.0 + 9 * (q % 2) for q in range(30, 40)}
    write_values(folder, "weights", "valid", weights)
    # Half of the clicked documents have nothing of their query.
    for q in range(31, 40, 4):
        rename(folder, f"word{q + 2} thing", f"word{q} thing")
    quiet = Reporter(quiet=True)
    trained = train(folder, tmp_path / "out", "shop", recipe="bm25", reporter=quiet)
    read = read_collection(folder)
    found = evaluate(open_bundle(trained.path), read, "valid", ["train"])
    judgements, _ = judge(read, "valid", ["train"])
    given = np.array([judgement.weight for judgement in judgements])
    for name in ("map", "mrr"):
        expected = np.average(found.per_query[name], weights=given)
        assert found.measures[name].mean == pytest.approx(expected)
        assert expected != pytest.approx(found.per_query[name].mean())


def test_a_ranking_is_measured_among_the_shown() -> None:
    # Document i has the score −i, so the fourth of the shown is the first that is relevant.
    bias = -np.arange(DOCUMENTS, dtype=np.float32)
    documents = Encoded(np.zeros((DOCUMENTS, 0), np.float32), Rows.empty(DOCUMENTS, 1), bias)
    query = Encoded(np.zeros((1, 0), np.float32), Rows.empty(1, 1), np.zeros(1, np.float32))
    shown = np.array([7, 20, 30, 41, 50])
    one = np.ones(1, np.int64)
    judgement = Judgement("q", np.array([41]), one, np.array([30]), 1.0, shown)
    found = measure_rankings(Retriever(documents), query, [judgement], documents=DOCUMENTS)
    assert found["mrr"].tolist() == [1 / 3]


@pytest.mark.parametrize("sizes", [[DOCUMENTS], [7, 1, 30, 22]])
@pytest.mark.parametrize("depth", [1, 4, 100])
def test_documents_in_blocks_are_ranked_as_all_together(
    folder: Path, sizes: list[int], depth: int
) -> None:
    corpus = count_collection(read_collection(folder), processes=1)
    valid = validation(corpus, 0)
    assert valid is not None
    rng = np.random.default_rng(3)

    def encoded(count: int) -> Encoded:
        # Few different numbers, so that many scores tie.
        indptr = np.arange(count + 1)
        values = rng.integers(1, 3, count).astype(np.float32)
        sparse = Rows(indptr, rng.integers(0, 3, count).astype(np.int32), values, 3)
        return Encoded.from_rows(sparse, rng.integers(-1, 2, (count, 2)).astype(np.float32))

    documents, queries = encoded(DOCUMENTS), encoded(len(valid.judgements))
    ends = np.cumsum([0, *sizes]).tolist()
    blocks = (documents.slice(a, b) for a, b in pairwise(ends))
    whole = measure_rankings(
        Retriever(documents), queries, valid.judgements,
        documents=DOCUMENTS, depth=depth, with_rank_loss=False,
    )  # fmt: skip
    found = valid.measure_blocks(blocks, queries, depth=depth)
    assert found == estimates(whole, relative_weights(valid.judgements))
