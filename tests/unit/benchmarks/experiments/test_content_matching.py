"""Experiment 5 on planted pages: the collection it makes, the ways it times, and what it tells."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments import content_matching
from benchmarks.experiments.content_matching import speed, time_pairs, write_content
from benchmarks.harness.store import Result
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.judgement import judge
from fullrank_trainer.train import Trainer
from tests.planted import write_planted_links

TINY = ["epochs=2", "trial=50", "rates=0.3", "dimension=4", "slots=5003"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Articles and clicks: on each article, on the others of its topic, and a few of another; split by page."""
    folder = write_planted_links(tmp_path / "data" / "wikispeedia")
    ids = [document.id for document in read_collection(folder).documents]
    (folder / "clicks").mkdir()
    for name, pages in (("train", ids[::2]), ("valid", ids[1::4]), ("test", ids[3::4])):
        lines = ["page-id\tclicked-id\tclicks"]
        lines += [f"{a}\t{b}\t{i % 3 + 1}" for a in pages for i, b in enumerate(ids)
                  if a != b and a[:2] == b[:2]]  # fmt: skip
        with gzip.open(folder / "clicks" / f"{name}.tsv.gz", "wt", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
    return folder


def test_pages_are_queries_and_short_texts_documents(source: Path, tmp_path: Path) -> None:
    articles = read_collection(source)
    found = read_collection(write_content(source, tmp_path / "content"))
    assert found.queries is not None
    assert [query.id for query in found.queries] == [d.id for d in articles.documents]
    assert found.splits == ("train", "valid", "test")
    for document, article in zip(found.documents, articles.documents, strict=True):
        text = article.texts(["text"])["text"]
        assert document.fields["text"] == " ".join(text.split()[: content_matching.SHORT])
    assert max(max(grades.values()) for grades in found.qrels("train").values()) == 3
    # A page's own text is never the answer, and no page is in two splits.
    judgements, _ = judge(found, "test", ["train", "valid"])
    for judgement in judgements:
        row = next(i for i, d in enumerate(found.documents) if d.id == judgement.query)
        assert judgement.excluded.tolist() == [row]
        assert row not in judgement.relevant


def test_every_way_is_timed_on_the_same_pages(source: Path, tmp_path: Path) -> None:
    collection = read_collection(write_content(source, tmp_path / "content"))
    trainer = Trainer(
        collection, Reporter(quiet=True), tmp_path / "out", "x", seed=1, threads=1, resume=False
    )
    ways = {way.name: way for way in time_pairs(trainer, seed=1, pages=5)}
    for way in ways.values():
        assert way.seconds.shape == way.products.shape == (5,)
        assert (way.seconds > 0).all()
    hashed = ways["hash kernels, 10M, whole page"]
    np.testing.assert_allclose(hashed.products, hashed.q * hashed.d)
    assert (ways["low rank"].products == content_matching.DIMENSION).all()


@pytest.mark.parametrize(
    ("measured", "verdict"), [(100, "reproduced"), (30, "reproduced"), (10, "not reproduced")]
)
def test_the_speed_factor_becomes_a_finding(measured: float, verdict: str) -> None:
    """2,000 products against 50 are a factor of 40; half of it must be there."""
    values = {
        "products hash": np.full(3, 2000.0),
        "seconds hash": np.full(3, 1e-9 * measured),
        "seconds low rank": np.full(3, 1e-9),
    }
    facts = {"ways": ["hash", "low rank"], "d": [20.0, 0.0]}
    (found,) = speed(Result(facts, ["0", "1", "2"], values), "here")
    assert found.verdict == verdict
    assert found.figures == {"|q||d|/N": 40, "measured": pytest.approx(measured)}


def test_content_matching_reports_tables_and_findings(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.setenv("FULLRANK_DATA", str(source.parent))
    monkeypatch.setattr(content_matching, "TIMED", 7)
    settings = [word for setting in TINY for word in ("--set", setting)]
    systems = "tfidf,hash-kernels 1M,ssi-frequent n=10k"
    out = tmp_path / "out" / "content_matching"
    content_matching.main(["--systems", systems, "--out", str(out), "--json", *settings])
    told = json.loads(capsys.readouterr().out)
    quality, cost = told["tables"]
    assert [row[0] for row in quality["rows"]] == systems.split(",")
    assert quality["rows"][0][3] == "45.6"
    assert [row[0] for row in cost["rows"]][-2:] == ["low rank", "low rank + I"]
    verdicts = {(f["claim"], f["tested"]): f["verdict"] for f in told["findings"]}
    assert verdicts["content", "hash-kernels 1M > tfidf"] != "not tested"
    assert verdicts["content", "hash-kernels 10M > tfidf"] == "not tested"
    assert {claim for claim, _ in verdicts} >= {"hash-size", "hash-speed", "hash-low-rank"}
