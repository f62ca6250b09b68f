"""``fullrank import``: from files that people have to answers."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from examples.shop import products
from tests.unit.cli.running import Run


def documents(collection: Path) -> list[dict[str, Any]]:
    lines = (collection / "corpus.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


def write_csv(
    path: Path, header: str, rows: Iterable[Iterable[object]], encoding: str = "utf-8"
) -> Path:
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(header.split())
        writer.writerows(rows)
    return path


def test_a_table_of_products_becomes_answers(run: Run, tmp_path: Path) -> None:
    rows = [
        ("A1", "Red boots", "19.90", "4006381333931", "true", "Warm;\nsoft"),
        ("A2", "Blue boots", "5", "4006381333932", "false", ""),
    ]
    header = "sku name price ean in_stock description"
    source = write_csv(tmp_path / "products.csv", header, rows, "utf-8-sig")
    assert run("import", source, tmp_path / "shop").code == 0
    assert documents(tmp_path / "shop") == [
        {
            "_id": "A1",
            "title": "Red boots",
            "price": 19.9,
            "ean": "4006381333931",
            "in_stock": True,
            "text": "Warm;\nsoft",
        },
        {"_id": "A2", "title": "Blue boots", "price": 5, "ean": "4006381333932", "in_stock": False},
    ]
    assert run("train", tmp_path / "shop", "--out", tmp_path / "b", "--name", "shop").code == 0
    assert (
        json.loads(run("search", tmp_path / "b/shop", "blue", "--json").out)["hits"][0]["id"]
        == "A2"
    )


def test_columns_are_mapped_by_options(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl.gz"
    lines = [{"key": 7, "name": "x", "label": "Lamp", "notes": "bright", "tags": ["a", "b"]}]
    source.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    options = ("--id", "key", "--title", "label", "--text", "notes")
    assert run("import", source, tmp_path / "out", *options).code == 0
    assert documents(tmp_path / "out") == [
        {"_id": "7", "name": "x", "title": "Lamp", "text": "bright", "tags": ["a", "b"]}
    ]
    got = run("import", source, tmp_path / "other", "--id", "nokey")
    assert (got.code, got.err.count("\n")) == (1, 1)
    assert "no column 'nokey'; there are: key, name, label, notes, tags" in got.err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("id;title\na;x\na;y\n", ":3: the id 'a' occurs twice"),
        ("id;title\na;x;z\n", ":2: 3 cells, but 2 columns"),
        ("id;title\n;x\n", ":2: no id"),
        ('id;title\na;"x"y\n', ":2: '"),
        ("id;id\n", ":1: the header needs different names of columns"),
        ("color;size\nred;1\n", ": name the column of the id with --id: color, size"),
        ("id;title\n", ": no documents"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(
    run: Run, tmp_path: Path, content: str, problem: str
) -> None:
    source = tmp_path / "t.csv"
    source.write_text(content, "utf-8")
    got = run("import", source, tmp_path / "out")
    assert (got.code, got.err.count("\n")) == (1, 1)
    assert f"t.csv{problem}" in got.err
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv"}


def test_bad_rows_are_set_aside(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "t.jsonl"
    source.write_text('{"id": "a", "title": "x"}\nnot json\n{"title": "y"}\n', "utf-8")
    got = run("import", source, tmp_path / "out", "--skip-bad", "--json")
    assert (json.loads(got.out)["documents"], json.loads(got.out)["skipped"]) == (1, 2)
    lines = (tmp_path / "out/skipped.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["place"] for line in lines] == [f"{source}:2", f"{source}:3"]
    assert run("train", tmp_path / "out", "--out", tmp_path / "b", "--name", "x").code == 0


def test_another_encoding_is_asked_for(run: Run, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", "id title", [("a", "Café")], "cp1252")
    assert (
        "name its encoding, such as --encoding cp1252" in run("import", source, tmp_path / "o").err
    )
    assert run("import", source, tmp_path / "out", "--encoding", "cp1252").code == 0
    wide = write_csv(tmp_path / "wide.csv", "id title", [("a", "Café")], "utf-16")
    assert run("import", wide, tmp_path / "wide").code == 0
    assert documents(tmp_path / "out") == documents(tmp_path / "wide")


def test_a_dry_run_shows_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", "id title price", [("a", "x", "1")])
    found = json.loads(run("import", source, tmp_path / "out", "--dry-run", "--json").out)
    assert found["columns"] == {"id": "_id", "title": "title", "price": "number"}
    assert found["first"] == [{"_id": "a", "title": "x", "price": 1}]
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv"}


def test_clicks_become_queries_and_weights(run: Run, tmp_path: Path) -> None:
    found = products()
    source = write_csv(
        tmp_path / "p.csv", "id title", [(product["_id"], product["title"]) for product in found]
    )
    ids = [product["_id"] for product in found]
    clicks = [(f"query {i % 40}", ids[i % 40 % len(ids)], f"u{i}") for i in range(400)]
    with (tmp_path / "clicks.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("query", "document", "user"), *clicks])
    out = tmp_path / "shop"
    assert run("import", source, out, "--clicks", tmp_path / "clicks.csv").code == 0
    queries = (out / "queries.jsonl").read_text("utf-8").splitlines()
    texts = {row["_id"]: row["text"] for row in map(json.loads, queries)}
    pairs = [
        (texts[query], document)
        for split in ("train", "valid")
        for query, document, _ in table(out / "qrels" / f"{split}.tsv")[1:]
    ]
    assert Counter(pairs) == Counter(dict.fromkeys({click[:2] for click in clicks}, 1))
    assert (out / "weights/train.tsv").exists()


PAGES = {
    "index.md": """---
title: Home
tags: [start, here]
date: 2026-05-01
---
# Welcome

Read [how to install it](guide/install.md#linux "title") or <https://other.example/>.
""",
    "guide/install.md": """# Install

## On Linux

Use `apt`. Back to the [start](/).

| a | b |
|---|---|
| c | x |
""",
    "api.html": """<html><head><title>API &amp; more</title><meta name="description" content="All calls">
<script>var hidden = "<p>no</p>"</script></head><body><nav><a href="index.html">Menu</a></nav>
<main><h1>Calls<a href="#calls">¶</a></h1>
<p>See <a href="guide/install.html">the guide</a>.<br>Done</main></html>""",
    ".hidden/x.md": "# Hidden",
    "node_modules/y.md": "# Not ours",
}


def test_a_folder_of_pages_becomes_documents_and_links(run: Run, tmp_path: Path) -> None:
    for name, content in PAGES.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(content, "utf-8")
    out = tmp_path / "docs"
    assert run("import", tmp_path / "site", out, "--url", "https://docs.example/{path}/").code == 0
    assert documents(out) == [
        {
            "description": "All calls",
            "_id": "api.html",
            "title": "API & more",
            "text": "Calls\nSee the guide.\nDone",
            "headings": "Calls",
            "url": "https://docs.example/api/",
        },
        {
            "_id": "guide/install.md",
            "title": "Install",
            "text": "Install\nOn Linux\nUse apt. Back to the start.\na\nb\nc\nx",
            "headings": "On Linux",
            "url": "https://docs.example/guide/install/",
        },
        {
            "_id": "index.md",
            "tags": ["start", "here"],
            "date": "2026-05-01",
            "title": "Home",
            "text": "Welcome\nRead how to install it or https://other.example/.",
            "headings": "Welcome",
            "url": "https://docs.example/index/",
        },
    ]
    assert table(out / "qrels/train.tsv") == [
        ["query-id", "corpus-id", "score"],
        ["api.html", "guide/install.md", "1"],
        ["guide/install.md", "index.md", "1"],
        ["index.md", "guide/install.md", "1"],
    ]
    assert table(out / "anchors.tsv")[1:] == [
        ["the guide", "guide/install.md"],
        ["start", "index.md"],
        ["how to install it", "guide/install.md"],
    ]


def test_damaged_front_matter_names_the_page(run: Run, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/a.md").write_text("---\ntitle: [\n---\n# A", "utf-8")
    got = run("import", tmp_path / "site", tmp_path / "out")
    assert (got.code, got.err.count("\n")) == (1, 1)
    assert "site/a.md: cannot be read: while parsing a flow node" in got.err


def test_a_page_that_is_set_aside_is_linked_by_none(run: Run, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "a.md").write_text("# In C#\n\n[b](b.md) [c](c)", "utf-8")
    (site / "b.md").write_text("---\nx: [\n---\n", "utf-8")
    (site / "c.md").write_text("# C\n\n[a](a.md)", "utf-8")
    assert run("import", site, tmp_path / "out", "--skip-bad").code == 0
    assert [document["title"] for document in documents(tmp_path / "out")] == ["In C#", "C"]
    pairs = table(tmp_path / "out/qrels/train.tsv")[1:]
    assert pairs == [["a.md", "c.md", "1"], ["c.md", "a.md", "1"]]


def test_clicks_on_pages_replace_their_links(run: Run, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "a.md").write_text("# A\n\n[see b](b.md)", "utf-8")
    (site / "b.md").write_text("# B", "utf-8")
    rows = [(f"query {i % 40}", "ab"[i % 2] + ".md") for i in range(200)]
    with (tmp_path / "clicks.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("query", "document"), *rows])
    out = tmp_path / "out"
    assert run("import", site, out, "--clicks", tmp_path / "clicks.csv").code == 0
    assert (out / "queries.jsonl").exists()
    assert table(out / "anchors.tsv")[1:] == [["see b", "b.md"]]


def test_no_column_is_lost_to_another_one(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "t.jsonl"
    source.write_text('{"id": "a", "title": "Mr", "name": "Lamp", "size": "5"}\n', "utf-8")
    assert run("import", source, tmp_path / "out", "--title", "name").code == 0
    assert documents(tmp_path / "out") == [
        {"_id": "a", "original_title": "Mr", "title": "Lamp", "size": "5"}
    ]
    assert "is the id already" in run("import", source, tmp_path / "o", "--title", "id").err
    assert "--url is for a folder" in run("import", source, tmp_path / "o", "--url", "x").err
