"""``fullrank import``: from files that people have to answers."""

from __future__ import annotations

import csv
import gzip
import json
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow
import pyarrow.parquet
import pytest

from examples.shop import products
from tests.databases import NewDatabase
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


def test_a_table_of_products_becomes_documents(run: Run, tmp_path: Path) -> None:
    rows = [
        ("A1", "Red boots", "19,90", "4006381333931", "true", "Warm;\nsoft"),
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


def test_records_of_algolia_have_an_id(run: Run, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text('{"objectID": "7", "name": "Lamp"}', "utf-8")
    assert run("import", tmp_path / "records.jsonl", tmp_path / "out").code == 0
    assert documents(tmp_path / "out") == [{"_id": "7", "title": "Lamp"}]


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
        ("", ":1: no header with names of columns"),
        ('id;title\na;"x\nb;y\n', ":2: a quotation mark that nothing closes"),
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


@pytest.mark.parametrize(
    ("name", "content", "bad", "contents"),
    [
        (
            "t.jsonl",
            b'{"id": "a", "title": "x"}\nnot json\n{"title": "y"}\n"caf\xe9"\n',
            [2, 3, 4],
            ["not json", None, '"caf\udce9"'],
        ),
        (
            "t.csv",
            b'id;title\na;x\nb;"y"y\nc;caf\xe9\nd;x;y;z\n',
            [3, 4, 5],
            [None, ["c", "caf\udce9"], ["d", "x", "y", "z"]],
        ),
    ],
)
def test_bad_rows_are_set_aside(
    run: Run, tmp_path: Path, name: str, content: bytes, bad: list[int], contents: list[object]
) -> None:
    source = tmp_path / name
    source.write_bytes(content)
    got = run("import", source, tmp_path / "out", "--skip-bad", "--json")
    assert (json.loads(got.out)["documents"], json.loads(got.out)["skipped"]) == (1, 3)
    lines = (tmp_path / "out/skipped.jsonl").read_text("utf-8").splitlines()
    skipped = [json.loads(line) for line in lines]
    assert [line["place"] for line in skipped] == [f"{source}:{n}" for n in bad]
    assert [line["row"].get("content") for line in skipped] == contents
    assert run("train", tmp_path / "out", "--out", tmp_path / "b", "--name", "x").code == 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('"text"', "1: not a JSON object"),
        ('{"_id": ["a"]}', "1: the id is neither text nor a number: ['a']"),
        ('{"_id": "a", "_source": null}', "1: no document: _source is null"),
        ('{"update": {"_id": "a"}}\n{"doc": null}', "2: an update without a document"),
        ('{"index": {"_id": "a"}}', "1: an action without a document"),
    ],
)
def test_a_line_without_a_document_is_bad(
    run: Run, tmp_path: Path, content: str, problem: str
) -> None:
    (tmp_path / "t.jsonl").write_text(content, "utf-8")
    got = run("import", tmp_path / "t.jsonl", tmp_path / "new/out", "--dry-run")
    assert (got.code, got.err.count("\n")) == (1, 1)
    assert f"t.jsonl:{problem}" in got.err
    got = run("import", tmp_path / "t.jsonl", tmp_path / "new/out", "--skip-bad")
    assert f"no documents; the first bad row: {tmp_path}/t.jsonl:{problem}" in got.err
    assert {path.name for path in tmp_path.iterdir()} == {"t.jsonl"}


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (
            "t.csv.gz",
            gzip.compress(b"", mtime=0)[:10] + b"\xff" * 9,
            "t.csv.gz: cannot be read: Error -3",
        ),
        (
            "trec/t.gz",
            gzip.compress(b"<DOC>", mtime=0)[:12],
            "trec/t.gz: cannot be read: Compressed",
        ),
        ("trec/t", b"<DOC>\n<DOC><DOCNO>a</DOCNO></DOC>", "trec/t:1: no </DOC> ends"),
        ("site/a.md", b"\xff", "name its encoding"),
        ("site/a.md", b"---\ntitle: [\n---\n", "site/a.md:2: cannot be read: front matter: "),
        ("t.xml", b"<url>\n<loc>http://[</loc></url>", "t.xml:1: no address in <loc>: 'http://["),
    ],
)
def test_a_damaged_file_is_named(
    run: Run, tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    source = path if path.parent == tmp_path else path.parent
    got = run("import", source, tmp_path / "out")
    assert (got.code, got.err.count("\n")) == (1, 1)
    assert problem in got.err
    assert not (tmp_path / "out").exists()


def test_a_page_that_old_parsers_refuse_is_read_or_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<![x <p>", "utf-8")
    (tmp_path / "b.html").write_text("<title>b</title>c", "utf-8")
    got = run("import", tmp_path, tmp_path / "out")
    if got.code:  # depends on the release of Python
        assert "a.html: cannot be read: unknown status" in got.err
    else:
        assert "b.html" in [one["_id"] for one in documents(tmp_path / "out")]


def test_quoted_headers_may_have_two_lines(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,"in\nstock",x\na,1,\nb,2,y"y\nb,3,\n', "utf-8")
    got = run("import", tmp_path / "t.csv", tmp_path / "out")
    assert "t.csv:5: the id 'b' occurs twice" in got.err


def test_pages_with_strange_names_and_links(run: Run, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "a#ü b.md").write_text("---\n_id: x\n---\n# A\n\n<a href='http://['>b</a>", "utf-8")
    (site / "c\td.md").write_text("# C\n\n[a](https://s.example/a%23ü%20b)", "utf-8")
    (site / "e.md").write_text("# E\n\n[a](https://s.example/a%23ü%20b)", "utf-8")
    url = ("--url", "https://s.example/{path}")
    assert run("import", site, tmp_path / "out", "--skip-bad", *url).code == 0
    first, second = documents(tmp_path / "out")
    assert (first["_id"], second["_id"]) == ("a#ü b.md", "e.md")
    assert first["url"] == "https://s.example/a%23%C3%BC%20b"
    assert table(tmp_path / "out/qrels/train.tsv")[1:] == [["e.md", "a#ü b.md", "1"]]


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

Read [how to install it](guide/install.md#on-linux "title") or <https://other.example/>.
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


def test_clicks_on_unknown_documents_are_counted(run: Run, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "p.csv", "id title", [("a", "x")])
    clicks = tmp_path / "clicks.csv"
    clicks.write_text("query,document\nx,b\n", "utf-8")
    got = run("import", source, tmp_path / "out", "--clicks", clicks)
    assert "clicks.csv: no click is on one of the documents; one is on 'b'" in got.err
    clicks.write_text("query,document\nx,b\nx,a\n", "utf-8")
    got = run("import", source, tmp_path / "out", "--clicks", clicks, "--json")
    assert json.loads(got.out)["clicks"]["unknown documents"] == 1


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
            "page": "API & more",
            "text": "See the guide.\nDone",
            "headings": ["Calls"],
            "url": "https://docs.example/api/",
        },
        {
            "_id": "guide/install.md",
            "title": "Install",
            "page": "Install",
            "text": "",
            "headings": ["On Linux"],
            "url": "https://docs.example/guide/install/",
        },
        {
            "_id": "guide/install.md#on-linux",
            "title": "On Linux",
            "page": "Install",
            "text": "Use apt. Back to the start.\na\nb\nc\nx",
            "page_context": "On Linux",
            "url": "https://docs.example/guide/install/#on-linux",
        },
        {
            "_id": "index.md",
            "tags": ["start", "here"],
            "date": "2026-05-01",
            "title": "Home",
            "page": "Home",
            "text": "Read how to install it or https://other.example/.",
            "headings": ["Welcome"],
            "url": "https://docs.example/",
        },
    ]
    assert table(out / "qrels/train.tsv") == [
        ["query-id", "corpus-id", "score"],
        ["api.html", "guide/install.md", "1"],
        ["guide/install.md#on-linux", "index.md", "1"],
        ["index.md", "guide/install.md#on-linux", "1"],
    ]
    assert table(out / "anchors.tsv")[1:] == [
        ["the guide", "guide/install.md"],
        ["start", "index.md"],
        ["how to install it", "guide/install.md#on-linux"],
    ]


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
    assert "--url is for pages" in run("import", source, tmp_path / "o", "--url", "x").err


def test_anchors_of_html_and_front_matter_of_hugo(run: Run, tmp_path: Path) -> None:
    """As Sphinx (sections), Hugo and GitHub (own links) and old pages (names) write anchors."""
    site = tmp_path / "site"
    site.mkdir()
    body = """<title>Page - Site</title><meta charset="cp1252"><h1 id="top">Page</h1><p>Café
<section id="setup"><h2>Set up<a class="headerlink" href="#setup">¶</a></h2><p>first</section>
<h2 id="setup">Again</h2><p>under the same anchor
<h3><a name="in-c"></a>In C#</h3>second <h2>No anchor</h2>third
<h4>Use <a href="#use-it">#</a></h4>"""
    (site / "a.html").write_text(body, "cp1252")
    (site / "404.html").write_text("<h1>Gone</h1>", "utf-8")
    (site / "b.md").write_text(
        '+++\ntitle = "B"\ntags = ["x"]\ndescription = "All of B"\n+++\n## One {#eins}\n## Two\n## Two\n'
        "## Three { #drei .wide }\n## Four {: .wide }\n## Set {a, b}\n",
        "utf-8",
    )
    assert run("import", site, tmp_path / "out").code == 0
    found = {document["_id"]: document for document in documents(tmp_path / "out")}
    assert {id: (document["title"], document["text"]) for id, document in found.items()} == {
        "a.html": ("Page", "Café"),
        "a.html#setup": ("Set up", "first\nAgain\nunder the same anchor"),
        "a.html#in-c": ("In C#", "second\nNo anchor\nthird"),
        "a.html#use-it": ("Use", ""),
        "b.md": ("B", ""),
        "b.md#eins": ("One", ""),
        "b.md#two": ("Two", ""),
        "b.md#two-1": ("Two", ""),
        "b.md#drei": ("Three", ""),
        "b.md#four": ("Four", ""),
        "b.md#set-a-b": ("Set {a, b}", ""),
    }
    assert found["a.html"]["headings"] == ["Set up", "Again", "In C#", "No anchor", "Use"]
    assert found["b.md"]["description"] == "All of B"
    assert found["b.md#two"] == {
        "_id": "b.md#two", "tags": ["x"], "title": "Two", "page": "B", "text": "",
        "page_context": "One\nTwo\nTwo\nThree\nFour\nSet {a, b}",
    }  # fmt: skip


def test_each_passage_repeats_the_lead_and_the_headings_of_its_page(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    words, parts = [f"w{i}" for i in range(50)], [f"Part {i}" for i in range(50)]
    page = "\n\n".join(["# Long", " ".join(words), *(f"## {part}\nText" for part in parts)])
    (tmp_path / "site" / "long.md").write_text(page, "utf-8")
    assert run("import", tmp_path / "site", tmp_path / "out").code == 0
    first, *rest = documents(tmp_path / "out")
    assert first["headings"] == parts
    assert "page_context" not in first
    assert {document["page_context"] for document in rest} == {
        "\n".join([" ".join(words[:30]), *parts[:40]])
    }


SITEMAP = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>https://docs.example/v2/guide/</loc><lastmod>2026-03-01</lastmod></url>
<url><loc>https://docs.example/v2/</loc></url>
<url><loc>https://docs.example/v2/gone.html</loc></url>
</urlset>
"""


def test_a_sitemap_gives_pages_their_order_url_and_date(run: Run, tmp_path: Path) -> None:
    link = "<a href='https://docs.example/v2/#x'>home</a>"
    for name in ("index.html", "guide/index.html", "404.html"):
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(
            f"<title>{name}</title><h2 id=x>X</h2>{link}", "utf-8"
        )
    sitemap = tmp_path / "site/sitemap.xml"
    sitemap.write_text(SITEMAP, "utf-8")
    got = run("import", sitemap, tmp_path / "out")
    assert f"{sitemap}:5: no page beside the sitemap for https://docs.example/v2/gone" in got.err
    got = run("import", sitemap, tmp_path / "out", "--skip-bad", "--json")
    assert json.loads(got.out)["skipped"] == 1
    assert [(d["_id"], d["url"], d.get("lastmod")) for d in documents(tmp_path / "out")] == [
        ("guide/index.html", "https://docs.example/v2/guide/", "2026-03-01"),
        ("guide/index.html#x", "https://docs.example/v2/guide/#x", "2026-03-01"),
        ("index.html", "https://docs.example/v2/", None),
        ("index.html#x", "https://docs.example/v2/#x", None),
    ]
    assert table(tmp_path / "out/anchors.tsv")[1:] == [["home", "index.html#x"]]
    url = "<url><loc>https://docs.example/v2/404.html</loc></url>"
    sitemap.write_text(f"<urlset>{url}</urlset>", "utf-8")
    assert run("import", sitemap, tmp_path / "one").code == 0
    sitemap.write_text(SITEMAP, "utf-8")
    index = tmp_path / "site/index.xml"
    for listed, reason in (
        ("sitemap.xml", "no page beside"),
        ("index.xml", "may list pages alone"),
    ):
        loc = f"<sitemap><loc>https://docs.example/v2/{listed}</loc></sitemap>"
        index.write_text(f"<sitemapindex>{loc}</sitemapindex>", "utf-8")
        assert reason in run("import", index, tmp_path / "twice").err


def test_parquet_and_sql_become_documents(run: Run, tmp_path: Path) -> None:
    rows = [
        {
            "sku": i, "name": f"Lamp {i}", "price": Decimal(f"{i}.50"), "added": date(2026, 1, i + 1),
            "tags": ["red", "warm"], "size": float("nan"), "note": None,
        }
        for i in range(3)
    ]  # fmt: skip
    expected = [
        {
            "_id": f"{i}", "title": f"Lamp {i}", "price": i + 0.5, "added": f"2026-01-0{i + 1}",
            "tags": ["red", "warm"],
        }
        for i in range(3)
    ]  # fmt: skip
    parquet = tmp_path / "lamps.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), parquet)
    found = json.loads(run("import", parquet, tmp_path / "a", "--json").out)
    assert found["columns"] == {
        "sku": "_id", "name": "title", "price": "number", "added": "date", "tags": "list",
        "size": "number", "note": "text",
    }  # fmt: skip
    assert documents(tmp_path / "a") == expected
    address = f"sqlite:///{tmp_path / 'lamps.db'}"
    with closing(sqlite3.connect(tmp_path / "lamps.db")) as database, database:
        database.execute("CREATE TABLE lamps (sku INTEGER, name TEXT, price REAL, added TEXT)")
        lines = [(i, f"Lamp {i}", i + 0.5, f"2026-01-0{i + 1}") for i in range(3)]
        database.executemany("INSERT INTO lamps VALUES (?, ?, ?, ?)", lines)
    got = run("import", address, tmp_path / "b", "--query", "SELECT * FROM lamps")
    assert got.code == 0, got.err
    assert documents(tmp_path / "b") == [
        {k: v for k, v in row.items() if k != "tags"} for row in expected
    ]
    for source, options, problem in (
        (address, (), "say what to select with --query"),
        (address, ("--query", "SELECT * FROM lamp"), f"{address}: (sqlite3.OperationalError) no"),
        ("nosuch://x", ("--query", "x"), "nosuch: Can't load plugin"),
        (tmp_path / "lamps.db.parquet", (), "cannot be read: "),
    ):
        got = run("import", source, tmp_path / "c", *options)
        assert (got.code, got.err.count("\n")) == (1, 1), got.err
        assert problem in got.err


@pytest.mark.server
def test_tables_of_postgresql_become_documents(
    run: Run, tmp_path: Path, new_database: NewDatabase
) -> None:
    """With types that SQLite has not, and the marks of parameters in the query."""
    address = new_database()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE lamps (id int, name text, tags text[], more jsonb)")
        connection.execute("ALTER TABLE lamps ADD price numeric(6, 2), ADD added timestamptz")
        row = """(1, '100 % Lamp', '{red,"night light"}', '{"w": 5}', 3.50, '2026-01-02 03:04Z')"""
        connection.execute(f"INSERT INTO lamps VALUES {row}".encode())
        connection.execute("INSERT INTO lamps VALUES (2, 'Chair')")
    source = address.replace("postgresql://", "postgresql+psycopg://")
    query = "SELECT * FROM lamps WHERE name LIKE '%a%' AND 'x:y' <> name ORDER BY id"
    got = run("import", source, tmp_path / "out", "--query", query)
    assert got.code == 0, got.err
    lamp, chair = documents(tmp_path / "out")
    assert lamp.pop("added").startswith("2026-01-02T03:04:00")
    assert lamp == {
        "_id": "1", "title": "100 % Lamp", "tags": ["red", "night light"], "more": {"w": 5}, "price": 3.5,
    }  # fmt: skip
    assert chair == {"_id": "2", "title": "Chair"}


@pytest.mark.parametrize("name", ["pyarrow", "sqlalchemy"])
def test_a_missing_package_names_the_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    source = tmp_path / "x.parquet" if name == "pyarrow" else "sqlite://"
    got = run("import", source, tmp_path / "out", *(("--query", "x") if name != "pyarrow" else ()))
    assert got.err == f"fullrank: needs {name}; install it with: pip install 'fullrank[import]'\n"


def test_dumps_of_search_engines_become_documents(run: Run, tmp_path: Path) -> None:
    """Requests to _bulk, and the lines that elasticdump writes."""
    lines = [
        {"index": {"_index": "shop", "_id": "a"}},
        {"name": "Lamp", "tags": ["red"]},
        {"delete": {"_index": "shop", "_id": "z"}},
        {"update": {"_id": "b"}},
        {"doc": {"name": "Chair"}},
        {"_index": "shop", "_type": "_doc", "_id": "c", "_score": 1, "_source": {"name": "Table"}},
    ]
    source = tmp_path / "shop.json"
    source.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    assert run("import", source, tmp_path / "out").code == 0
    assert documents(tmp_path / "out") == [
        {"_id": "a", "title": "Lamp", "tags": ["red"]},
        {"_id": "b", "title": "Chair"},
        {"_id": "c", "title": "Table"},
    ]
    source.write_text(json.dumps(lines), "utf-8")
    assert (
        "shop.json:1: an array; write one document a line"
        in run("import", source, tmp_path / "x").err
    )


def test_a_folder_of_beir_becomes_a_judged_collection(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "beir"
    (source / "qrels").mkdir(parents=True)
    corpus = [{"_id": "d1", "title": "T", "text": "x", "metadata": {}}, {"_id": "d2", "text": "y"}]
    (source / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), "utf-8")
    (source / "queries.jsonl").write_text('{"_id": "q1", "text": "t", "metadata": {}}\n', "utf-8")
    for split in ("train", "dev"):
        lines = "query-id\tcorpus-id\tscore\nq1\td1\t2\n"
        (source / "qrels" / f"{split}.tsv").write_text(lines, "utf-8")
    assert run("import", source, tmp_path / "out").code == 0
    assert documents(tmp_path / "out") == [{"_id": "d1", "title": "T", "text": "x"}, corpus[1]]
    for split in ("train", "valid"):
        assert table(tmp_path / f"out/qrels/{split}.tsv")[1:] == [["q1", "d1", "2"]]
    assert (tmp_path / "out/queries.jsonl").read_text("utf-8") == '{"_id": "q1", "text": "t"}\n'


TREC = {
    "docs/a.sgml": "<DOC>\n<DOCNO> FT-1 </DOCNO>\n<HEADLINE>Fish &amp; chips</HEADLINE>\n"
    "<TEXT>\n<P>Hot\n</P>\n</TEXT>\n</DOC>\n",
    "docs/b.sgml.gz": "<DOC><DOCNO>FT-2</DOCNO>\n<TEXT>Cold</TEXT>\n<TEXT>peas</TEXT></DOC>\n",
    "topics.301-302": "<top>\n<num> Number: 301\n<title> hot fish\n\n<desc> Description:\nWhere?\n</top>\n"
    "<top>\n<num> Number: 302 \n<title> Topic: peas\n</top>\n",
    "topics.xml": '<topics><topic number="1"><query>cold</query><question>?</question></topic></topics>',
    "qrels.test.txt": "301 0 FT-1 1\n302 0 FT-2 2\n301 0 FT-2 0\n",
    "qrels.train.txt": "1 0 FT-2 1\n",
    "readme": "Disk 5",
}


def test_documents_topics_and_qrels_of_trec_become_a_judged_collection(
    run: Run, tmp_path: Path
) -> None:
    for name, content in TREC.items():
        path = tmp_path / "trec" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    out = tmp_path / "out"
    got = run("import", tmp_path / "trec", out)
    assert got.code == 0, got.err
    assert documents(out) == [
        {"_id": "FT-1", "title": "Fish & chips", "text": "Hot"},
        {"_id": "FT-2", "text": "Cold\npeas"},
    ]
    queries = (out / "queries.jsonl").read_text("utf-8").splitlines()
    assert [(q["_id"], q["text"]) for q in map(json.loads, queries)] == [
        ("301", "hot fish"), ("302", "peas"), ("1", "cold")
    ]  # fmt: skip
    assert table(out / "qrels/train.tsv")[1:] == [["1", "FT-2", "1"]]
    assert table(out / "qrels/test.tsv")[1:] == [
        ["301", "FT-1", "1"], ["302", "FT-2", "2"], ["301", "FT-2", "0"]
    ]  # fmt: skip
    (tmp_path / "trec/qrels.test.txt").write_text("301 0 FT-1 1\n301 0 FT-2 yes\n", "utf-8")
    got = run("import", tmp_path / "trec", tmp_path / "x")
    assert "qrels.test.txt:2: expected a query, a document and a grade: '301 0 FT-2 yes'" in got.err


def test_titles_of_other_types_become_text(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "t.jsonl"
    lines = [
        {"id": 1, "title": 1984},
        {"id": 2, "title": ["a", "b"]},
        {"id": 3, "title": {"en": 1}},
    ]
    source.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    assert (
        "t.jsonl:3: field 'title': expected text, got object"
        in run("import", source, tmp_path / "out").err
    )
    assert run("import", source, tmp_path / "out", "--skip-bad").code == 0
    assert [d["title"] for d in documents(tmp_path / "out")] == ["1984", "a\nb"]


# From files of real size to answers, by the two commands of the tutorials, whose small files tests/docs runs.


def first_hit(run: Run, bundle: str, query: str, *source: str) -> dict[str, Any]:
    collection = bundle.removeprefix("bundles/")
    train = ("train", collection, "--out", "bundles", "--name", collection)
    for command in (("import", source[0], collection, *source[1:]), train):
        got = run(*command)
        assert got.code == 0, got.err
    hit: dict[str, Any] = json.loads(run("search", bundle, query, "--json").out)["hits"][0]
    return hit


COLOURS = ("red", "green", "blue", "white", "black")
NAMES = ("oak", "brass", "glass", "marble", "cork", "linen", "bamboo")
SLANG = ("woody", "shiny", "clear", "heavy", "squishy", "cosy", "jungle")


@pytest.mark.slow
def test_two_commands_lead_from_a_table_to_answers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    size = 48_000
    rows = (
        (
            f"P{i}",
            f"{COLOURS[i % 5]} lamp",
            f"<p>With {NAMES[i // 5 % 7]} feet, model {NAMES[i % 7]}{i}.</p>",
            i / 4,
        )
        for i in range(size)
    )
    write_csv(tmp_path / "products.csv", "sku name description price", rows, "utf-8-sig")
    last = size - 1
    query = f"{COLOURS[last % 5]} lamp {NAMES[last % 7]}{last}"
    hit = first_hit(run, "bundles/shop", query, "products.csv")
    assert hit["id"] == f"P{last}"
    assert hit["fields"]["price"] == last / 4


@pytest.mark.slow
def test_two_commands_lead_from_a_table_and_clicks_to_answers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People ask for products by names that no product has."""
    monkeypatch.chdir(tmp_path)
    products = [(f"P{i}", f"{COLOURS[i % 5]} {NAMES[i // 5 % 7]} lamp {i}") for i in range(437)]
    write_csv(tmp_path / "products.csv", "sku name", products)
    draw = random.Random(0)
    with (tmp_path / "clicks.csv").open("w", encoding="utf-8", newline="") as file:
        clicks = csv.writer(file)
        clicks.writerow(("user", "query", "sku", "time"))
        for i in range(33_000):
            n = min(int(draw.expovariate(1 / 80)), 436)
            clicks.writerow(
                (f"u{i % 5_000}", f"the {SLANG[n // 5 % 7]} {n}", f"P{n}", 1_700_000_000 + 60 * i)
            )
    hit = first_hit(run, "bundles/shop", f"{SLANG[2]} 12", "products.csv", "--clicks", "clicks.csv")
    assert hit["fields"]["title"].split()[1] == NAMES[2]


@pytest.mark.slow
def test_two_commands_lead_from_a_site_to_answers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    size = 300
    (tmp_path / "site/guide").mkdir(parents=True)
    for i in range(size):
        n = (7 * i + 1) % size
        link = f"[bulbs of {SLANG[n % 7]} {n}](../guide/page-{n}.html#repair-{COLOURS[n % 5]}-{n})"
        (tmp_path / f"site/guide/page-{i}.md").write_text(
            f"---\ndescription: How to fit {NAMES[i % 7]} lamp {i}\n---\n# Lamp {i}\n\n"
            f"About {NAMES[i % 7]}.\n\n## Repair {COLOURS[i % 5]} {i}\n\nTake care. See {link}.\n",
            "utf-8",
        )
    hit = first_hit(
        run,
        "bundles/docs",
        f"repair {COLOURS[3]} 8",
        "site",
        "--url",
        "https://docs.example/{path}/",
    )
    assert hit["id"] == f"guide/page-8.md#repair-{COLOURS[3]}-8"
    assert hit["fields"]["url"] == f"https://docs.example/guide/page-8/#repair-{COLOURS[3]}-8"
