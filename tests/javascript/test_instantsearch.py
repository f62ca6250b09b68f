"""The widgets of InstantSearch.js (the shop page of the examples) and React InstantSearch, unmodified, from npm."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Request, expect

from fullrank.events.log import EventLog
from tests.javascript.conftest import ROOT, Service, wait_until

pytestmark = pytest.mark.browser

SHOP, REACT = "/examples/shop-page/", "/tests/javascript/react.html"
BOTH = pytest.mark.parametrize("address", [SHOP, REACT], ids=["js", "react"])
Visit = Callable[[str], Page]


@pytest.fixture(scope="module")
def products() -> list[dict[str, str]]:
    with (ROOT / "examples/shop-page/products.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def asked(service: Service, query: str, **body: Any) -> dict[str, Any]:
    """What the service itself answers."""
    sent = {"query": query, "model": "shop", "limit": 12, "record": False, **body}
    reply: dict[str, Any] = (
        httpx.post(f"{service.url}/v1/search", json=sent).raise_for_status().json()
    )
    return reply


def titles(page: Page) -> list[str]:
    return page.locator(".ais-Hits h3").all_inner_texts()


def search(page: Page, query: str) -> None:
    page.locator(".ais-SearchBox-input").first.fill(query)


def values(page: Page, widget: str) -> dict[str, int]:
    """The values of a menu or list with their counts."""
    label = "labelText" if widget == "RefinementList" else "label"
    found = {}
    for item in page.locator(f".ais-{widget}-item").all():
        # Those of the item itself come before those of the items in it.
        name = item.locator(f".ais-{widget}-{label}").first.inner_text()
        found[name] = int(item.locator(f".ais-{widget}-count").first.inner_text())
    return found


def choose(page: Page, widget: str, label: str) -> None:
    page.locator(f".ais-{widget}-item").get_by_text(label, exact=True).last.click()


def counts(products: list[dict[str, str]], field: str, **wanted: str) -> dict[str, int]:
    """How many products have each value of a field, of those with the wanted values of other fields."""
    rows = (row for row in products if all(row[name] == value for name, value in wanted.items()))
    return dict(Counter(row[field] for row in rows if row[field]))


@BOTH
def test_search_box_hits_and_highlight(visit: Visit, service: Service, address: str) -> None:
    page = visit(address)
    expect(page.locator(".ais-Stats-text")).to_contain_text("96 results")
    search(page, "warm jacket")
    reply = asked(service, "warm jacket")
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{reply['total']} results")
    assert titles(page) == [hit["fields"]["title"] for hit in reply["hits"]]
    first = page.locator(".ais-Hits-item").first
    assert first.locator(".ais-Highlight mark").all_inner_texts() == ["jacket"]
    expect(first.locator(".ais-Snippet")).to_have_text(
        "Warm jacket filled with down for cold winter…"
    )
    assert first.locator(".ais-Snippet mark").all_inner_texts() == ["Warm", "jacket"]
    search(page, "boott")
    expect(page.locator(".ais-Highlight mark").first).to_have_text("boots")


@BOTH
def test_refinement_list_counts_as_if_its_own_filter_were_off(
    visit: Visit, products: list[dict[str, str]], address: str
) -> None:
    page = visit(address)
    choose(page, "RefinementList", "Polar")
    polar = counts(products, "brand")["Polar"]
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{polar} results")
    assert values(page, "RefinementList") == counts(products, "brand")
    choose(page, "RefinementList", "Otter & Sons")
    both = polar + counts(products, "brand")["Otter & Sons"]
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{both} results")
    choose(page, "HierarchicalMenu", "Camping")
    camping = counts(products, "brand", **{"categories.lvl0": "Camping"})
    expect(page.locator(".ais-Stats-text")).to_contain_text(
        f"{camping['Polar'] + camping['Otter & Sons']} results"
    )
    assert values(page, "RefinementList") == camping


@BOTH
def test_refinement_list_finds_values(visit: Visit, address: str) -> None:
    page = visit(address)
    # The page's first search renders the list anew when it arrives.
    expect(page.locator(".ais-Stats-text")).to_contain_text("results")
    page.locator(".ais-RefinementList-searchBox input").fill("son")
    labels = page.locator(".ais-RefinementList-labelText")
    expect(labels).to_have_count(1)
    expect(labels).to_have_text("Otter & Sons")
    expect(labels.locator("mark")).to_have_text("Son")


@BOTH
def test_hierarchical_menu(visit: Visit, products: list[dict[str, str]], address: str) -> None:
    page = visit(address)
    expect(page.locator(".ais-HierarchicalMenu-item")).to_have_count(3)
    assert values(page, "HierarchicalMenu") == counts(products, "categories.lvl0")
    choose(page, "HierarchicalMenu", "Camping")
    choose(page, "HierarchicalMenu", "Cooking")
    expect(page.locator(".ais-HierarchicalMenu-item")).to_have_count(8)
    level = counts(products, "categories.lvl1", **{"categories.lvl0": "Camping"})
    level |= counts(products, "categories.lvl2", **{"categories.lvl1": "Camping > Cooking"})
    below = {name.rpartition(" > ")[2]: count for name, count in level.items()}
    assert values(page, "HierarchicalMenu") == {**counts(products, "categories.lvl0"), **below}
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{below['Cooking']} results")


@BOTH
def test_range_toggle_and_clear(visit: Visit, products: list[dict[str, str]], address: str) -> None:
    page = visit(address)
    prices = [int(row["price"]) for row in products]
    expect(page.locator(".ais-RangeInput-input--min")).to_have_attribute(
        "placeholder", str(min(prices))
    )
    expect(page.locator(".ais-RangeInput-input--max")).to_have_attribute(
        "placeholder", str(max(prices))
    )
    page.locator(".ais-RangeInput-input--min").fill("100")
    page.locator(".ais-RangeInput-input--max").fill("200")
    page.locator(".ais-RangeInput-submit").click()
    within = [row for row in products if 100 <= int(row["price"]) <= 200]
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{len(within)} results")
    page.locator(".ais-ToggleRefinement-checkbox").click()
    stocked = [row for row in within if row["in_stock"] == "true"]
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{len(stocked)} results")
    for button in page.locator(".ais-CurrentRefinements-delete").all()[::-1]:
        button.click()
    expect(page.locator(".ais-Stats-text")).to_contain_text("96 results")


def test_rating_menu(visit: Visit, products: list[dict[str, str]]) -> None:
    page = visit(SHOP)
    page.locator(".ais-RatingMenu-link").nth(1).click()
    good = [row for row in products if float(row["rating"]) >= 3]
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{len(good)} results")


@BOTH
def test_pagination_and_sort(visit: Visit, products: list[dict[str, str]], address: str) -> None:
    page = visit(address)
    page.locator(".ais-SortBy-select").select_option("shop:price:asc")
    cheap = sorted(int(row["price"]) for row in products)
    shown = page.locator(".ais-Hits-item")
    expect(shown.first).to_contain_text(f"{cheap[0]} €")
    found = []
    for number in range(2, 9):
        found += [int(re.search(r"(\d+) €", text)[1]) for text in shown.all_inner_texts()]  # type: ignore[index]
        page.get_by_role("link", name=f"Page {number}", exact=True).click()
        expect(page.locator(".ais-Pagination-item--selected")).to_have_text(str(number))
        expect(shown.first).to_contain_text(f"{cheap[12 * (number - 1)]} €")
    assert found == cheap[: 12 * 7]


def test_other_widgets(visit: Visit, products: list[dict[str, str]]) -> None:
    page = visit("/tests/javascript/more.html")
    rows = [row for row in products if row["in_stock"] == "true"]
    stats, hits = page.locator(".ais-Stats-text"), page.locator(".ais-InfiniteHits-item")
    expect(stats).to_contain_text(f"{len(rows)} results")
    handles = page.locator("[aria-valuenow]")
    expect(handles).to_have_count(2)
    values = [float(handle.get_attribute("aria-valuenow") or 0) for handle in handles.all()]
    ratings = [float(row["rating"]) for row in rows]
    assert values == [min(ratings), max(ratings)]
    # The boost orders documents without a query: by rating, ties by id.
    rows.sort(key=lambda row: (-float(row["rating"]), row["id"]))
    expect(hits).to_have_text([row["title"] for row in rows[:10]])
    page.locator(".ais-InfiniteHits-loadMore").click()
    expect(hits).to_have_text([row["title"] for row in rows[:20]])
    page.locator(".ais-HitsPerPage-select").select_option("40")
    expect(hits).to_have_count(40)
    page.locator(".ais-NumericMenu-item").get_by_text("Up to 50").click()
    rows = [row for row in rows if int(row["price"]) <= 50]
    expect(stats).to_contain_text(f"{len(rows)} results")
    page.locator(".ais-Menu-item").get_by_text("red", exact=True).click()
    rows = [row for row in rows if row["colour"] == "red"]
    expect(stats).to_contain_text(f"{len(rows)} result")
    page.locator(".ais-HierarchicalMenu-item").get_by_text("Footwear").click()
    rows = [row for row in rows if row["categories.lvl0"] == "Footwear"]
    expect(stats).to_contain_text(f"{len(rows)} result")
    expect(page.locator(".ais-Breadcrumb-item")).to_have_text(["Home", ">Footwear"])


def test_a_page_opens_with_the_refinements_of_its_address(
    visit: Visit, products: list[dict[str, str]]
) -> None:
    address = "?shop[query]=boots&shop[toggle][in_stock]=true&shop[refinementList][brand][0]=Polar"
    page = visit(f"{SHOP}{address}")
    boots = [row for row in products if row["categories.lvl1"].endswith("Boots")]
    kept = [row for row in boots if row["in_stock"] == "true" and row["brand"] == "Polar"]
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{len(kept)} result")
    expect(page.locator(".ais-Highlight mark").first).to_have_text("boots")
    page.locator("#clear button").click()
    expect(page.locator(".ais-Stats-text")).to_contain_text(f"{len(boots)} results")


def settles(request: Request) -> bool:
    """Whether it tells that a query stays."""
    return request.url.endswith("/v1/events") and "object_id" not in (request.post_data or "")


def test_autocomplete(visit: Visit, service: Service) -> None:
    page = visit("/tests/javascript/autocomplete.html")
    page.get_by_role("combobox").fill("ra")
    reply = httpx.get(f"{service.url}/v1/complete?prefix=ra&model=shop&limit=3").json()
    wanted = [one["text"] for one in reply["completions"]]
    wanted += [hit["fields"]["title"] for hit in asked(service, "ra", limit=5)["hits"]]
    assert len(wanted) >= 6
    rows = page.get_by_role("row")
    expect(rows).to_have_text(wanted)


def test_completions_beside_a_search_take_nothing_from_it(visit: Visit) -> None:
    page = visit("/tests/javascript/autocomplete.html")
    page.get_by_role("combobox").wait_for()
    with page.expect_request(settles):
        page.evaluate(
            """() => Promise.all(["shop", "shop:completions"].map((indexName) =>
                searchClient.search([{ indexName, params: { query: "rain" } }])))"""
        )


@BOTH
def test_clicks_and_views_become_events(visit: Visit, service: Service, address: str) -> None:
    page = visit(address)
    expect(page.locator(".ais-Stats-text")).to_contain_text("96 results")
    query = f"rain jacket {address.count('j')}"
    with page.expect_response("**/v1/search:batch") as found:
        search(page, query)
    answer = found.value.json()["answers"][0]
    shown = [hit["id"] for hit in answer["hits"]]
    log = EventLog(service.events)

    def stored(action: str) -> list[str | None]:
        events = [
            event for event in log.events() if event.texts.get("query_id") == answer["query_id"]
        ]
        return [event.object_id for event in events if event.action == action]

    wait_until(lambda: stored("impression") == [*shown, None])  # the last one once the query stays
    page.route("**/products/*.html", lambda route: route.fulfill(body="a product"))
    page.locator(".ais-Hits h3 a").nth(1).click()
    page.wait_for_url("**/products/*.html")
    wait_until(lambda: stored("click") == [shown[1]])
    (served,) = [one for one in log.lists() if one.query_id == answer["query_id"]]
    assert (served.text, list(served.ids)) == (query, shown)
    (click,) = [
        event
        for event in log.events()
        if event.is_click and event.texts.get("query_id") == served.query_id
    ]
    assert click.person == served.person is not None


# Each answer comes after the next letter. React takes a value only from the setter of the element's class.
TYPING = """async (text) => {
    const wait = (ms) => new Promise((done) => setTimeout(done, ms));
    const { fetch } = window;
    window.fetch = async (...request) => {
        const reply = await fetch(...request);
        await wait(300);
        return reply;
    };
    const box = document.querySelector(".ais-SearchBox-input");
    const { set } = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
    for (let end = 1; end <= text.length; end++) {
        set.call(box, text.slice(0, end));
        box.dispatchEvent(new Event("input", { bubbles: true }));
        await wait(200);
    }
}"""


@BOTH
def test_only_a_query_that_stays_counts(visit: Visit, service: Service, address: str) -> None:
    page = visit(address)
    text = f"lamp{address.count('j')}"

    with page.expect_request(settles) as settled:
        # By the clock of the page: the test itself may wait longer between two letters than a query has to stay.
        page.locator(".ais-SearchBox-input").first.wait_for()
        page.evaluate(TYPING, text)
    (event,) = json.loads(settled.value.post_data or "")
    log = EventLog(service.events)
    wait_until(lambda: any(one.query_id == event["query_id"] for one in log.lists()))
    typed = [one for one in log.lists() if text.startswith(one.text)]
    assert all(one.typing for one in typed)
    assert len(typed) > 1
    assert [one.text for one in typed if one.query_id == event["query_id"]] == [text]
