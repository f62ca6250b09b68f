"""Text folding over HTTP: a bundle of the recipe bm25, its documents and live ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fullrank import open_bundle
from fullrank.progress import Reporter
from fullrank_trainer.train import train
from tests.api.support import Client, running

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("few_made_up_words")]

FOLDER = Path(__file__).with_name("folding_set")


async def search(client: Client, query: str, **body: Any) -> list[dict[str, Any]]:
    hits = (await client.search(query, limit=5, **body))["hits"]
    return [hit for hit in hits if hit["score"] > 0]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("forms")
    return train(FOLDER, root, "forms", recipe="bm25", reporter=Reporter(quiet=True)).path


async def test_other_forms_of_words_are_found(bundle: Path) -> None:
    async with running(bundle.parents[1]) as client:
        for query, id in (
            ("cafe boisson", "fr/cafe"),
            ("STRASSE", "de/strasse"),
            ("tshirts", "en/tshirt"),
            ("مدرسه", "ar/madrasa"),
        ):
            hits = await search(client, query)
            assert hits[0]["id"] == id
        # A word counts for more than another form of it.
        assert [hit["id"] for hit in await search(client, "far")] == ["sv/far", "sv/faar"]

        seq = await client.write("new", {"title": "Zürich", "text": "wi-po"})
        for query in ("zurich", "Zürich", "zuerich wipo", "wi po", "WIPO"):
            assert (await search(client, query, min_seq=seq))[0]["id"] == "new"
        whole, part = [
            (await search(client, query, min_seq=seq))[0]["score"] for query in ("zürich", "zurich")
        ]
        assert part == pytest.approx(0.7 * whole, rel=1e-5)
        # The rankings of the bundle stay as they are.
        [hit, *_] = await search(client, "cafe boisson", min_seq=seq)
        local = open_bundle(bundle).search("cafe boisson", 1)[0]
        assert (hit["id"], hit["score"]) == (local.id, pytest.approx(local.score, rel=1e-6))


def test_an_explanation_names_the_word_of_the_query(bundle: Path) -> None:
    [hit] = open_bundle(bundle).search("wifi laptop", 1, explain=True)
    assert hit.words is not None
    assert sum(word.lexical for word in hit.words) == pytest.approx(hit.score, rel=1e-5)
    assert {word.word for word in hit.words} == {"wifi", "laptop"}
