"""The experiments of the papers on planted collections: they run, resume, and tell what is read from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments import papers, papers_tables
from benchmarks.experiments.claims import STATEMENTS
from benchmarks.harness.lab import Lab, parser
from benchmarks.harness.store import System, Task
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.loop import Interrupted
from tests.planted import write_lines, write_planted, write_planted_links

pytestmark = pytest.mark.usefixtures("few_made_up_words")

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

    def call(
        experiment: str, *arguments: str, only: str = "wikispeedia", tiny: list[str] = TINY
    ) -> dict[str, Any]:
        settings = [word for setting in tiny for word in ("--set", setting)]
        out = str(tmp_path / "out" / experiment)
        papers.main([experiment, "--only", only, "--out", out, "--json", *settings, *arguments])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return call


def stored(folder: Path) -> dict[str, str]:
    """Path → digest of every result under a folder."""
    return {
        f"{path.parent.name}/{path.stem}": json.loads(path.read_text())["digest"]
        for path in folder.glob("*/*.json")
    }


def test_every_row_has_a_recipe_and_every_check_two_rows(data: Path, tmp_path: Path) -> None:
    """What is declared can be run: recipes with their settings, claims with a statement."""
    for name, experiment in papers_tables.EXPERIMENTS.items():
        if name in ("cross_language", "clickthrough"):
            continue  # need other collections; they run below
        options = parser("doc", collections=["wikispeedia"], seconds=1)
        with Lab(name, options.parse_args(["--out", str(tmp_path / name)])) as lab:
            for part in experiment.parts(lab, "wikispeedia", data):
                names = [system.name for _, system in part.runs]
                assert len(set(names)) == len(names)
                for _, system in part.runs:
                    load_recipe(system.recipe_name).override(system.overrides)
                for claim, better, worse, _ in papers.checks_of(part.checks):
                    assert claim in STATEMENTS
                    assert {better, worse} <= set(names)


def test_the_same_sampled_queries_are_measured_for_all(run: Any, tmp_path: Path) -> None:
    result = run("documents", "--systems", "tfidf,lsi,ssi", "--queries", "20")
    limited, every, tested = result["tables"]
    assert limited["title"] == "wikispeedia, 30,000 words: 20 of 72 queries, 72 documents"
    assert every["title"].startswith("wikispeedia, all words")
    assert [row[0] for row in limited["rows"]] == ["tfidf", "lsi", "ssi"]
    assert limited["headings"][2:4] == ["rank loss %", "paper"]
    assert limited["rows"][0][3] == "1.62"
    one = json.loads((tmp_path / "out/documents/wikispeedia-30-000-words/ssi.json").read_text())
    assert (one["queries"], one["queries_in_split"], one["documents"]) == (20, 72, 72)
    assert one["settings"]["model"]["words"] == 30_000
    assert {"processor", "cores", "versions"} <= set(one["machine"])
    verdicts = {(f["tested"], f["measure"]): f["verdict"] for f in result["findings"]}
    assert verdicts["ssi > tfidf", "rank_loss"] in ("reproduced", "not reproduced")
    assert verdicts["htr > ssi", "map"] == "not tested"
    assert len(tested["rows"]) == sum(verdict != "not tested" for verdict in verdicts.values())


@pytest.mark.sweep
def test_a_stored_result_is_reused_until_its_settings_change(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ["--systems", "tfidf,ssi"]
    run("keywords", *chosen)
    first = stored(tmp_path / "out" / "keywords")
    assert {path.rpartition("/")[2] for path in first} == {"tfidf", "ssi"}
    with monkeypatch.context() as patched:
        patched.delattr(Trainer, "search")
        run("keywords", *chosen)
    assert stored(tmp_path / "out" / "keywords") == first
    run("keywords", *chosen, "--set", "train.patience=7")
    second = stored(tmp_path / "out" / "keywords")
    assert second["wikispeedia-k-5/ssi"] != first["wikispeedia-k-5/ssi"]
    run("keywords", "--systems", "tfidf", "--fresh")
    third = stored(tmp_path / "out" / "keywords")
    assert third["wikispeedia-k-5/tfidf"] != second["wikispeedia-k-5/tfidf"]


def test_a_failing_system_does_not_stop_the_others(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(
            "documents", "--systems", "tfidf,ssi", "--set", "rates=1000", "--set", "init=100",
            "--set", "train.loss=margin", "--set", "trial=5",
        )  # fmt: skip
    assert stopped.value.code == 1
    result = json.loads(capsys.readouterr().out)
    assert {line["system"] for line in result["missing"]} == {"ssi"}
    assert result["tables"][0]["rows"][1][-1] == "failed"
    assert "wikispeedia-all-words/tfidf" in stored(tmp_path / "out" / "documents")


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
        run("documents", "--systems", "tfidf,ssi")
    assert stopped.value.code == 130
    assert set(stored(tmp_path / "out" / "documents")) == {"wikispeedia-30-000-words/tfidf"}


def test_studies_report_on_each_question(run: Any) -> None:
    result = run("studies", "--systems", "ssi,ssi, by links,ssi, by documents")
    titles = [table["title"].split(":")[0] for table in result["tables"]]
    assert titles[:5] == [
        "identity", "dimension", "start and loss", "split", "share of the training links"
    ]  # fmt: skip
    assert {f["claim"] for f in result["findings"]} == {
        "identity", "identity-lsi", "dimension", "supervision", "split", "data"
    }  # fmt: skip


@pytest.mark.sweep
def test_partitions_and_shares_are_compared_with_each_other(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(papers_tables, "_SHARES", {10: (1.4,), 100: ()})
    result = run("studies")
    tested = {(f["claim"], f["tested"]): f["verdict"] for f in result["findings"]}
    assert tested["split", "fielded, by documents ≈ fielded, by links"] != "not tested"
    assert tested["data", "ssi, 100 % > ssi, 10 %"] != "not tested"
    assert "not tested" not in tested.values()


@pytest.mark.sweep
def test_verdicts_sum_up_the_findings(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run("keywords", "--systems", "tfidf,ssi,ssi-tied")
    assert [table["title"].split(":")[0] for table in result["tables"][:4]] == [
        "wikispeedia, k = 5",
        "wikispeedia, k = 10",
        "wikispeedia, k = 10, all words",
        "wikispeedia, k = 20",
    ]
    # A run of other systems keeps what is known.
    run("keywords", "--systems", "tfidf")
    papers.main(["verdicts", "--out", str(tmp_path / "out"), "--json"])
    told_of = {one["claim"]: one for one in json.loads(capsys.readouterr().out)["statements"]}
    assert told_of["asymmetric"]["tests"] == 6
    assert told_of["asymmetric"]["experiments"] == ["keywords"]
    assert told_of["bltm"]["verdict"] == "not tested"
    papers.main(["verdicts", "--out", str(tmp_path / "out"), "--markdown"])
    assert "| statement | verdict | tests | experiments |" in capsys.readouterr().out


@pytest.mark.sweep
def test_cross_language_reports_every_part(
    run: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptions in other words, under the ids of the documents of a linked collection."""
    monkeypatch.setattr(papers_tables, "_FEWEST", 10)
    folder = shutil.copytree(data, data.with_name("debian"))
    lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()
    described = [
        {"_id": d["_id"], "text": " ".join(f"x{word}" for word in d["text"].split())}
        for d in map(json.loads, lines[::2])
    ]
    write_lines(folder / "ja" / "queries.jsonl", described)
    result = run("cross_language", only="debian/ja")
    assert not result["missing"]
    full, *shares, mates, _ = result["tables"]
    assert len(full["rows"]) == 10
    assert full["title"].startswith("debian/ja: 36 of 36 queries")
    assert [table["title"].split(":")[0] for table in shares] == [
        "debian/ja, 10 % of the pairs", "debian/ja, 100 % of the pairs"
    ]  # fmt: skip
    assert mates["title"].startswith("debian/ja, mates: 11 of 11 queries")
    tested = {finding["claim"]: finding["verdict"] for finding in result["findings"]}
    assert set(tested) == {
        "cross-language", "cross-language-lsi", "cross-language-mix", "multi-task", "mates"
    }  # fmt: skip
    assert "not tested" not in tested.values()


@pytest.mark.sweep
def test_clickthrough_crosses_the_weights_of_mixes(run: Any, data: Path) -> None:
    write_planted(data.parent / "tldr" / "en")
    systems = "tfidf,unigram,bltm,bltm-pr,lsa-tfidf"
    tiny = ["epochs=4", "model.dimension=6"]
    found = run("clickthrough", "--systems", systems, only="tldr/en", tiny=tiny)
    table, _ = found["tables"]
    assert {row[0] for row in table["rows"]} == set(systems.split(","))
    assert table["headings"][2:4] == ["NDCG@1", "paper"]
    verdicts = {finding["tested"]: finding["verdict"] for finding in found["findings"]}
    assert verdicts["bltm-pr > unigram"] != "not tested"
    assert verdicts["dssm > s2net"] == "not tested"


def test_tables_print_as_markdown_and_on_a_terminal(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["documents", "--only", "wikispeedia", "--systems", "tfidf"]
    papers.main([*arguments, "--out", str(tmp_path / "out"), "--markdown"])
    said = capsys.readouterr().out
    assert said.startswith("### wikispeedia, 30,000 words: 72 of 72 queries")
    assert "| tfidf | I | " in said
    papers.main([*arguments, "--out", str(tmp_path / "out")])
    assert "tfidf" in capsys.readouterr().out


def test_an_unknown_name_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        papers.main(["studies", "--only", "nowhere"])
    assert stopped.value.code == 2
    assert "there are: " in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no experiment 'nothing'; there are: documents"):
        papers.main(["nothing"])


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
