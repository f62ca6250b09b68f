"""Quality against speed: what is measured of each system, with engines that are in every environment."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.plots import Frontier, frontier, unbeaten
from benchmarks.peers.engines import Engine, faiss_engines, process_seconds, sqlite_engine
from benchmarks.peers.protocol import Float32, PeerData, read_peer_data
from benchmarks.performance.frontier import Contender, quality, timed
from fullrank.measures import average_precision, reciprocal_rank
from fullrank_trainer.features.corpus import text_fields
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


def test_the_frontier_joins_the_unbeaten_points(tmp_path: Path) -> None:
    assert unbeaten([(1, 5), (2, 4), (3, 4), (2, 3), (9, 1)]) == [(1, 5), (3, 4), (9, 1)]
    systems = {"theirs": (10.0, 0.2, False), "mine": (20.0, 0.4, True), "quick": (90.0, 0.3, True)}
    drawn = frontier(tmp_path / "f.svg", {"c": Frontier("MRR", systems)}, x="speed").read_text()
    assert all(name in drawn for name in (*systems, "MRR", "speed"))
