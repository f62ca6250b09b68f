"""Random ads, pages and answers of /v1/match, for tests that compare a router with the unsharded service."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from fullrank_service.ads.counts import CLICK, FILE, IMPRESSION, Counts, Report
from fullrank_service.ads.tokens import LIFETIME_S, Served, Signer
from tests.unit.fleet.serving.routing import WORDS
from tests.unit.fleet.serving.test_equal import CUTS, answer_of, condition, query
from tests.unit.fullrank.ads.oracle import NOW, PARENTS, random_ad, random_page


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for all pages at one moment: even pacing changes all the time."""
    clock = SimpleNamespace(time=lambda: NOW)
    monkeypatch.setattr("fullrank_service.http.matching.time", clock)


def some_ad(rng: random.Random) -> dict[str, Any]:
    """A random ad, often of an advertiser of its own, with a budget or a cap."""
    ad = random_ad(rng)
    if rng.random() < 0.7:
        ad["adomain"] = [f"shop{rng.randrange(60)}.example"]
    if rng.random() < 0.3:
        ad["price"] = round(rng.lognormvariate(0, 1), 2) + 0.01
    if rng.random() < 0.2:
        ad["cap"] = {"count": rng.randint(1, 2), "seconds": 86_400}
    if rng.random() < 0.4:
        ad.setdefault("price", 1)
        ad["budget"] = {"amount": ad["price"] * rng.choice([1, 1.5, 3])}
        if rng.random() < 0.3:
            ad |= {"start": "2026-11-22T12:00:00Z", "end": "2099-01-01T00:00:00Z"}
            ad["budget"] |= {"amount": ad["price"] * rng.choice([2, 100_000]), "pacing": "even"}
    return ad


def ads_of_the_corpus(number: int) -> dict[str, Any]:
    """The ad of most documents, a few of them malformed."""
    rng = random.Random(number + 1_000_000)
    if rng.random() < 0.25:
        return {}
    return {"ad": some_ad(rng) if rng.random() < 0.95 else {"adomain": "shop.example"}}


def taxonomy(folder: Path) -> Path:
    """Write the tree of categories."""
    path = folder / "taxonomy.tsv"
    path.write_text("".join(f"{id}\t{parent}\n" for id, parent in PARENTS.items()))
    return path


def page(rng: random.Random, ids: Sequence[str]) -> dict[str, Any]:
    """A random request for placements."""
    found = {
        name: value
        for name, value in random_page(rng).items()
        if not name.startswith("bidfloor") and rng.random() < 0.6
    }
    if "bcat" in found or "acat" in found:
        found["cattax"] = rng.choice([1, 7, 7])
    found |= {
        "page": {"title": query(rng), "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 9)))},
        "placements": [placement(rng, number) for number in range(rng.randint(1, 4))],
    }
    if rng.random() < 0.3:
        found["per_advertiser"] = rng.randint(2, 9)
    if rng.random() < 0.3:
        found["targeting"] = condition(rng)
    if rng.random() < 0.3:
        found["blocked_ids"] = rng.sample(list(ids), 5)
    if rng.random() < 0.4:
        found["explain"] = True
    if rng.random() < 0.5:
        found["user"] = {"id": f"u{rng.randrange(3)}"}
    if rng.random() < 0.2:
        found["fields"] = ["title"]
    return found


def placement(rng: random.Random, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"id": f"p{number}", "count": rng.choice([1, 2, 3, 8, 40])}
    if rng.random() < 0.3:
        found["bidfloor"] = rng.choice([0.0, 0.5, 1.0, 2.5])
    if rng.random() < 0.2:
        found["bidfloorcur"] = "USD"
    if rng.random() < 0.3:
        found["min_score"] = rng.choice([-1.0, 1.0, 3.0, 5.0])
    return found


def match_of(response: httpx.Response, signer: Signer) -> tuple[int, Any]:
    """Return what must be equal of an answer: with what tokens say, but without their ids."""
    status, found = answer_of(response)
    for one in found.get("placements", ()):
        for hit in one["hits"]:
            if hit["token"] is not None:
                hit["token"] = signer.read(hit["token"])._replace(id="", expires=0.0)
    return status, found


async def pages_equal(
    clients: Sequence[httpx.AsyncClient], signer: Signer, body: dict[str, Any]
) -> tuple[int, Any]:
    """Ask all for a page, and return the answer that they agree on."""
    replies = [await client.post("/v1/match", json=body) for client in clients]
    expected, *others = [match_of(reply, signer) for reply in replies]
    for cut, found in zip(CUTS, others, strict=True):
        assert found == expected, (cut, body)
    return expected


def count_clicks(folder: Path, model: str, *, clicks: int = 1200) -> None:
    """Count clicks in the file of a folder, the more the better the score is: the same ones in every folder."""
    rng, now, reports = random.Random(6), time.time(), list[Report]()
    for number in range(3 * clicks):
        score, place = rng.uniform(0, 8), f"p{rng.randrange(4)}"
        served = Served(
            f"{number:032x}", now + LIFETIME_S, "planted", model, "", "x", 1.0, score, place
        )
        is_click = rng.random() < (0.2 + 0.1 * score) * (0.5 if place == "p0" else 1)
        kinds = [IMPRESSION, CLICK] if is_click else [IMPRESSION]
        reports += [Report(kind, served, f"c {number}", now) for kind in kinds]
    # Its readers open the file once it is complete.
    counts = Counts(folder / "new.sqlite")
    counts.count(reports)
    counts.close()
    (folder / "new.sqlite").rename(folder / FILE)
