"""A server that is killed during swaps serves the version that it acknowledged last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx

from fullrank_service.models.state import ActiveState, read_state
from tests.api.support import AUTH, at, make_bundle
from tests.faults.real import Writer, lives


@dataclass
class Swapping(Writer):
    """Swaps between two versions until the server is dead; generation: of the last swap that was acknowledged."""

    versions: list[str]
    generation: int = 1

    def write(self, client: httpx.Client) -> None:
        body = {"version": self.versions[self.generation % 2]}
        response = client.put("/v1/models/aliases/default", json=body, headers=AUTH)
        assert response.status_code == 200, response.text
        self.generation = response.json()["generation"]


def test_a_server_killed_during_a_swap_serves_the_committed_version_again(tmp_path: Path) -> None:
    """3 times kill -9 at a random moment of a stream of swaps: every acknowledged one is kept."""
    own = Swapping([make_bundle(tmp_path, name, created=at(1)) for name in ("one", "two")])
    committed: list[ActiveState | None] = []
    for url, _ in lives(
        tmp_path, [own], 3, workers=1, on_dead=lambda: committed.append(read_state(tmp_path))
    ):
        state = read_state(tmp_path)
        assert state is not None
        assert state == committed[-1]
        # The last swap may have been committed although its answer was lost.
        assert state.generation in (own.generation, own.generation + 1)
        reply = httpx.post(f"{url}/v1/search", json={"query": "copy"}).json()
        assert (reply["model"], reply["generation"]) == (state.version, state.generation)
        own.generation = state.generation
