"""Add, replace and delete documents while the service runs.

    python -m examples.live_documents

Shows that an acknowledged document can be found at once (``min_seq``), that a repeated request with an Idempotency-Key
is stored once, and that a bulk request answers with one verdict per line.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from examples.shop import serving, train_bm25


def main(folder: Path) -> None:
    """Write documents and search for them."""
    train_bm25(folder)
    with serving(folder / "bundles", anonymous="search,ingest") as client:

        def titles(query: str, seq: int) -> list[str]:
            body = {"query": query, "limit": 2, "min_seq": seq, "fields": ["title"]}
            hits = client.post("/v1/search", json=body).raise_for_status().json()["hits"]
            return [hit["fields"]["title"] for hit in hits]

        umbrella = {"title": "polar umbrella", "text": "Folds.", "brand": "polar", "price": 15}
        key = {"Idempotency-Key": "add-umbrella"}
        first = client.put("/v1/documents/umbrella", json=umbrella, headers=key).raise_for_status()
        again = client.put("/v1/documents/umbrella", json=umbrella, headers=key)
        print("added:", first.json(), "again:", again.headers.get("Idempotent-Replayed"))
        print("found:", titles("umbrella", first.json()["seq"]))

        lines = [
            {"_id": "umbrella", "_delete": True},
            {"_id": "hat", "title": "wool hat", "text": "Warm.", "brand": "acme", "price": 12},
            {"_id": "scarf", "title": 7},
        ]
        bulk = client.post(
            "/v1/documents:bulk",
            content="".join(json.dumps(line) + "\n" for line in lines),
            headers={"Content-Type": "application/x-ndjson"},
        )
        for verdict in map(json.loads, bulk.raise_for_status().text.splitlines()):
            print("verdict:", verdict)
        print("found:", titles("umbrella hat", int(bulk.headers["X-Seq"])))


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
