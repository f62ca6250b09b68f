"""`match`: which words of a query a hit must have, against the words of all documents read one by one."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fullrank import Bundle, open_bundle
from fullrank.bundle import find_bundle
from fullrank.progress import Reporter
from fullrank.retrieval import Floor
from fullrank.storage.documents import Document
from fullrank.text.words import words
from fullrank_service.http.keys import derive_key
from fullrank_trainer.train import train
from tests.api.support import KEY, Client, make_bundle, ok, running

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("few_made_up_words")]

WORDS = [
    "amber",
    "basil",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "haven",
    "ivory",
    "jolly",
    "koala",
    "lemon",
]
LATE = ["nylon", "ozone"]  # of live documents alone
Stored = dict[str, dict[str, Any]]


def document(rng: random.Random, known: list[str]) -> dict[str, Any]:
    # The first words are common, the last ones rare.
    weights = [1 / (1 + place) for place in range(len(known))]
    title, text = (" ".join(rng.choices(known, weights, k=k)) for k in (2, rng.randint(0, 6)))
    return {"title": title, "text": text, "shelf": rng.choice(["low", "high"])}


def required(
    bundle: Bundle,
    documents: Stored,
    query: str,
    match: str,
    shelf: str | None,
    hidden: Stored | None = None,
) -> set[str]:
    """Read all documents for those that a search may find; the caller may not see hidden ones."""
    texts = {id: {*words(f"{d['title']} {d['text']}")} for id, d in documents.items()}
    known = set().union(*texts.values())
    seen = {*words(query)} & known
    asked = seen | {word for word in words(query) if word in str(hidden)}
    frequency = bundle.known_words.document_frequency
    if match == "auto" and bundle.floor is not None:
        asked = {word for word in asked if frequency(word) <= bundle.floor.common} or asked
    asked &= seen
    allowed = {id for id, d in documents.items() if shelf in (None, d["shelf"])}
    if match == "any":
        return allowed
    full = {id for id in allowed if asked <= texts[id]}
    if full or match == "all":
        return full
    weight = {w: math.log1p(bundle.n_documents / max(1.0, frequency(w))) for w in asked}
    weighed = {id: sum(weight[word] for word in asked & texts[id]) for id in allowed}
    best = max(weighed.values(), default=0.0)
    return {id for id in allowed if weighed[id] >= best / 2 - 1e-9}


@pytest.mark.parametrize("common", [None, 12.0])
async def test_hits_totals_and_facets_are_those_of_the_required_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, common: float | None
) -> None:
    rng = random.Random(3)
    stored: Stored = {f"d{n:02}": document(rng, WORDS) for n in range(80)}
    monkeypatch.setattr("fullrank.bundle.write.INDEXED_FROM", 1)
    floor = None if common is None else Floor(-1e9, -1e9, -1e9, per_word=0.0, common=common)
    documents = [Document(id, fields) for id, fields in stored.items()]
    make_bundle(tmp_path, "m", documents, floor=floor)
    bundle = open_bundle(find_bundle(tmp_path, "m"))
    assert bundle.retriever.index is not None
    n_fewer = n_paged = 0
    async with running(tmp_path) as client:
        for n_live in (0, 1):
            if n_live:
                for id in rng.sample(sorted(stored), 15):
                    await client.delete(f"/v1/documents/{id}")
                    del stored[id]
                for n in range(75, 95):
                    id = f"d{n:02}"
                    stored[id] = document(rng, [*WORDS[4:], *LATE])
                    seq = (await client.put(f"/v1/documents/{id}", json=stored[id])).json()["seq"]
            for _ in range(25):
                query = " ".join(rng.choices([*WORDS, *LATE, "zzyzx"], k=rng.randint(1, 5)))
                shelf = rng.choice([None, "low"])
                asked: dict[str, Any] = {"query": query, "prefix": "none", "match": "any"}
                asked |= {"filter": {"shelf": shelf}} if shelf else {}
                asked |= {"min_seq": seq} if n_live else {}
                every = await found(client, asked, limit=100)
                for match in ("all", "auto"):
                    asked["match"] = match
                    wanted = required(bundle, stored, query, match, shelf)
                    n_fewer += match == "auto" and wanted != required(
                        bundle, stored, query, "all", shelf
                    )
                    answer = await found(client, asked, limit=100, facets=["shelf"])
                    hits = [hit for hit in every["hits"] if hit["id"] in wanted]
                    assert answer["hits"] == hits, asked
                    assert answer["total"] == len(wanted)
                    counted = answer["facets"]["shelf"]["values"]
                    assert sum(value["count"] for value in counted) == len(wanted)
                    if not n_live:
                        condition = asked.get("filter")
                        own = bundle.search(query, 100, filter=condition, match=match)
                        assert [hit.id for hit in own] == [hit["id"] for hit in hits]
                        assert own.total == len(wanted)
                    page = await found(client, asked, limit=3, offset=2)
                    assert page["hits"] == hits[2:5]
                    if len(hits) >= 40:
                        continue
                    cursor: str | None = "*"
                    paged = list[Any]()
                    while cursor is not None:
                        page = await found(client, asked, limit=7, cursor=cursor)
                        paged, cursor = paged + page["hits"], page["cursor"]
                        n_paged += 1
                    assert paged == hits
    assert (n_fewer > 8, n_paged > 60) == (True, True), (n_fewer, n_paged)


async def test_words_of_others_are_not_required_of_a_tenant(tmp_path: Path) -> None:
    """A word that only others have is as one that nobody has."""
    rng = random.Random(5)
    floor = Floor(-1e9, -1e9, -1e9, per_word=0.0, common=12.0)

    def drawn(known: list[str], shelf: str) -> dict[str, Any]:
        return {**document(rng, known), "shelf": shelf}

    stored: Stored = {f"d{n:02}": drawn(WORDS, "high") for n in range(40)}
    own: Stored = {f"d{n:02}": drawn(WORDS[:6], "low") for n in range(40, 80)}
    make_bundle(
        tmp_path, "m", [Document(id, fields) for id, fields in (stored | own).items()], floor=floor
    )
    bundle = open_bundle(find_bundle(tmp_path, "m"))
    headers = {"Authorization": f"Bearer {derive_key(KEY, filter={'shelf': 'low'})}"}
    n_others = 0
    async with running(tmp_path) as client:
        for n in range(80, 90):
            shelf, known = ("low", WORDS[:6]) if n < 85 else ("high", [*WORDS[4:], *LATE])
            fields = drawn(known, shelf)
            (own if n < 85 else stored)[f"d{n:02}"] = fields
            seq = ok(await client.put(f"/v1/documents/d{n:02}", json=fields))["seq"]
        for _ in range(40):
            query = " ".join(rng.choices([*WORDS, *LATE, "zzyzx"], k=rng.randint(1, 4)))
            asked = {"query": query, "prefix": "none", "limit": 100, "min_seq": seq}
            answers = {}
            for match in ("any", "all", "auto"):
                body = {**asked, "match": match, "facets": ["shelf"]}
                answers[match] = ok(await client.post("/v1/search", json=body, headers=headers))
            for match in ("all", "auto"):
                wanted = required(bundle, own, query, match, None, hidden=stored)
                n_others += wanted != required(bundle, stored | own, query, match, "low")
                expected = [hit for hit in answers["any"]["hits"] if hit["id"] in wanted]
                assert answers[match]["hits"] == expected, body
                assert answers[match]["total"] == len(wanted)
    assert n_others > 10


async def found(client: Client, asked: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = ok(await client.post("/v1/search", json={**asked, **more}))
    return answer


TITLES = {
    "bottle": "Thermos bottle steel",
    "bottles": "Two bottles of glass",
    "notebook": "Playhouse notebook",
    "house": "Play house of wood",
    "steel": "Steel wool",
    "shelf": "Corner shelf",
    "sofa": "Corner sofa",
    "kit": "Tool kit",
    "set": "Garden set",
    **{word: f"{word.title()} wreath" for word in WORDS},
}


@pytest.fixture(scope="module")
def untaught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bundles, with one trained on documents alone."""
    folder = tmp_path_factory.mktemp("untaught")
    lines = [json.dumps({"_id": id, "title": title}) for id, title in TITLES.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    train(folder, folder / "bundles", "m", reporter=Reporter(quiet=True))
    return folder / "bundles"


async def test_a_word_occurs_in_other_forms_too(untaught: Path) -> None:
    rule = {"synonyms": [["flask", "thermos"], ["spanners", "tool set"], ["couch", "corner sofa"]]}
    async with running(untaught) as client:
        reply = await client.put("/v1/rules/flask", json=rule)
        assert reply.status_code in (200, 201), reply.text
        for query, wanted in (
            ("steel bottle", {"bottle"}),
            ("steel bottel", {"bottle"}),  # a typing error
            ("glass bottle", {"bottles"}),  # the plural
            ("play house", {"house", "notebook"}),  # two words that are one elsewhere
            ("steel therm", {"bottle"}),  # the beginning of a word
            ("cornershelf", {"shelf"}),  # a word that is two words elsewhere
            ("cornershelfs", {"shelf"}),
            ("corner", {"shelf", "sofa"}),
            ("flask steel", {"bottle"}),  # a synonym
            ("spanners", set()),  # one of two words
            ("couch", {"sofa"}),
            ("steel qqqwwwx", {"bottle", "steel"}),  # a word that no document has
            ("glass wool", set()),
        ):
            answer = await found(client, {"query": query, "match": "all", "min_score": -100})
            assert {hit["id"] for hit in answer["hits"]} == wanted, query
        seq = await client.write("new", {"title": "Paper qqqwwwx"})
        answer = await found(client, {"query": "steel qqqwwwx", "match": "all", "min_seq": seq})
        assert answer["hits"] == []


async def test_a_bundle_that_learned_nothing_requires_words(untaught: Path) -> None:
    """Unless the request says otherwise; bundles of earlier releases do not."""
    bundle = open_bundle(find_bundle(untaught, "m"))
    assert bundle.match == "auto"
    assert {hit.id for hit in bundle.search("steel wool")} == {"steel"}
    assert {hit.id for hit in bundle.search("steel wool", match="any")} == {"steel", "bottle"}
    make_bundle(untaught, "other")
    assert open_bundle(find_bundle(untaught, "other")).match == "any"
    async with running(untaught) as client:
        for query, total in (({"q": "steel wool"}, 1), ({"q": "steel wool", "match": "any"}, 2)):
            reply = await client.get("/v1/search", params={**query, "model": "m"})
            assert reply.json()["total"] == total
        reply = await client.post("/v1/search", json={"query": "steel", "match": "most"})
        assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "body.match")
        first = await found(
            client, {"query": "steel wool", "model": "m", "match": "any"}, limit=1, cursor="*"
        )
        asked = {"query": "steel wool", "model": "m", "cursor": first["cursor"]}
        reply = await client.post("/v1/search", json=asked)
        assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "cursor")
