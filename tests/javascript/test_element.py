"""<fullrank-search> on the example site, whose origin is not that of the service."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from fullrank.events.log import EventLog
from fullrank.events.records import Event
from tests.browser.support import violations
from tests.javascript.conftest import BUILT, ROOT, Service, Site, wait_until

pytestmark = pytest.mark.browser

SITE = "/examples/docs-site/"
SERVED = ROOT / "service/fullrank_service/page" / BUILT.name
Visit = Callable[..., Page]


def opened(page: Page, query: str = "") -> Page:
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    if query:
        page.keyboard.type(query)
    return page


@pytest.fixture
def inline(visit: Visit, site: Site, service: Service) -> Callable[[str], Page]:
    """Show the element in place of a button, on a page whose policy permits no more than it needs."""

    def shown(attributes: str) -> Page:
        element = f'<fullrank-search inline model="docs" {attributes}></fullrank-search>'
        script = f'<script src="{service.url}/{BUILT.name}" defer></script>'
        body = f'<!doctype html><html lang="en"><title>Test</title>{script}<main><h1>Test</h1>{element}</main>'
        policy = f"default-src 'none'; script-src {service.url}; connect-src {service.url}"
        site.pages["/inline.html"] = body, policy
        return visit("/inline.html", allowed="favicon")

    return shown


def test_the_service_serves_what_the_sources_build(service: Service) -> None:
    reason = "run: cd clients/javascript && npm run build && npm run publish-script"
    assert SERVED.read_bytes() == BUILT.read_bytes(), reason
    assert httpx.get(f"{service.url}/{BUILT.name}").content == BUILT.read_bytes()


def test_the_keyboard_finds_and_opens_a_page(visit: Visit, service: Service) -> None:
    page = opened(visit(SITE), "passphrse")
    hits = page.get_by_role("option")
    expect(hits.first).to_contain_text("Encrypt backups")
    assert set(hits.first.locator("mark").all_inner_texts()) == {"passphrase"}
    expect(
        page.get_by_role("button", name="passphrase", exact=True)
    ).to_be_visible()  # did you mean
    expect(page.get_by_role("status")).to_have_text("2 results")
    box = page.get_by_role("combobox")
    for key, place in (("ArrowDown", 0), ("ArrowDown", 1), ("ArrowDown", 0), ("ArrowUp", 1)):
        page.keyboard.press(key)
        expect(hits.nth(place)).to_have_attribute("aria-selected", "true")
        expect(box).to_have_attribute("aria-activedescendant", f"option-{place}")
    page.keyboard.press("Enter")
    page.wait_for_url("**/restore.html")
    log = EventLog(service.events)
    wait_until(lambda: any(one.text == "passphrse" for one in log.lists()))
    served = next(one for one in log.lists() if one.text == "passphrse")

    def reported() -> list[Event]:
        found = (one for one in log.events() if one.texts.get("query_id") == served.query_id)
        return [one for one in found if one.is_click]

    wait_until(lambda: bool(reported()))
    (click,) = reported()
    assert (click.action, click.object_id) == ("click", "restore.html")
    assert click.person == served.person is not None
    assert served.typing


def test_recent_searches_come_back_and_can_be_cleared(visit: Visit) -> None:
    page = opened(visit(SITE), "backup")
    page.get_by_role("option").first.click()
    page.wait_for_url("**/*.html")
    opened(page)
    expect(page.get_by_role("listbox")).to_have_accessible_name("Recent searches")
    expect(page.get_by_role("option")).to_have_text(["backup"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("listbox")).to_have_accessible_name("Search results")
    expect(page.get_by_role("combobox")).to_have_value("backup")
    page.get_by_role("combobox").fill("")
    page.get_by_role("button", name="Clear recent searches").click()
    expect(page.get_by_role("option")).to_have_count(0)


def test_the_dialog_opens_and_closes(visit: Visit) -> None:
    page = visit(SITE)
    button = page.get_by_role("button", name="Search")
    dialog = page.get_by_role("dialog")
    button.click()
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    opened(page)
    page.keyboard.press("Control+k")
    expect(dialog).to_be_hidden()
    button.click()
    page.mouse.click(5, 5)
    expect(dialog).to_be_hidden()
    button.click()
    page.get_by_role("button", name="Close search").click()
    expect(dialog).to_be_hidden()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit: Visit, scheme: str, width: int) -> None:
    page = visit(SITE, viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert violations(page) == []
    opened(page)
    assert violations(page) == []
    page.keyboard.type("backpu")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    assert violations(page) == []
    page.get_by_role("combobox").fill("zzzqqx")
    expect(page.get_by_text("Check the spelling")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("combobox").fill("backup")
    page.get_by_role("option").first.click()
    page.wait_for_url("**/schedule.html")
    opened(page)
    expect(page.get_by_role("option")).to_have_text(["backup"])
    assert violations(page) == []
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1] == width


def test_texts_have_their_own_direction(visit: Visit) -> None:
    page = opened(visit(SITE + "arabic.html"), "Kettle")
    directions = """options => options.map((option) => [option, ...option.querySelectorAll(".title, .text, bdi")]
        .slice(1).map((part) => getComputedStyle(part).direction))"""
    found = page.get_by_role("option")
    expect(found.filter(has_text="دليل")).not_to_have_count(0)
    by_title = dict(
        zip(found.locator(".title").all_inner_texts(), found.evaluate_all(directions), strict=True)
    )
    assert by_title["دليل البدء"] == ["rtl", "ltr", "rtl"]
    assert by_title["Install Kettle"] == ["ltr", "ltr", "ltr"]
    expect(page.get_by_role("combobox")).to_have_css("direction", "ltr")


def test_an_inline_box_works_under_a_strict_policy(inline: Callable[[str], Page]) -> None:
    page = inline("""private limit="2" filter='{"not": {"title": "Encrypt backups"}}'""")
    box = page.get_by_role("combobox")
    with page.expect_request("**/v1/events") as settled:  # a query that stays is a search
        box.fill("backups")
        expect(page.get_by_role("option")).to_have_count(2)
    assert "impression" in (settled.value.post_data or "")
    expect(page.get_by_role("status")).to_have_text("4 results")
    expect(page.get_by_role("option").first).to_have_css("display", "block")
    assert violations(page) == []
    page.get_by_role("option").first.click(modifiers=["ControlOrMeta"])
    assert page.evaluate("localStorage.length") == 0
    box.press("Escape")
    expect(page.get_by_role("option")).to_have_count(0)


def test_a_failure_is_said_and_can_be_repeated(visit: Visit) -> None:
    page = visit(SITE, allowed="FullrankError")
    answers: list[str] = ["down", "slow"]

    def answer(route: Route) -> None:
        if not answers:
            route.continue_()
        elif answers.pop(0) == "down":
            route.fulfill(
                status=503,
                content_type="application/problem+json",
                body='{"detail": "No model is loaded."}',
            )
        else:
            waiting.append(route)

    waiting: list[Route] = []
    page.route("**/v1/search", answer)
    opened(page, "backups")
    expect(page.get_by_role("status")).to_have_text("The search does not answer.")
    assert violations(page) == []
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("status")).to_have_text("Still searching…")
    waiting[0].continue_()
    expect(page.get_by_role("option").first).to_be_visible()


def test_only_the_newest_query_is_shown(visit: Visit) -> None:
    page = visit(SITE)
    waiting: list[Route] = []
    page.route("**/v1/search", lambda route: waiting.append(route))
    with page.expect_request("**/v1/search"):
        opened(page, "restore")
    # The stale request is aborted.
    with page.expect_event("requestfailed"), page.expect_request("**/v1/search"):
        page.get_by_role("combobox").fill("encrypt")
    page.wait_for_timeout(50)
    waiting[1].continue_()
    expect(page.get_by_role("option").first).to_contain_text("Encrypt backups")


def test_the_page_may_take_a_choice_over(visit: Visit) -> None:
    page = visit(SITE)
    page.evaluate(
        """addEventListener("fullrank-select", (event) => { event.preventDefault(); window.chosen = event.detail; })"""
    )
    address = page.url
    opened(page, "passphrase")
    page.get_by_role("option").first.click()
    assert page.evaluate("chosen.id") == "encryption.html"
    assert page.evaluate("new URL(chosen.url).pathname") == "/examples/docs-site/encryption.html"
    assert page.url == address
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_labels_can_be_translated(inline: Callable[[str], Page]) -> None:
    page = inline("""labels='{"placeholder": "Suchen", "count": "{n} Treffer"}'""")
    page.get_by_role("combobox", name="Suchen").fill("backups")
    expect(page.get_by_role("status")).to_have_text("5 Treffer")


def test_only_words_of_the_query_are_marked(visit: Visit) -> None:
    page = visit(SITE)
    spans = [[0, 5, "meaning"], [8, 12, "word"]]
    hit = {
        "id": "1",
        "score": 1,
        "fields": {"title": "Greek 🍸 ouzo", "url": "/ouzo"},
        "highlight": {"title": {"snippet": "Greek 🍸 ouzo", "spans": spans}},
    }
    reply = {"query_id": "q", "hits": [hit], "total": 1, "did_you_mean": None}
    page.route("**/v1/search", lambda route: route.fulfill(json=reply))
    opened(page, "ouzo")
    expect(page.get_by_role("option")).to_contain_text("Greek 🍸 ouzo")
    assert page.locator("fullrank-search mark").all_inner_texts() == ["ouzo"]


def test_an_address_of_a_script_is_no_link(visit: Visit) -> None:
    page = visit(SITE)
    hit = {
        "id": "1",
        "score": 1,
        "fields": {"title": "<b>x</b>", "url": "javascript:alert(1)"},
        "highlight": None,
    }
    reply = {"query_id": "q", "hits": [hit], "total": 1, "did_you_mean": None}
    page.route("**/v1/search", lambda route: route.fulfill(json=reply))
    opened(page, "x")
    option = page.get_by_role("option")
    expect(option).to_have_text("<b>x</b>")
    assert option.get_attribute("href") is None
