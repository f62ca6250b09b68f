"""From the command line to searches: fields that are read are found, fields that are only stored are not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fullrank import cli
from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import TrainingError
from fullrank.live import Operation, View
from fullrank.progress import Reporter
from fullrank_trainer.indexing import index
from fullrank_trainer.train import train
from tests.planted import write_lines
from tests.shop import product, write_shop

pytestmark = pytest.mark.usefixtures("one_thread")

Train = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def run_train(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Train:
    """Runs ``fullrank train`` with BM25; returns the exit code, the events and stderr."""

    def call(*arguments: str | Path) -> tuple[int, list[dict[str, Any]], str]:
        asked = [
            "train",
            *map(str, arguments),
            "--out",
            str(tmp_path / "bundles"),
            "--name",
            "shop",
        ]
        asked += ["--recipe", "bm25", "--threads", "1", "--json"]
        monkeypatch.setattr(sys, "argv", ["fullrank", *asked])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        error = capsys.readouterr().err
        code = exit_.value.code
        lines = [json.loads(line) for line in error.splitlines() if line.startswith("{")]
        return (code if isinstance(code, int) else 0), lines, error

    return call


def matched(bundle: Bundle, query: str) -> set[str]:
    """The documents that share a word with the query."""
    return {hit.id for hit in bundle.search(query, limit=100) if hit.score > 0}


def having(**wanted: str) -> set[str]:
    """The documents of the shop with these values."""
    lines = [product(i, "en") for i in range(30)]
    return {
        line["_id"] for line in lines if all(line[name] == value for name, value in wanted.items())
    }


def test_the_rule_is_reported_and_kept_and_followed(run_train: Train, tmp_path: Path) -> None:
    code, lines, _ = run_train(write_shop(tmp_path / "shop"))
    assert code == 0
    [event] = [line for line in lines if line["event"] == "fields"]
    assert event["read"] == (
        "title (always read), text (always read), brand (66 % words), category (words), colour (words), "
        "tags (words)"
    )
    assert "sku (codes), date (dates), image (links)" in event["stored"]
    bundle = open_bundle(next((tmp_path / "bundles" / "shop").iterdir()))
    kept = {field["name"]: field for field in bundle.card["collection"]["fields"]}
    assert kept["brand"] == {"name": "brand", "is_read": True, "reason": "66 % words"}
    assert kept["sku"] == {"name": "sku", "is_read": False, "reason": "codes"}
    assert len(kept) == len(product(0, "en")) - 1
    assert matched(bundle, "salomon") == having(brand="Salomon") != set()
    assert matched(bundle, "camping") == having(category="Camping") != set()
    assert len(matched(bundle, "outdoor")) == 30  # a word of the lists
    for stored in (product(7, "en")["sku"], "cdn.example.com", "2024-01-01", "img jpg"):
        assert matched(bundle, stored) == set()
    assert matched(bundle, "salomn") == matched(bundle, "salomon")  # a typing error
    # What is not searched is still stored.
    assert bundle.search("tent", limit=1)[0].fields["sku"]


def test_asked_fields_and_the_schema_are_followed(run_train: Train, tmp_path: Path) -> None:
    folder = write_shop(tmp_path / "shop")
    schema = {"fields": {"sku": "text", "brand": "stored"}}
    (folder / "schema.json").write_text(json.dumps(schema))
    code, lines, _ = run_train(folder)
    assert code == 0
    [event] = [line for line in lines if line["event"] == "fields"]
    assert "sku (schema.json)" in event["read"]
    assert "brand (schema.json)" in event["stored"]
    [path] = (tmp_path / "bundles" / "shop").iterdir()
    bundle = open_bundle(path)
    assert matched(bundle, "salomon") == set()
    assert matched(bundle, product(7, "en")["sku"]) >= {"p0007"}
    code, lines, _ = run_train(folder, "--fields", "brand,title")
    assert code == 0
    [event] = [line for line in lines if line["event"] == "fields"]
    assert event["read"] == "brand (asked for), title (asked for)"
    [other] = set((tmp_path / "bundles" / "shop").iterdir()) - {path}
    bundle = open_bundle(other)
    assert matched(bundle, "salomon") == having(brand="Salomon")
    assert matched(bundle, "camping") == set()
    assert bundle.model.query_text(product(5, "en")) == "Salomon\nRunning shoe navy blue"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("title,brnd", "fields: no document has a field 'brnd'; did you mean 'brand'?"),
        ("boxes", "fields: field 'boxes' cannot be read: document 'p0000' has lists there;"),
        (" , ", "fields: name at least one text field"),
        ("note", "no document has a text field that is read; only stored: title (not asked for)"),
    ],
)
def test_bad_fields_are_one_line(
    fields: str, message: str, run_train: Train, tmp_path: Path
) -> None:
    code, _, error = run_train(write_shop(tmp_path / "shop"), "--fields", fields)
    assert code == 1
    assert message in error.splitlines()[-1]
    assert not (tmp_path / "bundles").exists()


def test_a_schema_that_stores_everything_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "corpus.jsonl", [{"_id": "a", "title": "ant", "text": "bee"}])
    schema = {"fields": {"title": "stored", "text": "stored"}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(TrainingError, match=r"title \(schema\.json\), text \(schema\.json\)"):
        train(tmp_path, tmp_path / "bundles", "x", recipe="bm25")


def test_indexing_follows_the_bundle_not_the_corpus(tmp_path: Path) -> None:
    """The corpus would have other text fields by the rule; its schema is not asked."""
    folder = write_shop(tmp_path / "shop")
    out = tmp_path / "bundles"
    made = train(folder, out, "shop", recipe="bm25", threads=1, fields=["brand", "text"]).path
    new = [{"_id": "x", "title": "Umbrella", "brand": "Nike", "text": "", "sku": "B7"}]
    write_lines(tmp_path / "new" / "corpus.jsonl", [*new, {"_id": "y", "text": "Rain jacket nike"}])
    (tmp_path / "new" / "schema.json").write_text('{"fields": {"brand": "stored"}}')
    bundle = open_bundle(index(made, tmp_path / "new", out, "new", processes=1).path)
    assert matched(bundle, "nike") == {"x", "y"}
    assert matched(bundle, "umbrella b7") == set()


def test_values_of_mixed_types_do_not_stop_training(tmp_path: Path) -> None:
    lines = [{"_id": f"d{i}", "text": f"word{i} bee", "code": i or "none"} for i in range(9)]
    write_lines(tmp_path / "corpus.jsonl", lines)
    made = train(tmp_path, tmp_path / "bundles", "x", recipe="bm25", threads=1)
    [_, code] = open_bundle(made.path).card["collection"]["fields"]
    assert code == {"name": "code", "is_read": False, "reason": "text and numbers"}


@pytest.mark.parametrize("recipe", ["bm25", "auto"])
def test_words_of_a_name_weigh_as_often_as_the_setting_says(recipe: str, tmp_path: Path) -> None:
    lines = [
        {"_id": "named", "name": "lamp", "text": "oak desk shelf"},
        {"_id": "told", "name": "shelf", "text": "oak lamp desk"},
        {"_id": "other", "name": "chair", "text": "pine seat back"},
    ]
    write_lines(tmp_path / "corpus.jsonl", lines)
    scores = []
    for weight in (1, 3):
        path = train(
            tmp_path, tmp_path / "bundles", "shop", recipe=recipe, overrides=[f"title={weight}"]
        ).path
        bundle = open_bundle(path)
        hits = {hit.id: hit.score for hit in bundle.search("lamp")}
        live = View.of(bundle).apply([Operation(1, "live", {**lines[0], "text": "oak desk shelf"})])
        [new, *_] = live.search(live.model.encode_queries(["lamp"]), 2).hits
        # A document that is written later weighs the same.
        assert new.score == pytest.approx(hits["named"], rel=1e-5)
        scores.append(hits)
    assert scores[0]["named"] == pytest.approx(scores[0]["told"])
    # BM25 of 3 and of 1 of 6 words, where the mean is 6: 3 · 2.2 / (3 + 1.2) against 1.
    assert scores[1]["named"] / scores[1]["told"] == pytest.approx(6.6 / 4.2, rel=1e-5)


NAMES = {
    "d": "Dawn of Sails II",
    "e": "Dawn of Sails 4 gold",
    "f": "Cell phone case",
    "g": "Drive 40GB",
    "h": "Drive 500 ml bottle",
    "i": 'Screen 50"',
    "j": "Oak desk",
}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("cellphone", "f"), ("cell phone", "f"), ("cellphones", "f"), ("dawnof sails", "d"), ("dos", "d"),
        ("dos 4", "e"), ("dawn 2", "d"), ("dawn iv", "e"), ("40 gb", "g"), ("40gb", "g"), ("500ml", "h"),
        ("50in", "i"), ("50 inch", "i"), ('50" screen', "i"), ("50-inch", "i"), ("screens", "i"),
    ],
)  # fmt: skip
def test_names_are_found_as_people_write_them(query: str, wanted: str, shortened: Bundle) -> None:
    assert shortened.search(query)[0].id == wanted
    assert shortened.search(query)[0].score > 0


def test_letters_that_begin_one_title_alone_are_no_word(shortened: Bundle) -> None:
    assert matched(shortened, "cpc") == set()
    assert not matched(
        open_bundle(write_names(shortened.path.parents[1], "title_forms=false")), "dos"
    )


def write_names(root: Path, *overrides: str) -> Path:
    """Train BM25 on names."""
    write_lines(root / "corpus.jsonl", [{"_id": id, "name": name} for id, name in NAMES.items()])
    quiet = Reporter(quiet=True)
    return train(root, root / "b", "shop", recipe="bm25", overrides=overrides, reporter=quiet).path


@pytest.fixture(scope="module")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return open_bundle(write_names(tmp_path_factory.mktemp("names")))


def test_markup_becomes_text_and_blank_values_are_missing(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"_id": "a", "title": "Fish &amp; chips&#33;", "text": "<p>with <b class=x>p</b>eas</p>", "colour": " "},
        {"_id": "b", "title": "press <p>", "text": "vector<int> a < b & c", "colour": "", "note": None},
        {"_id": "c", "title": "soup", "text": "<br>", "colour": "red"},
        {"_id": "d", "title": "x", "text": "<style>p{}</style><section>y<!-- z --></section>", "colour": "w",
         "tags": ["<i>w</i>"]},
    ]  # fmt: skip
    write_lines(tmp_path / "corpus.jsonl", lines)
    quiet = Reporter(quiet=True)
    bundle = open_bundle(
        train(tmp_path, tmp_path / "b", "shop", recipe="bm25", reporter=quiet).path
    )
    assert bundle.documents.fields(0) == {"title": "Fish & chips!", "text": " with peas "}
    assert bundle.documents.fields(3) == {
        "title": "x",
        "text": "  y  ",
        "colour": "w",
        "tags": ["w"],
    }
    # Neither is markup.
    assert bundle.documents.fields(1) == {
        "title": "press <p>",
        "text": "vector<int> a < b & c",
        "note": None,
    }
    assert matched(bundle, "peas") == {"a"}
    assert matched(bundle, "amp") == set()
    missing = {"colour": {"exists": False}}
    assert {hit.id for hit in bundle.search("soup", filter=missing, min_score=-1)} == {"a", "b"}
    # `fullrank index` reads documents in the same way.
    other = index(bundle.path, tmp_path, tmp_path / "b", "other", reporter=quiet)
    assert open_bundle(other.path).documents.fields(0)["title"] == "Fish & chips!"


def test_the_part_of_titles_reads_titles_and_anchors_alone(tmp_path: Path) -> None:
    lines = [{"_id": f"p{i}", "title": f"page {i}", "text": f"word{i} oak lamp"} for i in range(9)]
    lines.append({"_id": "sails", "title": "Dawn of Sails IX", "text": "oak"})
    write_lines(tmp_path / "corpus.jsonl", lines)
    (tmp_path / "anchors.tsv").write_text(
        "anchor\tcorpus-id\n" + "".join(f"see{i}\tp3\n" for i in range(30))
    )
    made = train(tmp_path, tmp_path / "bundles", "x", recipe="titles", threads=1)
    bundle = open_bundle(made.path)
    assert [hit.id for hit in bundle.search("5")] == ["p5"]
    assert [hit.id for hit in bundle.search("9")] == ["sails"]
    assert not bundle.search("word5").hits
    learned = str(bundle.documents.fields(3)["anchors"]).split("\n")
    assert len(learned) >= 20
    assert all([hit.id for hit in bundle.search(text)] == ["p3"] for text in learned)
    write_lines(tmp_path / "corpus.jsonl", [{"_id": "p0", "text": "oak"}])
    (tmp_path / "anchors.tsv").unlink()
    with pytest.raises(TrainingError, match="the documents have no title, name or anchors"):
        train(tmp_path, tmp_path / "bundles", "x", recipe="titles", threads=1)
