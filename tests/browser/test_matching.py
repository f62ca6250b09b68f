"""The view that matches a page: rules of the page, ads left out, placements that stay short."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.support import ADS, violations

pytestmark = pytest.mark.browser


@pytest.fixture
def form(browser: Browser, grouped: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(f"{grouped}/console#view=match&model=ads")
    page.get_by_text("Rules of the page").click()
    page.get_by_label("Text", exact=True).fill("copy files")
    page.get_by_label("Placements").fill("1")
    page.get_by_label("Documents in each").fill("10")
    yield page
    context.close()


def placed(page: Page) -> set[str]:
    """Match, and return the titles of what is placed."""
    with page.expect_response("**/v1/match"):
        page.get_by_role("button", name="Match").click()
    expect(page.locator("#placements section")).not_to_have_count(0)
    return set(page.locator("#placements .hit h3").all_inner_texts())


def left_out(page: Page) -> Locator:
    return page.locator("#left-out")


def test_what_is_left_out_is_counted_and_short_placements_are_named(form: Page) -> None:
    """Of two ads of one advertiser the page gets one; the other rules leave out what the documents say."""
    found = placed(form)
    assert found & {"boots", "shoes"} == found - {"plain", "wine", "cheap", "gants"}
    assert len(found) == 5
    expect(left_out(form)).to_have_text(
        "Left out of the page: 1 × paused (status), 1 × advertiser already has its ads (per_advertiser)."
    )
    note = form.locator("#placements .nothing")
    expect(note).to_have_text("5 of 10 filled: no other document fits.")
    wine = form.locator('.hit[data-id="wine"]')
    expect(wine.locator(".offer")).to_have_text("Ad · wine.example · 2 USD")
    expect(form.locator('.hit[data-id="plain"] .offer')).to_be_hidden()
    assert violations(form) == []


@pytest.mark.parametrize(
    ("field", "value", "absent", "reason"),
    [
        ("Blocked categories of ads", "7, 552", {"wine"}, "1 × blocked category (bcat)"),
        ("Blocked domains of advertisers", "example", set(ADS) - {"plain"}, "5 × blocked advertiser (badv)"),
        ("Blocked domains of advertisers", "wine.example, cheap.example", {"wine", "cheap"}, "2 × blocked advertiser"),
        ("Ads of one advertiser", "2", set(), "1 × paused (status)."),
        ("Targeting filter", '{"language": "fr"}', set(ADS) - {"gants"}, ""),
    ],
)  # fmt: skip
def test_each_rule_of_the_page_leaves_out_what_it_should(
    form: Page, field: str, value: str, absent: set[str], reason: str
) -> None:
    form.get_by_label("Ads of one advertiser").fill("9")
    form.get_by_label(field).fill(value)
    assert placed(form) == set(ADS) - absent - {"paused"}
    if reason:
        expect(left_out(form)).to_contain_text(reason)
    else:
        expect(left_out(form)).to_be_hidden()


def test_floors_leave_placements_empty_and_say_so(form: Page) -> None:
    form.get_by_label("Ads of one advertiser").fill("9")
    form.get_by_label("Least price").fill("2")
    assert placed(form) == set(ADS) - {"paused", "cheap"}
    note = form.locator("#placements .nothing")
    expect(note).to_have_text(
        "5 of 10 filled: no other document fits. Left out here: 1 × price too low (bidfloor)."
    )
    form.get_by_label("Least score").fill("1000")
    assert placed(form) == set()
    expect(note).to_contain_text("Not filled: no other document fits.")
    # Back returns to the rules and to what they placed.
    form.go_back()
    expect(form.get_by_label("Least score")).to_have_value("")
    expect(form.get_by_label("Least price")).to_have_value("2")
    expect(form.locator("#placements .hit")).to_have_count(5)
    form.reload()
    expect(form.get_by_label("Least price")).to_be_visible()
    expect(form.locator("#placements .hit")).to_have_count(5)


def test_the_address_of_a_known_page_is_enough(form: Page, grouped: str) -> None:
    form.get_by_label("Text", exact=True).fill("")
    form.get_by_label("Address of the page").fill("https://news.example/a")
    form.get_by_role("button", name="Match").click()
    expect(form.locator("#status.error")).to_contain_text("no text is kept for it")
    page = {"url": "https://news.example/a", "text": "copy files"}
    assert httpx.put(f"{grouped}/v1/pages", json=page).status_code == 200
    assert "plain" in placed(form)


def test_rules_that_are_wrong_are_refused_with_the_reason(form: Page) -> None:
    form.get_by_label("Targeting filter").fill("{")
    form.get_by_role("button", name="Match").click()
    expect(form.locator("#status.error")).to_have_text("The targeting filter is not JSON.")
    form.get_by_label("Targeting filter").fill('{"colour": "red"}')
    form.get_by_role("button", name="Match").click()
    expect(form.locator("#status.error")).to_contain_text("targeting.colour")
    expect(form.locator("#placements section")).to_have_count(0)
