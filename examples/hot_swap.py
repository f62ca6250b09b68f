"""Replace the model of a running service, and return to the previous one.

    python -m examples.hot_swap

Shows how a new version is published, compared with the active one, activated in all workers, and rolled back. Every
answer names the version and generation that it comes from.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from examples.shop import serving, train_bm25
from fullrank_service.http.keys import create_key


def main(folder: Path) -> None:
    """Serve a version, activate a second one, and roll back."""
    old = train_bm25(folder).name
    keys = folder / "keys.json"
    _, token = create_key(keys, ["search", "admin"], id="operator")
    with serving(folder / "bundles", keys=str(keys)) as client:
        client.headers["Authorization"] = f"Bearer {token}"

        def search(model: str = "default") -> str:
            body = {"query": "rain boots", "limit": 1, "model": model}
            answer = client.post("/v1/search", json=body).raise_for_status().json()
            return (
                f"generation {answer['generation']}, {answer['model']}: {answer['hits'][0]['id']}"
            )

        print(search())
        new = train_bm25(folder).name  # published; the old version still serves
        client.post(f"/v1/models/{new}:load").raise_for_status()
        print("compare:", search(model=new))

        alias = "/v1/models/aliases/default"
        print("swap:", client.put(alias, json={"version": new}).raise_for_status().json())
        print(search())
        client.put(alias, json={"version": old}).raise_for_status()
        print("rolled back:", search())


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
