"""The page at /, as visitors of a site see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.support import answer_searches, ask, explain, hit, violations

pytestmark = pytest.mark.browser


@pytest.fixture
def site(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900}, base_url=url)
    page = context.new_page()
    page.goto("/")
    expect(page.locator("#model option")).to_have_count(3)
    yield page
    context.close()


def test_visitors_see_results_and_nothing_for_operators(site: Page) -> None:
    ask(site, "copy files")
    expect(site.locator("#status")).to_have_text("7 documents found")
    for hidden in ("#views", ".controls", ".hit .id"):
        expect(site.locator(hidden).first).to_be_hidden()
    site.goto("about:blank")
    site.goto("/#q=copy+files&view=clicks&with=bm25")
    expect(site.locator(".hit").first).to_be_visible()
    expect(site.locator(".column")).to_have_count(1)
    expect(site.locator("#clicks")).to_be_hidden()


def test_words_near_in_meaning_are_marked_with_the_reasons_only(site: Page) -> None:
    spans = [[0, 5, "word"], [6, 11, "meaning"]]
    marked = hit("d", title="Greek", highlight={"text": {"snippet": "Greek ouzo", "spans": spans}})
    marked["fields"]["text"] = "Greek ouzo"
    answer_searches(site, {"greek": [marked]})
    ask(site, "greek")
    meaning = site.locator("mark.meaning")
    assert "underline" not in meaning.evaluate("mark => getComputedStyle(mark).textDecoration")
    explain(site)
    assert "underline" in meaning.evaluate("mark => getComputedStyle(mark).textDecoration")


def test_a_page_shows_where_it_is(site: Page) -> None:
    url = "https://docs.example/guide/caf%C3%A9/%zz/intro.html?x=1"
    answer_searches(site, {"intro": [hit("d", title="Intro", url=url), hit("e", title="None")]})
    ask(site, "intro")
    crumbs = site.locator(".crumbs")
    expect(crumbs.first).to_have_text("docs.example › guide › café › %zz")
    expect(crumbs.nth(1)).to_be_hidden()


def test_the_first_hit_is_on_the_first_screen_of_a_phone(phone: Page) -> None:
    phone.goto("/#q=copy+files")
    expect(phone.locator(".hit").first).to_be_visible()
    box = phone.locator(".hit").first.bounding_box()
    assert box is not None
    assert box["y"] <= 260


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", ["", "#q=copy+files", "#q=zzzqqqxxy", "#q=x&model=nosuch"])
def test_the_page_is_accessible(browser: Browser, url: str, scheme: str, address: str) -> None:
    context = browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    page = context.new_page()
    page.goto(f"{url}/{address}")
    shown = ".hit, #nothing:not([hidden]), #empty:not([hidden]), #status.error"
    expect(page.locator(shown).first).to_be_visible()
    assert violations(page) == []
    context.close()
