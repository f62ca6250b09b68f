"""Helpers of the browser tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

from playwright.sync_api import Locator, Page, Route, expect

BEGIN = datetime(2024, 11, 20, 22, 30, tzinfo=UTC)
PRICES = [round(0.5 * i**1.7, 2) for i in range(40)]
TIMES = [BEGIN + timedelta(days=11 * i) for i in range(40)]
DAYS = [(BEGIN + timedelta(days=i)).date().isoformat() for i in range(40)]


def ad(domain: str, **more: Any) -> dict[str, Any]:
    return {"adomain": [domain], "price": 2, "cur": "USD", **more}


# Six of them are ads.
ADS: dict[str, dict[str, Any]] = {
    "plain": {"language": "en"},
    "boots": {"ad": ad("shop.example", price=2.5), "language": "en"},
    "shoes": {"ad": ad("shop.example"), "language": "en"},
    "wine": {"ad": ad("wine.example", cat=["552"]), "language": "en"},
    "cheap": {"ad": ad("cheap.example", price=0.5), "language": "en"},
    "paused": {"ad": ad("late.example", status="paused"), "language": "en"},
    "gants": {"ad": ad("gants.example"), "language": "fr"},
}


def ask(page: Page, text: str) -> None:
    """Fill in the search box, press Enter, and wait for the hits."""
    box = page.get_by_role("combobox", name="Search")
    box.fill(text)
    box.press("Enter")
    expect(page.locator("#heading")).to_have_text(f"Results for “{text.strip()}”")
    expect(page.locator("#results:not(.stale)")).to_be_visible()
    expect(page.locator(".hit").first).to_be_visible()


def violations(page: Page) -> list[Any]:
    """What axe-core finds on the page against WCAG AA, each rule with the elements."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found: list[Any] = page.evaluate(
        """async () => (await axe.run(document, {
            runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
        })).violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)])"""
    )
    return found


def titles(page: Page, column: int = 0) -> list[str]:
    """The titles of the hits in a column, best first."""
    return page.locator(".column").nth(column).locator("h3").all_inner_texts()


def hit_titled(page: Page, title: str) -> Locator:
    """The hit with exactly this title."""
    return page.locator(".hit").filter(has=page.get_by_text(title, exact=True))


def hit(
    id: str,
    score: float = 1.0,
    *,
    dense: float = 0.0,
    bias: float = 0.0,
    words: Mapping[str, float] | None = None,
    highlight: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A hit as the service sends it; what dense and bias leave of the score is lexical."""
    return {
        "id": id,
        "score": score,
        "fields": fields,
        "highlight": highlight,
        "explanation": {
            "dense": dense,
            "lexical": score - dense - bias,
            "bias": bias,
            "words": [
                {"word": word, "dense": 0.0, "lexical": weight}
                for word, weight in (words or {}).items()
            ],
        },
    }


def answer_searches(page: Page, hits: Mapping[str, Sequence[dict[str, Any]]], **reply: Any) -> None:
    """Answer searches in place of the server, with the hits of each query and other fields of the reply."""

    def answer(route: Route) -> None:
        body: Any = route.request.post_data_json
        found = hits[body["query"]]
        route.fulfill(
            json={
                "query_id": "1",
                "model": "learned-1",
                "generation": 1,
                "took_ms": 1.0,
                "certified": True,
                "reordered": 0,
                "total": len(found),
                "hits": found,
                "facets": {},
                **reply,
            }
        )

    page.route("**/v1/search", answer)


def explain(page: Page) -> None:
    """Show why each hit was found."""
    for button in page.locator(".why").all():
        button.click()
