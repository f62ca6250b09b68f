"""The side panel, further hits, examples, and the views of matching and of models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.support import KEY, at, make_bundle, served
from tests.browser.support import answer_searches, ask, titles, violations

pytestmark = pytest.mark.browser


@pytest.fixture
def tools(browser: Browser, grouped: str) -> Iterator[Page]:
    """The page of that server."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.route("**/v1/complete?*", lambda route: route.fulfill(json={"completions": []}))
    page = context.new_page()
    page.goto(f"{grouped}/console")
    expect(page.locator("#model option")).to_have_count(5)
    yield page
    context.close()


def test_the_side_panel_filters_by_several_values_and_back_undoes_it(tools: Page) -> None:
    ask(tools, "copy")
    section = tools.get_by_role("group", name="section")
    expect(section.locator("label")).to_have_text(["mail15", "net15", "shells15"])
    box = section.get_by_role("checkbox", name="net")
    box.focus()
    tools.keyboard.press("Space")
    expect(tools.get_by_role("status")).to_contain_text("15 documents found")
    # Other values of the field still count what choosing them would add; the focus stays.
    expect(section.locator("label")).to_have_text(["mail15", "net15", "shells15"])
    expect(box).to_be_focused()
    section.get_by_role("checkbox", name="mail").check()
    expect(tools.get_by_role("status")).to_contain_text("30 documents found")
    limits = tools.locator("#limits button")
    expect(limits).to_have_text(["section: net×", "section: mail×", "Remove all"])
    tools.go_back()
    expect(tools.get_by_role("status")).to_contain_text("15 documents found")
    expect(section.get_by_role("checkbox", name="mail")).not_to_be_checked()
    tools.get_by_role("button", name="Remove section: net").click()
    expect(tools.get_by_role("status")).to_contain_text("45 documents found")


def test_a_phone_filters_in_a_drawer_and_says_what_filters(phone: Page, grouped: str) -> None:
    phone.goto(f"{grouped}/#q=copy")
    phone.get_by_role("button", name="Filters").tap()
    drawer = phone.get_by_role("dialog", name="Filters")
    drawer.get_by_role("checkbox", name="net").check()
    expect(phone.locator("#status")).to_have_text("15 documents found")
    expect(drawer).to_be_visible()
    drawer.get_by_role("button", name="Show the results").tap()
    expect(drawer).to_be_hidden()
    # Another query keeps the filter, and says so.
    box = phone.get_by_role("combobox", name="Search")
    box.fill("files")
    box.press("Enter")
    expect(phone.locator("#heading")).to_have_text("Results for “files”")
    expect(box).not_to_be_focused()  # its keyboard would hide the results
    expect(phone.locator("#limits button")).to_have_text(["section: net×"])
    expect(phone.get_by_role("button", name="Filters (1)")).to_be_visible()
    phone.get_by_role("button", name="Remove section: net").tap()
    expect(phone.locator("#status")).to_have_text("45 documents found")
    expect(phone.get_by_role("button", name="Filters", exact=True)).to_be_visible()
    # Where nothing was found there is nothing to filter.
    none = {"values": [], "distinct": 0, "missing": 0, "min": None, "max": None}
    answer_searches(phone, {"none": []}, facets={"section": none}, did_you_mean=None)
    box.fill("none")
    box.press("Enter")
    expect(phone.get_by_text("Nothing found for “none”.")).to_be_visible()
    expect(phone.get_by_role("button", name="Filters", exact=True)).to_be_hidden()


SECTIONS = {"section": {"in": ["net", "mail"]}}
YEARS = {"year": {"gte": 1990, "lt": 2020}}
MANY = {**SECTIONS, "or": [{"year": {"gt": 1000 + i}} for i in range(9)], **YEARS}


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
@pytest.mark.parametrize("filter", [SECTIONS, MANY], ids=["two", "many"])
def test_active_filters_take_one_row_of_a_phone(
    phone: Page, grouped: str, filter: dict[str, Any], direction: str
) -> None:
    phone.goto(f"{grouped}/#q=copy&filter={quote(json.dumps(filter))}")
    expect(phone.locator(".hit").first).to_be_visible()
    phone.evaluate("direction => document.dir = direction", direction)
    top = phone.locator(".hit").first.bounding_box()
    assert top is not None
    assert top["y"] <= 260
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    # The row scrolls to its end; the button that removes all of it is always there.
    remove = phone.get_by_role("button", name="Remove all")
    last = phone.locator(".limit").last
    expect(remove).to_be_in_viewport(ratio=1)
    last.scroll_into_view_if_needed()
    expect(last).to_be_in_viewport()
    assert violations(phone) == []
    remove.tap()
    expect(phone.locator("#status")).to_have_text("45 documents found")
    expect(phone.locator("#limits")).to_be_hidden()


def test_each_active_filter_is_taken_back_alone(tools: Page, grouped: str) -> None:
    address = quote(json.dumps({**MANY, "title": {"exists": True}}))
    tools.goto("about:blank")
    tools.goto(f"{grouped}/#q=copy&filter={address}")
    limits = tools.locator(".limit")
    expect(limits.nth(0)).to_have_text("section: net×")
    expect(limits.nth(1)).to_have_text("section: mail×")
    expect(limits.nth(2)).to_contain_text('or: [{"year":{"gt":1000}}')
    expect(limits.nth(3)).to_have_text("year: 1990 to 2020×")
    expect(limits.nth(4)).to_have_text('title: {"exists":true}×')
    limits.nth(2).click()
    expect(tools.locator("#heading")).to_be_focused()
    expect(limits).to_have_count(4)
    limits.nth(0).click()
    expect(limits).to_have_count(3)
    left = {"section": "mail", **YEARS, "title": {"exists": True}}
    kept = parse_qs(urlsplit(tools.url).fragment)["filter"]
    assert [json.loads(text) for text in kept] == [left]
    expect(tools.get_by_role("status")).to_have_text("10 documents found")


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"gt": 5}, "above 5"),
        ({"gte": 5}, "from 5"),
        ({"lt": 5}, "below 5"),
        ({"lte": 5}, "up to 5"),
        ({"gte": "2026-01-30", "lt": "2026-03-01"}, "2026-01-30 to 2026-02-28"),
        ({"lt": "2026-03-01"}, "up to 2026-02-28"),
    ],
)
def test_a_range_is_said_in_words(page: Page, bounds: dict[str, Any], words: str) -> None:
    found: list[dict[str, str]] = page.evaluate(
        'async filter => (await import("/filters.js")).partsOf(filter)', json.dumps({"x": bounds})
    )
    assert found == [{"label": f"x: {words}", "rest": ""}]


def test_numbers_are_filtered_by_a_range(tools: Page) -> None:
    ask(tools, "copy")
    year = tools.get_by_role("group", name="year")
    expect(year.get_by_label("from")).to_have_attribute("placeholder", "1980")
    expect(year.get_by_label("to")).to_have_attribute("placeholder", "2024")
    year.get_by_label("from").fill("2000")
    year.get_by_label("to").fill("2004")
    tools.keyboard.press("Enter")
    expect(tools.get_by_role("status")).to_contain_text("5 documents found")
    expect(tools.locator("#limits button")).to_have_text(["year: 2000 to 2004×"])
    # The section counts what is left.
    expect(tools.get_by_role("group", name="section").locator("label")).to_have_text(
        ["net2", "shells2", "mail1"]
    )


def test_more_adds_hits_until_there_are_no_more(tools: Page, grouped: str) -> None:
    ask(tools, "copy")
    for shown in (20, 30):
        tools.get_by_role("button", name="More", exact=True).click()
        expect(tools.locator(".hit")).to_have_count(shown)
        expect(tools.locator(".open").nth(shown - 10)).to_be_focused()
    found = titles(tools)
    assert len(set(found)) == 30
    tools.goto(f"{grouped}/livez")
    tools.go_back()
    expect(tools.locator(".hit")).to_have_count(30)
    assert titles(tools) == found
    for _ in range(2):
        tools.get_by_role("button", name="More", exact=True).click()
        expect(tools.locator("#results:not(.stale)")).to_be_visible()
        tools.wait_for_timeout(300)
    expect(tools.locator(".hit")).to_have_count(45)
    expect(tools.get_by_role("button", name="More", exact=True)).to_be_hidden()


def test_the_empty_page_has_three_examples_that_find_something(tools: Page, grouped: str) -> None:
    examples = tools.locator("#examples a")
    expect(examples).to_have_count(3)
    text = examples.first.inner_text()
    assert text.startswith("copy tool ")
    examples.first.click()
    expect(tools.locator(".hit").first).to_be_visible()
    expect(tools.get_by_role("combobox", name="Search")).to_have_value(text)
    expect(tools.locator("#heading")).to_be_focused()
    tools.go_back()
    expect(examples.first).to_be_visible()
    assert tools.url == f"{grouped}/console"


def test_nothing_found_is_said_and_a_likely_query_offered(page: Page) -> None:
    answer_searches(page, {"coffe": []}, did_you_mean="coffee")
    box = page.get_by_role("combobox", name="Search")
    box.fill("coffe")
    expect(page.get_by_text("Nothing found for “coffe”.")).to_be_visible()
    expect(box).to_have_value("coffe")  # nothing is replaced unasked
    expect(page.get_by_text("Check the spelling.")).to_be_visible()
    expect(page.get_by_text("Remove the filter.")).to_be_hidden()
    answer_searches(page, {"coffee": [], "coffe": []}, did_you_mean=None)
    page.get_by_role("button", name="coffee").click()
    expect(box).to_have_value("coffee")
    expect(page.locator("#meant")).to_be_hidden()
    page.go_back()
    expect(box).to_have_value("coffe")


def test_a_page_fills_placements_and_back_returns_to_what_was_matched(tools: Page) -> None:
    tools.get_by_role("link", name="Match").click()
    expect(tools.get_by_role("heading", name="Match a page")).to_be_focused()
    text = tools.get_by_role("textbox", name="Text")
    text.fill("how to copy files")
    tools.get_by_label("Documents in each").fill("4")
    tools.get_by_role("button", name="Match").click()
    places = tools.locator("#placements section")
    expect(places).to_have_count(2)
    assert [place.locator(".hit").count() for place in places.all()] == [4, 4]
    placed = titles_in(tools)
    assert len(set(placed)) == 8
    first = places.first.locator(".open").first
    with tools.expect_response("**/v1/events") as reported:
        first.click()
    assert reported.value.json()["kept"] == 1
    text.fill("tool 7")
    tools.get_by_role("button", name="Match").click()
    expect(tools.locator(".hit h3").first).to_have_text("copy tool 7")
    tools.go_back()
    expect(text).to_have_value("how to copy files")
    expect(tools.locator(".hit h3").first).to_have_text(placed[0])
    tools.get_by_role("link", name="Search").click()
    expect(tools.locator("#match")).to_be_hidden()
    tools.go_back()
    expect(text).to_have_value("how to copy files")


def titles_in(page: Page) -> list[str]:
    return page.locator("#placements .hit h3").all_inner_texts()


def test_a_swap_needs_an_admin_key_that_is_kept_nowhere(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "bundles"
    old = make_bundle(root, "old", created=at(1))
    new = make_bundle(root, "new", created=at(2))
    with served(root) as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{address}/console#view=models")
        versions = page.locator("#versions li")
        expect(versions).to_have_count(2)
        expect(versions.first).to_contain_text("active")
        expect(page.get_by_role("status")).to_have_text("2 versions")
        swap = page.get_by_role("button", name=f"Make active: {old}")
        swap.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#status.error")).to_contain_text("API key")
        expect(page.get_by_label("Admin key")).to_be_focused()
        page.keyboard.type(KEY)
        swap.click()
        expect(page.get_by_role("status")).to_contain_text(f"{old} serves, in all 1 workers")
        expect(page.get_by_role("button", name=f"Make active: {new}")).to_be_visible()
        expect(page.locator("#model option").first).to_have_text("default · old")
        kept = page.evaluate(
            "[Object.values(sessionStorage), Object.values(localStorage), document.cookie]"
        )
        assert KEY not in str(kept)
        page.reload()
        expect(page.get_by_label("Admin key")).to_have_value("")
        context.close()
