"""Commands that read a collection: ``fullrank evaluate`` and ``index``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.unit.cli.running import Run


def test_evaluate_measures_a_split(run: Run, root: Path, collection: Path) -> None:
    got = run("evaluate", root / "mine", collection, "--json", "--run", root / "run.txt")
    assert got.code == 0
    # The repeated judgement is reported.
    assert "1 judgements given more than once" in got.err
    report = json.loads(got.out)
    # q1 finds a first; q2 ties over all three documents and b is second by id.
    assert report["measures"]["mrr"]["mean"] == 0.75
    assert report["queries"] == 2
    assert len((root / "run.txt").read_text().splitlines()) == 6
    options = ["--exclude-split", "train", "--split", "test", "--json"]
    excluded = run("evaluate", root / "mine", collection, *options)
    assert json.loads(excluded.out)["measures"]["mrr"]["mean"] == 1.0
    table = run("evaluate", root / "mine", collection).out
    assert "rank_loss" in table
    assert "0.7500" in table


def test_evaluate_shows_clicks_by_what_training_knew(
    run: Run, root: Path, collection: Path
) -> None:
    (collection / "weights").mkdir()
    for split in ("train", "test"):
        lines = (collection / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]
        rows = dict.fromkeys(tuple(line.split("\t")[:2]) for line in lines)
        weights = "".join(f"{query}\t{document}\t2\n" for query, document in rows)
        (collection / "weights" / f"{split}.tsv").write_text(
            f"query-id\tcorpus-id\tweight\n{weights}"
        )
    found = json.loads(run("evaluate", root / "mine", collection, "--json").out)
    names = [column["column"] for column in found["columns"]]
    assert names[-1] == "all"
    assert set(names) <= {"known", "new", "cold", "all"}
    assert found["columns"][-1]["clicks"] == sum(c["clicks"] for c in found["columns"][:-1])
    assert set(found["columns"][0]["mrr"]) == {"bundle", "bm25", "bm25 + popularity"}
    table = run("evaluate", root / "mine", collection).out
    assert "MRR of single clicks" in table
    assert "bm25 + popularity" in table


def test_evaluate_skips_a_judgement_of_a_deleted_document_unless_strict(
    run: Run, root: Path, collection: Path
) -> None:
    with (collection / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\tdeleted\t1\n")
    got = run("evaluate", root / "mine", collection)
    assert got.code == 0
    assert "1 judgement of unknown ids, skipped: 'deleted'" in got.err
    got = run("evaluate", root / "mine", collection, "--strict")
    assert (got.code, got.out) == (1, "")
    assert "'deleted'" in got.err


def test_what_is_no_collection_is_told_what_one_is(run: Run, root: Path, tmp_path: Path) -> None:
    table = tmp_path / "products.csv"
    table.write_text("name\nboots\n")
    for given, problem in (
        (table, "a file, not a folder"),
        (tmp_path / "absent", "no such folder"),
    ):
        got = run("train", given, "--out", root, "--name", "shop")
        first, *notes = got.err.splitlines()
        assert (got.code, first) == (1, f"fullrank: {given}: {problem}")
        assert [line.split()[0] for line in notes[1:]] == [
            "corpus.jsonl",
            "queries.jsonl",
            "qrels/train.tsv",
        ]


def test_evaluate_names_file_line_and_field(run: Run, root: Path, collection: Path) -> None:
    (collection / "corpus.jsonl").write_text('{"_id": "a", "text": 7}\n')
    got = run("evaluate", root / "mine", collection)
    assert got.code == 1
    assert "corpus.jsonl:1: field 'text': expected a string, got int" in got.err


def test_index_writes_a_new_bundle(run: Run, root: Path, collection: Path, tmp_path: Path) -> None:
    out = tmp_path / "indexed"
    one = ("--batch", "2", "--processes", "1")  # others would not know this test's model
    got = run("index", root / "mine", collection, "--out", out, *one, "--json")
    assert got.code == 0
    events = [json.loads(line) for line in got.err.splitlines()]
    assert events[0]["event"] == "read"
    assert events[0]["documents"] == 3
    assert events[-1]["event"] == "written"
    answer = json.loads(got.out)
    assert answer["documents"] == 3
    assert answer["parent"].startswith("mine-")
    assert answer["version"] == Path(answer["bundle"]).name
    hits = json.loads(run("search", out, "ant bee", "--json").out)["hits"]
    assert [hit["id"] for hit in hits] == ["a", "b", "c"]
    file = collection / "corpus.jsonl"
    plain = run("index", root, file, "--out", out, "--name", "other", *one)
    assert plain.code == 0
    assert plain.err.startswith("read  corpus ")
    assert "{" not in plain.err
    assert re.search(r"3 documents in \d+ s$", " ".join(plain.out.split()))
    assert (out / "other").is_dir()


def test_index_refuses_repeated_ids(run: Run, root: Path, collection: Path, tmp_path: Path) -> None:
    file = collection / "corpus.jsonl"
    file.write_text(file.read_text() * 2)
    got = run("index", root / "mine", file, "--out", tmp_path / "indexed")
    assert (got.code, got.out) == (1, "")
    assert got.err == (
        f"fullrank: {file}:4: field '_id': 'a' is already the id of line 1 (3 lines are wrong)\n"
        f"  {file}:5: field '_id': 'b' is already the id of line 2\n"
        f"  {file}:6: field '_id': 'c' is already the id of line 3\n"
    )
    assert run("index", root, file).code == 2
    assert not (tmp_path / "indexed").exists()
