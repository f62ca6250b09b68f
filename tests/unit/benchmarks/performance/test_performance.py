"""Quality against speed: what is measured of each system, with engines that are in every environment."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.harness.plots import Frontier, frontier, unbeaten
from benchmarks.peers.engines import Engine, faiss_engines, process_seconds, sqlite_engine
from benchmarks.peers.protocol import Float32, PeerData, read_peer_data
from benchmarks.performance import live
from benchmarks.performance.frontier import Contender, quality, timed
from benchmarks.performance.live import Source, run, table
from benchmarks.performance.planted import LINKS_A_QUERY, POOL, draw_links, planted_model
from benchmarks.performance.request_cost import measure
from benchmarks.performance.servers import Server
from benchmarks.performance.soak import Soak, slope
from fullrank.bundle import open_bundle
from fullrank.measures import average_precision, reciprocal_rank
from fullrank.storage.encoding import Rows
from fullrank.text.features import unit
from fullrank_trainer.features.corpus import text_fields
from tests.bundles import CORPUS, make_bundle
from tests.planted import write_planted_links


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PeerData:
    """Documents are the queries; the links of train are no candidates for them."""
    return read_peer_data(write_planted_links(tmp_path_factory.mktemp("planted")))


def test_sqlite_finds_a_document_by_a_rare_word_in_another_form() -> None:
    documents = [{"title": "x", "text": f"common words {word}"} for word in ("files", "hosts", "")]
    search = sqlite_engine(documents).search
    assert list(search("the HOST: (remote)", 10)) == [1]
    assert sorted(search("words or file", 10)) == [0, 1, 2]
    assert next(iter(search("words or file", 10))) == 0
    assert list(search("?!", 10)) == []
    assert list(search(" ".join(f"word{i}" for i in range(3000)) + " hosts", 10)) == [1]


def test_faiss_finds_the_nearest_vectors() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(300, 8)).astype(np.float32)
    asked = random.normal(size=8).astype(np.float32)

    def encode(texts: Sequence[str]) -> Float32:
        return np.stack([asked] * len(texts))

    flat, graph = faiss_engines("random", encode, vectors)
    nearest = np.argsort(-(vectors @ asked)).tolist()
    assert list(flat.search("q", 10)) == nearest[:10]
    assert len(set(graph.search("q", 10)) & set(nearest[:10])) >= 9


def test_quality_leaves_out_excluded_documents(data: PeerData) -> None:
    """An engine that ranks what is excluded first, then what is relevant, is perfect."""
    asked = data.asked("valid")
    answers = {
        text: [*j.excluded.tolist(), *j.relevant.tolist()]
        for text, j in zip(asked.texts, asked.judgements, strict=True)
    }
    assert all(len(j.excluded) for j in asked.judgements)
    contender = Contender(Engine("perfect", lambda text, limit: answers[text][:limit]), asked.texts)
    assert quality(contender, asked, "mrr", [0, 1, 2]).tolist() == [1, 1, 1]
    assert quality(contender, asked, "map", [0, 1, 2]).tolist() == [1, 1, 1]


def test_quality_is_that_of_the_ranking(data: PeerData) -> None:
    names = text_fields(data.collection)
    engine = sqlite_engine([d.texts(names) for d in data.collection.documents])
    asked = data.asked("valid")
    places = list(range(0, len(asked.judgements), 7))
    reciprocal = quality(Contender(engine, asked.texts), asked, "mrr", places)
    average = quality(Contender(engine, asked.texts), asked, "map", places)
    for i, place in enumerate(places):
        judgement = asked.judgements[place]
        ranked = [
            row
            for row in engine.search(asked.texts[place], 10**6)
            if row not in set(judgement.excluded.tolist())
        ]
        grades = np.array([int(row in set(judgement.relevant.tolist())) for row in ranked])
        assert reciprocal[i] == reciprocal_rank(grades)
        assert average[i] == pytest.approx(average_precision(grades, len(judgement.relevant)))


def test_the_time_of_a_query_is_the_processor_time_of_its_search() -> None:
    """Sleep costs wall time only; a server's work counts."""

    def sleep(text: str, limit: int) -> list[int]:
        time.sleep(0.01)
        return []

    def work(text: str, limit: int) -> list[int]:
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass
        return []

    contenders = [Contender(Engine(f.__name__, f), ["q"] * 8) for f in (sleep, work)]
    found = timed(contenders, range(8), rounds=3)
    assert found["work"][1] >= 10
    assert found["sleep"][1] < found["work"][1]
    assert found["work"] == sorted(found["work"])


def test_processor_time_of_another_process_is_read() -> None:
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as busy:
        assert busy.stdin is not None
        assert busy.stdout is not None
        busy.stdout.readline()
        assert process_seconds(busy.pid) >= 0.2
        engine = Engine("server", lambda text, limit: [], processes=(busy.pid,))
        assert engine.cpu_seconds() >= 0.2 + time.process_time() - 0.1
        busy.stdin.close()


def test_the_parts_of_a_request_add_up_to_it(tmp_path: Path) -> None:
    bundle = tmp_path / "tldr" / make_bundle(tmp_path, "tldr")
    found = asyncio.run(measure(bundle, ["scp", "copy"], 2))
    assert set(found) == {"fast", "exact"}
    for parts in found.values():
        whole = parts["encode"] + parts["rank"] + parts["empty"] + parts["around"]
        assert parts["search"] == pytest.approx(whole, abs=0.5)
        assert min(parts[name] for name in ("search", "encode", "rank", "empty")) > 0


def test_the_frontier_joins_the_unbeaten_points() -> None:
    assert unbeaten([(1, 5), (2, 4), (3, 4), (2, 3), (9, 1)]) == [(1, 5), (3, 4), (9, 1)]


@pytest.mark.sweep
def test_a_drawn_frontier_names_its_systems_and_axes(tmp_path: Path) -> None:
    systems = {"theirs": (10.0, 0.2, False), "mine": (20.0, 0.4, True), "quick": (90.0, 0.3, True)}
    drawn = frontier(tmp_path / "f.svg", {"c": Frontier("MRR", systems)}, x="speed").read_text()
    assert all(name in drawn for name in (*systems, "MRR", "speed"))


def test_every_size_is_measured_with_that_many_documents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(live, "_SINGLES", 2)
    bundle = open_bundle(tmp_path / "docs" / make_bundle(tmp_path, "docs"))
    documents: list[dict[str, Any]] = [dict(d.fields) for d in CORPUS]
    source = Source(cycle(documents))
    rows = run(bundle, source, ["copy files"], [0, 3, 300])
    assert [row["added"] for row in rows] == [0, 3, 300]
    assert [row["segments"] for row in rows] == [0, 1, 1]
    assert rows[0]["batch_ms"] is None
    assert all(row["fast_ms"][0] > 0 and row["exact_ratio"] > 0 for row in rows)
    assert all(row["exact_ms"][0] > 0 and row["one_ms"][0] > 0 for row in rows)
    # Two written alone for every size, beside those that stay.
    assert source.seq == 300 + 3 * 2
    assert all(row["fast_ratio_compacted"] > 0 < row["exact_ratio_compacted"] for row in rows)
    assert json.loads(json.dumps(rows)) == rows
    assert "| 300 | 1 |" in table(rows).markdown()


WORDS, DOCUMENTS, QUERIES = 60, 400, 50


def texts(count: int, words: int, rng: np.random.Generator) -> Rows:
    """Unit rows of a few words each."""
    dense = np.zeros((count, WORDS), np.float32)
    for row in dense:
        row[rng.choice(WORDS, words, replace=False)] = rng.random(words) + 0.5
    return unit(Rows.from_csr(sp.csr_array(dense)))


def scores(queries: Rows, documents: Rows, seed: int) -> Float32:
    """f(q, d) of all pairs, computed densely."""
    U, V, D = planted_model(WORDS, seed)
    q, d = queries.csr().toarray(), documents.csr().toarray()
    return np.asarray((q @ U) @ (d @ V).T + (q * D) @ d.T, np.float32)


def test_a_link_leads_to_the_best_of_a_pool() -> None:
    rng = np.random.default_rng(1)
    queries, documents = texts(QUERIES, 5, rng), texts(DOCUMENTS, 12, rng)
    links = draw_links(queries, documents, seed=3)
    assert links.shape == (QUERIES, LINKS_A_QUERY)
    assert 0 <= links.min() <= links.max() < DOCUMENTS
    found = scores(queries, documents, 3)
    # The best of a pool lies above POOL / (POOL + 1) of its kind in the mean; half of a pool has a word of the query.
    below = np.array([(found[q] < found[q, row][:, None]).mean() for q, row in enumerate(links)])
    assert 1 - 3 / POOL < below.mean() < 1
    assert len(np.unique(links)) > DOCUMENTS / 5
    # Another planted model does not explain these links.
    other = scores(queries, documents, 4)
    wrong = np.mean([(other[q] < other[q, row][:, None]).mean() for q, row in enumerate(links)])
    assert wrong < below.mean() - 0.1


def test_one_seed_draws_the_same_links() -> None:
    rng = np.random.default_rng(1)
    queries, documents = texts(9, 3, rng), texts(30, 8, rng)
    first, again, other = (draw_links(queries, documents, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_slope_is_that_of_a_line_after_the_warm_up() -> None:
    times = [float(t) for t in range(0, 3600, 60)]
    values = [500.0 if t < 600 else 100 + 3 * t / 3600 for t in times]
    found = slope(times, values)
    assert found["per_hour"] == pytest.approx(3)
    assert found["error"] == pytest.approx(0)
    assert found["largest"] < 104


@pytest.mark.parametrize(
    ("status", "content", "lost"),
    [(200, {"fields": {"n": 2}}, False), (200, {"fields": {"n": 1}}, True), (404, {}, True)],
)
def test_a_lost_or_old_document_is_a_mistake(status: int, content: object, lost: bool) -> None:
    run = Soak(Server("http://127.0.0.1", (), ()), "key", [], [])
    run.state["a"] = {"n": 2}
    run.compare("a", httpx.Response(status, json=content))
    assert bool(run.seen.wrong) == lost


def test_a_restored_deleted_document_is_a_mistake() -> None:
    run = Soak(Server("http://127.0.0.1", (), ()), "key", [], [])
    run.state["a"] = None
    run.compare("a", httpx.Response(404, json={}))
    assert not run.seen.wrong
    run.compare("a", httpx.Response(200, json={"fields": {}}))
    assert run.seen.wrong
