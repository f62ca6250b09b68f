"""Live documents follow the fields of the bundle: text fields are found, stored fields are not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numba
import pytest

from fullrank_trainer.train import train
from tests.api.support import Client, running
from tests.shop import product, write_shop

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("few_made_up_words")]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the shop that reads title, text, brand, category, colour and tags."""
    folder = tmp_path_factory.mktemp("shop")
    before = numba.get_num_threads()
    train(write_shop(folder / "shop"), folder / "bundles", "shop", recipe="bm25", threads=1)
    numba.set_num_threads(before)
    return folder / "bundles"


@pytest.fixture
async def shop(bundles: Path, tmp_path: Path) -> AsyncIterator[Client]:
    root = tmp_path / "bundles"
    root.mkdir()
    (root / "shop").symlink_to(bundles / "shop")
    async with running(root, data=tmp_path / "data") as client:
        yield client


async def found(client: Client, query: str, seq: int) -> set[str]:
    """The documents that share a word with the query."""
    hits = (await client.search(query, limit=100, min_seq=seq))["hits"]
    return {hit["id"] for hit in hits if hit["score"] > 0}


async def put(client: Client, fields: dict[str, Any]) -> httpx.Response:
    return await client.put("/v1/documents/new", json=fields)


async def test_text_fields_are_found_and_stored_fields_are_not(shop: Client) -> None:
    fields = {
        "brand": "Quechua",
        "category": "Camping",
        "sku": "ZZZ999",
        "handle": "qux-quux-corge",
        "tags": ["waterproof", "light"],
    }
    seq = await shop.write("new", fields)
    assert await found(shop, "quechua", seq) == {"new"}
    assert await found(shop, "waterproof", seq) == {"new"}
    assert "new" in await found(shop, "camping", seq)
    assert await found(shop, "ZZZ999 qux corge", seq) == set()
    stored = await shop.get("/v1/documents/new")
    assert stored.json()["fields"] == fields


async def test_a_document_of_stored_fields_only_is_refused(shop: Client) -> None:
    line = product(3, "en")
    stored = {name: line[name] for name in ("sku", "date", "image", "isbn", "handle", "language")}
    response = await put(shop, stored)
    assert response.status_code == 409
    assert response.json()["type"].endswith("document-not-accepted")
    assert (
        "No text to search for: fill one of the fields 'brand', 'category', 'colour', 'tags', 'text', 'title'"
        in response.json()["detail"]
    )


async def test_a_searched_category_stays_a_filter(shop: Client) -> None:
    """A long value would take the field from the filters of all documents; a long title would not."""
    response = await put(shop, {"text": "x", "category": "c" * 300})
    assert response.status_code == 409
    assert "'category' is used in filters, but it holds text longer" in response.json()["detail"]
    assert (await put(shop, {"text": "x " * 300, "category": "New"})).status_code == 200
    body = {"query": "tent", "filter": {"category": "Camping"}, "limit": 100}
    response = await shop.post("/v1/search", json=body)
    assert response.json()["total"] == 6


async def test_a_line_takes_no_field_from_the_filters_of_those_before_it(shop: Client) -> None:
    lines = [
        {"_id": "y1", "title": "zebra", "pattern": "striped"},
        {"_id": "y2", "title": "zebra", "pattern": {"a": 1}},
        {"_id": "y3", "title": "zebra", "pattern": ["plain", "dotted"]},
    ]
    response = await shop.post(
        "/v1/documents:bulk",
        content="".join(json.dumps(line) + "\n" for line in lines),
        headers={"Content-Type": "application/x-ndjson"},
    )
    verdicts = [json.loads(line) for line in response.text.splitlines()]
    assert [verdict["status"] for verdict in verdicts] == [200, 422, 200]
    assert "'pattern' is used in filters by an earlier line" in verdicts[1]["error"]
    body = {"query": "zebra", "filter": {"pattern": "striped"}, "min_seq": verdicts[2]["seq"]}
    response = await shop.post("/v1/search", json=body)
    assert [hit["id"] for hit in response.json()["hits"]] == ["y1"], response.text
