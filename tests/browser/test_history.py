"""Back, Forward, shared addresses, and the focus after each."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import ask, hit_titled, titles

pytestmark = pytest.mark.browser


def test_back_and_forward_move_between_results_and_similar_documents(page: Page, url: str) -> None:
    page.locator("#model").select_option("bm25")
    ask(page, "markup files")
    found = titles(page)
    page.locator(".hit", has_text="taken").get_by_role("button", name="Similar to").click()
    expect(page.locator("#heading")).to_have_text(
        "Similar to <script>document.title='taken'</script>"
    )
    expect(page.locator(".hit", has_text="taken")).to_have_count(0)
    similar = titles(page)

    page.go_back()
    expect(page.locator("#heading")).to_have_text("Results for “markup files”")
    expect(page.locator(".hit", has_text="taken")).to_have_count(1)
    assert titles(page) == found
    assert page.url == f"{url}/console#q=markup+files&model=bm25"
    page.go_forward()
    expect(page.locator("#heading")).to_have_text(
        "Similar to <script>document.title='taken'</script>"
    )
    expect(page.locator(".hit", has_text="taken")).to_have_count(0)
    assert titles(page) == similar


def test_back_restores_focus_and_scroll_position(page: Page) -> None:
    page.set_viewport_size({"width": 600, "height": 400})
    ask(page, "copy files")
    similar = page.locator(".hit").nth(4).get_by_role("button", name="Similar to")
    similar.focus()
    scrolled = page.evaluate("scrollY")
    assert scrolled > 0
    page.keyboard.press("Enter")
    expect(page.locator("#heading")).to_be_focused()
    assert page.evaluate("scrollY") == 0
    page.go_back()
    expect(similar).to_be_focused()
    assert page.evaluate("scrollY") == scrolled


def test_similar_documents_are_announced(page: Page) -> None:
    ask(page, "copy files")
    hit_titled(page, "scp").get_by_role("button", name="Similar to").click()
    heading = page.get_by_role("heading", name="Similar to scp")
    expect(heading).to_be_focused()
    expect(heading).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("6 documents found")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Back to results")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#heading")).to_have_text("Results for “copy files”")
    expect(hit_titled(page, "scp").get_by_role("button", name="Similar to")).to_be_focused()


def test_a_shared_address_opens_similar_documents(page: Page, url: str) -> None:
    page.goto("about:blank")
    page.goto(f"{url}/console#q=copy+files&similar=linux%2Fscp&model=bm25")
    expect(page.locator("#heading")).to_have_text("Similar to linux/scp")
    expect(page.locator(".column")).to_be_visible()
    expect(hit_titled(page, "scp")).to_have_count(0)
    # There are no earlier results to go back to, so the button searches for the query.
    page.get_by_role("button", name="Back to results").click()
    expect(hit_titled(page, "scp")).to_have_count(1)
    assert page.url == f"{url}/console#q=copy+files&model=bm25"


def test_a_shared_address_opens_query_models_mode_and_filter(page: Page, url: str) -> None:
    page.goto("about:blank")
    page.goto(
        f"{url}/console#q=remote+host&model=learned&with=bm25&mode=exact&filter=%7B%22section%22%3A1%7D"
    )
    expect(page.locator(".column")).to_have_count(2)
    expect(page.get_by_role("combobox", name="Search")).to_have_value("remote host")
    expect(page.locator("#model")).to_have_value("learned")
    expect(page.locator(".limit")).to_have_text(["Mode: exact×", "section: 1×"])
    assert sorted(titles(page)) == ["cp", "mv", "ssh"]
    page.get_by_role("button", name="Remove all").click()
    expect(page.locator("#limits")).to_be_hidden()
    expect(page.locator(".column").first.locator(".hit")).to_have_count(7)
    page.go_back()
    expect(page.locator(".column").first.locator(".hit")).to_have_count(3)


def test_typing_a_query_makes_one_history_entry(page: Page, url: str) -> None:
    box = page.get_by_role("combobox", name="Search")
    box.press_sequentially("copy files", delay=150)
    expect(page.locator("#heading")).to_have_text("Results for “copy files”")
    box.press("Enter")
    expect(page.locator("#results:not(.stale) .hit").first).to_be_visible()
    box.fill("")
    box.press_sequentially("rename", delay=150)
    expect(page.locator("#heading")).to_have_text("Results for “rename”")
    page.go_back()
    expect(box).to_have_value("copy files")
    expect(page.locator(".hit").first).to_be_visible()
    page.go_back()
    expect(page.locator("#empty")).to_be_visible()
    assert page.url == f"{url}/console"


def test_back_undoes_the_choice_of_a_model(page: Page) -> None:
    ask(page, "copy files")
    found = titles(page)
    page.locator("#model").select_option("bm25")
    expect(page.locator("[data-model^=bm25-]")).to_be_visible()
    page.get_by_text("Side by side").click()
    expect(page.locator(".column")).to_have_count(2)
    page.go_back()
    expect(page.locator(".column")).to_have_count(1)
    expect(page.get_by_role("switch")).not_to_be_checked()
    page.go_back()
    expect(page.locator("[data-model^=learned-]")).to_be_visible()
    expect(page.locator("#model")).to_have_value("default")
    assert titles(page) == found


def test_the_skip_link_keeps_the_search(page: Page) -> None:
    ask(page, "copy files")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#heading")).to_be_focused()
    assert page.url.endswith("#q=copy+files")
    expect(page.locator(".hit").first).to_be_visible()


def test_back_goes_through_every_view_by_keyboard_alone(page: Page) -> None:
    """Each view is reached by its link; each Back returns to the one before, with its query and its heading."""
    page.get_by_role("combobox", name="Search").focus()
    page.keyboard.type("copy files")
    page.keyboard.press("Enter")
    expect(page.locator(".hit").first).to_be_visible()
    views = {"Match": "Match a page", "Models": "Models"}
    for link, heading in views.items():
        page.get_by_role("link", name=link, exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_focused()
        expect(page).to_have_title(f"{link} · Fullrank")
    page.go_back()
    expect(page.get_by_role("heading", name="Match a page")).to_be_visible()
    page.go_back()
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.get_by_role("combobox", name="Search")).to_have_value("copy files")
    page.go_forward()
    expect(page.get_by_role("heading", name="Match a page")).to_be_visible()
