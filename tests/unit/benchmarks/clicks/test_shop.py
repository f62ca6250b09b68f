"""The benchmark of a shop: how the log is cut, what a click counts, and what the peers know."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks.clicks.shop import Shop, failed, later, peers, read_shop, write_collection
from fullrank_trainer.collection import read_collection


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    (tmp_path / "products.csv").write_text("sku,name\n1,red kettle\n2,blue kettle\n3,oak table\n")
    clicks = [("Kettle", "2")] * 6 + [("table", "3")] * 2 + [("kettle ", "2"), ("blue", "2")]
    lines = [
        "query,sku,user,time",
        *(f"{q},{d},u,2024-01-{i:02}" for i, (q, d) in enumerate(clicks)),
    ]
    with gzip.open(tmp_path / "clicks.csv.gz", "wt") as file:
        file.write("\n".join(reversed(lines[1:])).join([lines[0] + "\n", "\n"]))
    return read_shop(tmp_path, "test")


def test_the_last_clicks_are_predicted(shop: Shop) -> None:
    assert [click.query for click in shop.learned] == ["kettle"] * 6 + ["table"] * 2
    assert [click.query for click in shop.predicted] == ["kettle", "blue"]


def test_a_click_counts_one_over_its_rank(shop: Shop) -> None:
    found = shop.figures(lambda query: ["1", "2"] if query == "kettle" else ["2"])
    assert found == {"all": 0.75, "new": 1.0}


def test_an_order_that_knows_the_later_clicks_misses_none(shop: Shop) -> None:
    assert shop.figures(later(shop)) == {"all": 1.0, "new": 1.0}


def test_failed_clicks_say_what_was_clicked_before(shop: Shop) -> None:
    table = failed(shop, lambda query: ["3"] if query == "kettle" else ["2"], 5)
    assert "1 of 1 clicks" in table.title
    assert list(table.rows) == [["kettle", "6", "blue kettle", "6", "oak table", "0"]]


def test_peers_with_more_counts_rank_what_was_clicked_first(shop: Shop, tmp_path: Path) -> None:
    products = write_collection(shop, tmp_path / "products", clicks=False)
    ranked = {name: search("kettle") for name, search in peers(shop, products).items()}
    assert ranked["bm25s"][:2] == ["1", "2"]
    assert ranked["bm25s + popularity"][0] == "2"
    assert ranked["bm25s + popularity + clicks"][0] == "2"


def test_the_collection_says_how_often(shop: Shop, tmp_path: Path) -> None:
    found = read_collection(write_collection(shop, tmp_path / "clicks", clicks=True))
    queries = {query.text: query.id for query in found.queries or []}
    assert found.weights["train"][queries["kettle"]] == {"2": 6.0}
