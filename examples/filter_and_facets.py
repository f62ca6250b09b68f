"""Filter by stored fields and count their values, over HTTP.

    python -m examples.filter_and_facets

Shows that a filter decides which documents are ranked and never changes a score, and that facets count all matching
documents.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from examples.shop import serving, train_bm25


def main(folder: Path) -> None:
    """Search all rain products, then those of two brands below a price."""
    train_bm25(folder)
    with serving(folder / "bundles") as client:

        def search(**body: Any) -> dict[str, Any]:
            reply = client.post("/v1/search", json={"query": "rain", "limit": 3, **body})
            found: dict[str, Any] = reply.raise_for_status().json()
            return found

        everything = search(facets=["brand"])
        cheap = search(
            filter={"brand": {"in": ["acme", "polar"]}, "price": {"lte": 60}},
            facets=["brand", "price"],
        )
        # A value of another kind is refused, with the path of the condition.
        wrong = client.post("/v1/search", json={"query": "rain", "filter": {"price": "60"}})
    print(f"{everything['total']} products, {cheap['total']} of two brands up to 60")
    print("by brand:", everything["facets"]["brand"]["values"])
    print("cheapest:", cheap["facets"]["price"]["min"])
    for hit in cheap["hits"]:
        print(f"{hit['score']:6.2f}  {hit['fields']['title']}, {hit['fields']['price']}")
    print("refused:", json.dumps(wrong.json()["errors"]))


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
