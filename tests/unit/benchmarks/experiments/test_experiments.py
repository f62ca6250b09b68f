"""The experiments on a planted collection: they run, resume, and tell what is read from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments import cross_language, documents, findings, keywords, publish, studies
from benchmarks.harness.lab import Lab, parser
from benchmarks.harness.task import System, Task
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.loop import Interrupted
from tests.planted import write_lines, write_planted_links

TINY = ["dimension=4", "triples=400", "epochs=2", "trial=50", "rates=0.1,1", "valid_queries=20"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared folder, wikispeedia in it: documents that link to others of their topic."""
    folder = write_planted_links(tmp_path / "data" / "wikispeedia")
    train = folder / "qrels" / "train.tsv"
    header, *lines = train.read_text().splitlines()
    train.write_text("\n".join([header, *lines[::2]]) + "\n")
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *lines[1::2]]) + "\n")
    monkeypatch.setenv("FULLRANK_DATA", str(folder.parent))
    return folder


@pytest.fixture
def run(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs an experiment as a user does, tiny; gives its JSON."""

    def call(experiment: Any, *arguments: str, only: str = "wikispeedia") -> dict[str, Any]:
        out = tmp_path / "out" / experiment.__name__.split(".")[-1]
        settings = [word for setting in TINY for word in ("--set", setting)]
        common = ["--only", only, "--out", str(out), "--json"]
        experiment.main([*common, *settings, *arguments])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return call


def stored(folder: Path) -> dict[str, str]:
    """File name → digest of every result under a folder."""
    return {
        path.stem: json.loads(path.read_text())["digest"]
        for path in folder.glob("*/*.json")
        if path.stem not in ("summary", "findings")
    }


def test_documents_measures_the_same_sampled_queries_for_all(run: Any, tmp_path: Path) -> None:
    result = run(
        documents, "--words", "30000", "--systems", "tfidf,lsi,ssi,eigenmaps", "--queries", "20"
    )
    (table,) = result["tables"]
    assert "20 of 72 queries, 72 documents" in table["title"]
    assert [row[0] for row in table["rows"]][:2] == ["tfidf", "lsi"]
    assert table["headings"][2:4] == ["rank loss %", "paper"]
    assert table["rows"][0][3] == "1.62"
    one = json.loads((tmp_path / "out/documents/wikispeedia-30-000-words/ssi.json").read_text())
    assert (one["queries"], one["queries_in_split"], one["documents"]) == (20, 72, 72)
    assert one["settings"]["model"]["words"] == 30_000
    assert set(one["rates_tried"]) == {"0.1", "1"}
    assert len(one["training"]["history"]) == 2
    assert {"processor", "cores", "versions"} <= set(one["machine"])
    tested = {(f["tested"], f["measure"]): f for f in result["findings"]}
    assert tested["ssi > tfidf", "rank_loss"]["verdict"] in ("reproduced", "not reproduced")
    assert tested["htr > ssi", "map"]["verdict"] == "not tested"
    assert [Path(plot).read_text()[:5] for plot in result["plots"]] == ["<?xml"]


def test_a_stored_result_is_reused_until_its_settings_change(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ["--words", "0", "--systems", "tfidf,ssi"]
    run(documents, *chosen)
    first = stored(tmp_path / "out" / "documents")
    assert set(first) == {"tfidf", "ssi"}
    with monkeypatch.context() as patched:
        patched.delattr(Trainer, "search")
        run(documents, *chosen)
    assert stored(tmp_path / "out" / "documents") == first
    run(documents, *chosen, "--set", "train.patience=7")
    assert stored(tmp_path / "out" / "documents")["ssi"] != first["ssi"]
    run(documents, "--words", "0", "--systems", "tfidf", "--fresh")
    second = stored(tmp_path / "out" / "documents")
    assert second["tfidf"] != first["tfidf"]


def test_a_failing_system_does_not_stop_the_others(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(
            documents, "--words", "0", "--systems", "tfidf,ssi,ssi-tied", "--set", "rates=1000",
            "--set", "init=100", "--set", "train.loss=margin", "--set", "trial=5",
        )  # fmt: skip
    assert stopped.value.code == 1
    result = json.loads(capsys.readouterr().out)
    assert {line["system"] for line in result["missing"]} >= {"ssi"}
    assert "tfidf" in stored(tmp_path / "out" / "documents")


def test_ctrl_c_keeps_finished_results(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Trainer.search

    def until_ssi(self: Trainer, recipe: Any) -> Any:
        if recipe.name == "ssi":
            raise Interrupted("interrupted in epoch 1")
        return search(self, recipe)

    monkeypatch.setattr(Trainer, "search", until_ssi)
    with pytest.raises(SystemExit) as stopped:
        run(documents, "--words", "30000", "--systems", "tfidf,ssi")
    assert stopped.value.code == 130
    assert set(stored(tmp_path / "out" / "documents")) == {"tfidf"}


def test_rare_words_are_weighted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "FREQUENT", 20)
    options = parser("doc", collections=["wikispeedia"], seconds=1)
    given = options.parse_args(["--out", str(tmp_path / "out")])
    with Lab("documents", given) as lab:
        weights = documents.rare_weight(lab, Task("here", data))
    assert weights.shape == (72,)
    assert 0 < weights.min() < weights.max() < 1
    assert documents.rarest(weights).sum() >= 18


def test_studies_report_on_each_question(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "SHARES", (10, 100))
    monkeypatch.setattr(studies, "CURVES", {"shares": (10, 100), "dimensions": (4,)})
    result = run(studies)
    titles = [table["title"].split(":")[0] for table in result["tables"]]
    assert titles == [
        "identity", "dimension", "start and loss", "split", "share of the training links",
        "learning curves of UᵀV + I",
    ]  # fmt: skip
    claims = {finding["claim"] for finding in result["findings"]}
    assert claims == {
        "identity", "identity-lsi", "dimension", "supervision", "split", "data", "overfitting"
    }  # fmt: skip
    assert all(finding["verdict"] != "not tested" for finding in result["findings"])
    assert len(result["plots"]) == 3
    assert all(Path(plot).is_file() for plot in result["plots"])


def test_keywords_search_for_the_linked_articles(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(keywords, "--systems", "tfidf,ssi,ssi-tied")
    assert [table["title"].split(":")[0] for table in result["tables"]] == [
        "wikispeedia, k = 5",
        "wikispeedia, k = 10",
        "wikispeedia, k = 10, all words",
        "wikispeedia, k = 20",
    ]
    assert {f["verdict"] for f in result["findings"] if f["claim"] == "asymmetric"} <= {
        "reproduced",
        "not reproduced",
    }
    findings.main(["--out", str(tmp_path / "out"), "--json"])
    told_of = {one["claim"]: one for one in json.loads(capsys.readouterr().out)["statements"]}
    assert told_of["asymmetric"]["tests"] == 6
    assert told_of["asymmetric"]["experiments"] == ["keywords"]
    assert told_of["bltm"]["verdict"] == "not tested"


def test_cross_language_reports_every_part(
    run: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptions in other words, under the ids of the documents of a linked collection."""
    monkeypatch.setattr(cross_language, "FEWEST", 10)
    folder = shutil.copytree(data, data.with_name("debian"))
    lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()
    described = [
        {"_id": d["_id"], "text": " ".join(f"x{word}" for word in d["text"].split())}
        for d in map(json.loads, lines[::2])
    ]
    write_lines(folder / "ja" / "queries.jsonl", described)
    result = run(cross_language, only="debian/ja")
    assert not result["missing"]
    full, shares, mates = result["tables"]
    assert len(full["rows"]) == 10
    assert full["title"].startswith("debian/ja: 36 of 36 queries")
    assert [row[0].split(",")[0] for row in shares["rows"]] == ["10 %"] * 2 + ["100 %"] * 2
    assert mates["title"].startswith("debian/ja, mates: 11 of 11 queries")
    assert mates["headings"][2:4] == ["rank loss %", "paper"]
    tested = {finding["claim"]: finding["verdict"] for finding in result["findings"]}
    assert set(tested) == {
        "cross-language", "cross-language-lsi", "cross-language-mix", "multi-task", "mates"
    }  # fmt: skip
    assert "not tested" not in tested.values()
    again = run(cross_language, "--systems", "cross-language,cl-lsi", only="debian/ja")
    assert again["findings"][2]["tested"] == "cross-language > cl-lsi"
    assert again["tables"][0]["rows"] == [full["rows"][i] for i in (4, 5)]


def test_a_partial_run_keeps_earlier_findings(run: Any, tmp_path: Path) -> None:
    run(documents, "--words", "0", "--systems", "tfidf,diagonal")
    kept = json.loads((tmp_path / "out/documents/findings.json").read_text())["findings"]
    tested = [one for one in kept if one["verdict"] != "not tested"]
    assert {one["claim"] for one in tested} == {"diagonal"}
    run(documents, "--words", "0", "--systems", "tfidf")
    again = json.loads((tmp_path / "out/documents/findings.json").read_text())["findings"]
    assert again == kept


def test_tables_print_as_markdown_and_on_a_terminal(
    run: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--only", "wikispeedia", "--words", "0", "--systems", "tfidf,query-expansion"]
    documents.main([*arguments, "--out", str(tmp_path / "out"), "--markdown"])
    said = capsys.readouterr().out
    assert said.startswith("### wikispeedia, all words: 72 of 72 queries")
    assert "| tfidf | I | " in said
    documents.main([*arguments, "--out", str(tmp_path / "out")])
    assert "tfidf" in capsys.readouterr().out


def test_an_unknown_name_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--only", "nowhere"], ["--studies", "nothing"]):
        with pytest.raises(SystemExit) as stopped:
            studies.main(arguments)
        assert stopped.value.code == 2
        assert "there are: " in capsys.readouterr().err


def test_publish_writes_results_into_one_page_per_experiment(run: Any, tmp_path: Path) -> None:
    run(documents, "--words", "0", "--systems", "tfidf,ssi-frequent n=30k")
    docs = tmp_path / "results"
    docs.mkdir()
    for name in ("findings", "documents", "keywords"):
        (docs / f"{name}.md").write_text(
            f"# {name}\n<!-- begin {name} -->\nold\n<!-- end {name} -->\nkept\n"
        )
    (docs / "faults.md").write_text("# faults\nkept\n")
    publish.main(["--out", str(tmp_path / "out"), "--docs", str(docs)])
    pages = {page.stem: page.read_text() for page in docs.glob("*.md")}
    assert all(text.startswith(f"# {name}\n") for name, text in pages.items())
    assert all(text.endswith("kept\n") for text in pages.values())
    assert [name for name, text in pages.items() if "\nold\n" in text] == ["keywords"], (
        "an experiment without results keeps its page"
    )
    assert "| tfidf | I | " in pages["documents"]
    assert "seed 1" in pages["documents"]
    assert "| statement | verdict | " in pages["findings"]
    (plot,) = (docs / "plots").iterdir()
    assert f"(plots/{plot.name})" in pages["documents"]
    with pytest.raises(SystemExit, match="no page 'faults'"):
        publish.main(["faults", "--out", str(tmp_path / "out"), "--docs", str(docs)])


def test_a_fit_has_a_time_limit(data: Path, tmp_path: Path) -> None:
    options = parser("doc", collections=["wikispeedia"], seconds=3)
    lab = Lab("documents", options.parse_args(["--out", str(tmp_path), "--set", "auto.seconds=1"]))
    task = Task("here", data)
    for system, seconds in (
        (System("ssi"), 3.0),
        (System("ssi", time_factor=10), 30.0),
        (System("ssi", overrides=("train.seconds=2",)), 2.0),
        (System("tfidf"), 0.0),
    ):
        recipe = lab.recipe(system, task)
        assert (recipe.train.seconds, recipe.auto.seconds) == (seconds, 1.0)
