"""The search box completes what is typed: a combobox whose list is used by keyboard and by pointer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser.support import violations

pytestmark = pytest.mark.browser

COMPLETIONS = [
    {"text": "copy files", "kind": "query"},
    {"text": "Copy", "kind": "title"},
    {"text": "copying <b>", "kind": "word"},
]


@pytest.fixture
def typing(browser: Browser, url: str) -> Iterator[Page]:
    """A page whose completions are COMPLETIONS, whatever is typed."""
    context = browser.new_context()
    page = context.new_page()
    page.route("**/v1/complete?*", lambda route: route.fulfill(json={"completions": COMPLETIONS}))
    page.goto(f"{url}/console")
    expect(page.locator("#model option")).to_have_count(3)
    yield page
    context.close()


def open_list(page: Page) -> tuple[Locator, Locator]:
    """Type a few letters. Returns the box and the options."""
    box = page.get_by_role("combobox", name="Search")
    box.press_sequentially("copy", delay=20)
    options = page.get_by_role("listbox", name="Completions").get_by_role("option")
    # What is already typed is no completion.
    expect(options).to_have_text(["copy files", "copying <b>"])
    expect(box).to_have_attribute("aria-expanded", "true")
    assert violations(page) == []
    return box, options


def test_a_completion_is_chosen_by_keyboard(typing: Page, url: str) -> None:
    box, options = open_list(typing)
    for place in (0, 1):
        typing.keyboard.press("ArrowDown")
        expect(options.nth(place)).to_have_attribute("aria-selected", "true")
        active = box.get_attribute("aria-activedescendant")
        assert active == options.nth(place).get_attribute("id")
        expect(box).to_be_focused()
        expect(box).to_have_value("copy")  # until one is chosen
    typing.keyboard.press("ArrowDown")
    expect(typing.locator("[aria-selected=true]")).to_have_count(0)
    typing.keyboard.press("ArrowDown")
    typing.keyboard.press("Enter")
    expect(box).to_have_value("copy files")
    expect(box).to_have_attribute("aria-expanded", "false")
    expect(typing.locator("#heading")).to_have_text("Results for “copy files”")
    expect(typing.locator(".hit").first).to_be_visible()
    assert typing.url == f"{url}/console#q=copy+files"


def test_a_completion_is_chosen_by_pointer(typing: Page) -> None:
    box, options = open_list(typing)
    options.nth(1).click()
    expect(box).to_have_value("copying <b>")
    expect(box).to_be_focused()
    expect(options.first).to_be_hidden()


def test_escape_closes_the_list_and_the_arrows_reach_the_hits(typing: Page) -> None:
    box, options = open_list(typing)
    # The row of completions covers no result, and moves none when it goes.
    first = typing.locator(".hit").first
    expect(first).to_be_visible()
    row, top = typing.locator("#completions").bounding_box(), first.bounding_box()
    assert row is not None
    assert top is not None
    assert row["y"] + row["height"] <= top["y"]
    typing.keyboard.press("Escape")
    expect(options.first).to_be_hidden()
    expect(box).to_have_value("copy")
    assert first.bounding_box() == top
    typing.keyboard.press("ArrowDown")
    expect(typing.locator(".open").first).to_be_focused()


def test_leaving_the_box_closes_the_list(typing: Page) -> None:
    _, options = open_list(typing)
    typing.keyboard.press("Tab")
    expect(options.first).to_be_hidden()


def test_the_search_goes_on_without_completions(typing: Page) -> None:
    def fail(route: Route) -> None:
        route.fulfill(status=503, body="")

    typing.unroute("**/v1/complete?*")
    typing.route("**/v1/complete?*", fail)
    box = typing.get_by_role("combobox", name="Search")
    box.press_sequentially("copy", delay=20)
    expect(typing.locator(".hit").first).to_be_visible()
    expect(box).to_have_attribute("aria-expanded", "false")
    expect(typing.locator("#status.error")).to_have_count(0)


def test_the_service_completes_words(browser: Browser, url: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/console")
    expect(page.locator("#model option")).to_have_count(3)
    for _ in range(100):  # The service reads what it completes in the background.
        if page.request.get(f"{url}/v1/complete?prefix=direc").json()["completions"]:
            break
        page.wait_for_timeout(100)
    page.get_by_role("combobox", name="Search").press_sequentially("direc", delay=20)
    completions = page.get_by_role("listbox", name="Completions").get_by_role("option")
    expect(completions).to_have_text(["directory", "directories"])
    context.close()
