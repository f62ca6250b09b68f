"""Look for ads that a page forbids: random requests to /v1/match, each hit checked against the request alone.

    python -m benchmarks.performance.forbidden_ads BUNDLE [--requests 100000] [--ads 300] [--seed 1]

Random ads are written as live documents next to a bundle, and one of them is replaced every 50 requests, so segments
and deleted rows take part. Some begin or end while the requests run. A request has random categories, advertisers,
seats, attributes, currencies, floors, filters and blocked ids. Each hit is checked by ``violations``, plain Python over
the JSON of the request and of the ad, which shares no code with the service. The exit status is 1 if a hit is
forbidden. The app is called in this process, without sockets, and no answer is logged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.performance.ads import Ask, asking
from fullrank.bundle import open_bundle
from fullrank_service.app import create_app
from fullrank_service.settings import Settings

TAXONOMY = 7  # of the tree; ads and requests also name others
_REQUESTS_PER_WRITE = 50
_RUNNING_S = 120  # within which ads begin and end
# The category 123 is below 12, which is below 1.
_CATEGORIES = [
    f"{a}{b}{c}" for a in "123" for b in ("", *"123") for c in (("", *"12") if b else ("",))
]
_DOMAINS = [
    *(f"{name}.example" for name in "abcdefgh"),
    "x.a.example",
    "y.x.a.example",
    "aa.example",
    "example",
]
_SEATS = ["s1", "s2", "s3", "s4"]
_WORDS = ["copy", "files", "remote", "host", "list", "tea", "boots", "lamp", "train", "paper"]
_SHELVES = ["left", "right", "top"]
_CURRENCIES = ["EUR", "USD"]

Json = dict[str, Any]


@dataclass
class Found:
    """What a run found.

    Attributes:
        requests: Number of requests.
        hits: Ads that were placed.
        empty: Requests without a hit.
        forbidden: Placed ads by the rule that forbids them.
        left_out: Ads that the service left out of one request in ten, by its reasons.
    """

    requests: int = 0
    hits: int = 0
    empty: int = 0
    forbidden: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)


def some(rng: random.Random, values: Sequence[Any], most: int) -> list[Any]:
    """Choose from one to some of the values."""
    return rng.sample(values, rng.randint(1, most))


def maybe(rng: random.Random, share: float, **given: Any) -> Json:
    """Return the fields in a share of the calls."""
    return given if rng.random() < share else {}


def random_ad(rng: random.Random, now: float) -> Json:
    """Return a document with an ad, valid at a moment in seconds since 1970."""
    begins, ends = (now + rng.uniform(1, _RUNNING_S) for _ in range(2))
    ad = {
        "adomain": some(rng, _DOMAINS, 2),
        **maybe(rng, 0.8, cat=some(rng, _CATEGORIES, 3)),
        **maybe(rng, 0.8, cattax=rng.choice([TAXONOMY, TAXONOMY, 1])),
        **maybe(rng, 0.8, seat=rng.choice(_SEATS)),
        **maybe(rng, 0.6, attr=some(rng, range(1, 8), 2)),
        **maybe(rng, 0.8, price=rng.choice([0.5, 1, 2.5])),
        **maybe(rng, 0.6, cur=rng.choice(_CURRENCIES)),
        **maybe(rng, 0.1, status="paused"),
        **maybe(rng, 0.1, start=_text(begins)),
        **maybe(rng, 0.1, end=_text(max(begins, ends) + 1)),
    }
    return {
        "title": " ".join(some(rng, _WORDS, 3)),
        "text": " ".join(some(rng, _WORDS, 6)),
        "shelf": rng.choice(_SHELVES),
        "ad": ad,
    }


def random_request(rng: random.Random, ids: Sequence[str]) -> Json:
    """Return a request to place ads with random rules."""
    cur = maybe(rng, 0.2, cur=rng.choice(_CURRENCIES))
    placements = [
        {
            "id": f"p{number}",
            "count": rng.randint(1, 3),
            **maybe(rng, 0.3, bidfloor=rng.choice([0.5, 0.7, 2.5, 3.0])),
            **maybe(rng, 0.3, bidfloorcur=cur.get("cur", rng.choice(_CURRENCIES))),
            **maybe(rng, 0.1, min_score=rng.uniform(0, 5)),
        }
        for number in range(rng.randint(1, 3))
    ]
    categories = maybe(rng, 0.4, bcat=some(rng, _CATEGORIES, 4))
    seats = maybe(rng, 0.3, bseat=some(rng, _SEATS, 2))
    return {
        "page": {"text": " ".join(some(rng, _WORDS, 4))},
        "placements": placements,
        "targeting": {"shelf": {"in": some(rng, _SHELVES, 3)}},
        "fields": [],
        "record": False,
        **cur,
        **(categories or maybe(rng, 0.5, acat=some(rng, _CATEGORIES, 8))),
        **maybe(rng, 0.8, cattax=rng.choice([TAXONOMY, TAXONOMY, 1])),
        **maybe(rng, 0.4, badv=some(rng, _DOMAINS[:-1], 3)),
        **(seats or maybe(rng, 0.3, wseat=some(rng, _SEATS, 3))),
        **maybe(rng, 0.3, battr=some(rng, range(1, 8), 3)),
        **maybe(rng, 0.3, per_advertiser=rng.randint(1, 3)),
        **maybe(rng, 0.2, blocked_ids=rng.sample(ids, len(ids) // 3)),
        **maybe(rng, 0.1, explain=True),
    }


def violations(
    asked: Json, reply: Json, documents: Mapping[str, Json], began: float, ended: float
) -> Iterator[str]:
    """Yield the rule that forbids a hit, for each hit that is forbidden.

    Args:
        asked: The request.
        reply: Its answer.
        documents: The ads by id, as they were last written.
        began, ended: When it was sent and answered, in seconds since 1970.
    """
    placed = Counter[str]()
    for placement, filled in zip(asked["placements"], reply["placements"], strict=True):
        if len(filled["hits"]) > placement.get("count", 1):
            yield "count"
        for hit in filled["hits"]:
            fields = documents[hit["id"]]
            placed.update({hit["id"], *fields["ad"]["adomain"]})
            if placed[hit["id"]] > 1:
                yield "placed twice"
            if hit["id"] in asked.get("blocked_ids", []):
                yield "blocked_ids"
            if fields["shelf"] not in asked["targeting"]["shelf"]["in"]:
                yield "targeting"
            if hit["score"] < placement.get("min_score", hit["score"]):
                yield "min_score"
            for domain in fields["ad"]["adomain"]:
                if placed[domain] > asked.get("per_advertiser", 1):
                    yield "per_advertiser"
            yield from _of_page(fields["ad"], asked, began, ended)
            yield from _of_placement(fields["ad"], asked, placement)


def _of_page(ad: Json, asked: Json, began: float, ended: float) -> Iterator[str]:
    if ad.get("status") == "paused":
        yield "status"
    if "start" in ad and _seconds(ad["start"]) > ended:
        yield "start"
    if "end" in ad and _seconds(ad["end"]) <= began:
        yield "end"
    if "cur" in asked and ad.get("cur", "USD") != asked["cur"]:
        yield "cur"
    categories, taxonomy = ad.get("cat", []), asked.get("cattax", 1)
    if ("bcat" in asked or "acat" in asked) and categories and ad.get("cattax", 1) != taxonomy:
        yield "cattax"
    for category in categories:
        # A category stands below each of its beginnings.
        sizes = range(1, len(category) + 1) if taxonomy == TAXONOMY else [len(category)]
        with_parents = {category[:size] for size in sizes}
        if with_parents & {*asked.get("bcat", [])}:
            yield "bcat"
        if "acat" in asked and not with_parents & {*asked["acat"]}:
            yield "acat"
    if "acat" in asked and not categories:
        yield "acat"
    for own in ad["adomain"]:
        if any(own == other or own.endswith(f".{other}") for other in asked.get("badv", [])):
            yield "badv"
    if "wseat" in asked and ad.get("seat") not in asked["wseat"]:
        yield "wseat"
    if ad.get("seat") in asked.get("bseat", []):
        yield "bseat"
    if {*ad.get("attr", [])} & {*asked.get("battr", [])}:
        yield "battr"


def _of_placement(ad: Json, asked: Json, placement: Json) -> Iterator[str]:
    if "bidfloor" not in placement and "bidfloorcur" not in placement:
        return
    if ad.get("cur", "USD") != placement.get("bidfloorcur", asked.get("cur", "USD")):
        yield "bidfloorcur"
    if ad.get("price", 0) < placement.get("bidfloor", 0):
        yield "bidfloor"


async def look(bundle: Path, requests: int, ads: int, seed: int) -> Found:
    """Send random requests and check every hit.

    Args:
        bundle: A bundle, which is copied.
        requests: How many.
        ads: Number of ads.
        seed: Of the random numbers.
    """
    rng, opened = random.Random(seed), open_bundle(bundle)
    with tempfile.TemporaryDirectory() as name:
        root, tree = Path(name) / "bundles", Path(name) / "taxonomy.tsv"
        shutil.copytree(bundle, root / opened.name / opened.version)
        tree.write_text("".join(f"{id}\t{id[:-1]}\n" for id in _CATEGORIES))
        app = create_app(Settings(bundles=root, ad_taxonomy=tree, anonymous="search,ingest"))
        async with app.router.lifespan_context(app):
            match = asking(app)
            write = asking(app, "/v1/documents:bulk", b"application/x-ndjson")
            return await _ask(match, write, rng, requests, [f"ad{i}" for i in range(ads)])


async def _ask(
    match: Ask, write: Ask, rng: random.Random, requests: int, ids: Sequence[str]
) -> Found:
    found = Found()
    documents = {id: random_ad(rng, time.time()) for id in ids}
    seq = await _write(write, documents)
    for number in range(requests):
        if number % _REQUESTS_PER_WRITE == 0:
            changed = {rng.choice(ids): random_ad(rng, time.time())}
            documents |= changed
            seq = await _write(write, changed)
        asked = random_request(rng, ids)
        began = time.time()
        reply = json.loads(await match(json.dumps({**asked, "min_seq": seq}).encode()))
        found.forbidden.update(violations(asked, reply, documents, began, time.time()))
        hits = sum(len(filled["hits"]) for filled in reply["placements"])
        found.requests, found.hits, found.empty = (
            number + 1,
            found.hits + hits,
            found.empty + (not hits),
        )
        for part in (reply, *reply["placements"]):
            found.left_out.update(part["left_out"] or {})
    return found


async def _write(write: Ask, documents: Mapping[str, Json]) -> int:
    """Write documents, and return the number of the last write."""
    lines = [json.dumps({"_id": id, **fields}) + "\n" for id, fields in documents.items()]
    verdicts = [json.loads(line) for line in (await write("".join(lines).encode())).splitlines()]
    refused = [verdict for verdict in verdicts if verdict["status"] != 200]
    if refused:
        raise RuntimeError(f"an ad is refused: {refused[0]}")
    return int(verdicts[-1]["seq"])


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main(arguments: Sequence[str] | None = None) -> None:
    """Look for forbidden ads and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, help="any bundle that takes live documents")
    parser.add_argument("--requests", type=int, default=100_000, help="default 100,000")
    parser.add_argument("--ads", type=int, default=300, help="default 300")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    given = parser.parse_args(arguments)
    began = time.perf_counter()
    found = asyncio.run(look(given.bundle, given.requests, given.ads, given.seed))
    print(
        f"{found.requests:,} requests in {time.perf_counter() - began:.0f} s, {found.empty:,} without a hit"
    )
    print(f"left out of one request in ten, by reason: {dict(found.left_out)}")
    print(
        f"{found.hits:,} hits, {sum(found.forbidden.values())} forbidden: {dict(found.forbidden)}"
    )
    if found.forbidden:
        sys.exit(1)


if __name__ == "__main__":
    main()
