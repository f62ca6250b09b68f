"""Messages for failures of the service, of a proxy in front of it, and of the network."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.support import ask

pytestmark = pytest.mark.browser

HTML = "<html><body><h1>502 Bad Gateway</h1></body></html>"
BUSY = {
    "type": "urn:fullrank:problem:overloaded",
    "title": "Too busy",
    "status": 503,
    "detail": "Too many requests are waiting.",
    "request_id": "1",
}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"status": 502, "body": HTML}, "The service is not reachable (502). Try again."),
        ({"status": 504, "body": ""}, "The service is not reachable (504). Try again."),
        (
            {"status": 500, "json": {"message": "a gateway's JSON"}},
            "The service is not reachable (500). Try again.",
        ),
        (
            {"status": 200, "body": HTML},
            "Something other than the search service answered (200). Try again.",
        ),
        (
            {"status": 200, "body": '{"hits": ['},
            "Something other than the search service answered (200). Try again.",
        ),
        ({"status": 413, "body": HTML}, "The request was refused (413)."),
        (
            {"status": 503, "body": HTML, "headers": {"Retry-After": "20"}},
            "The service is too busy or is starting (503). Try again in 20 seconds.",
        ),
        (
            {"status": 429, "body": "", "headers": {"Retry-After": "1"}},
            "Too many requests (429). Try again in 1 second.",
        ),
        (
            {"status": 503, "json": BUSY, "headers": {"Retry-After": "3"}},
            "Too many requests are waiting. Try again in 3 seconds.",
        ),
    ],
    ids=str,
)
def test_an_error_says_what_happened_and_when_to_try_again(
    page: Page, reply: dict[str, Any], message: str
) -> None:
    page.route("**/v1/search", lambda route: route.fulfill(**reply))
    page.get_by_role("combobox", name="Search").fill("copy")
    expect(page.locator("#status.error")).to_have_text(message)
    expect(page.locator(".hit")).to_have_count(0)
    expect(page.get_by_role("button", name="Try again")).to_be_visible(
        visible="Try again" in message
    )


def test_try_again_repeats_the_search(page: Page) -> None:
    page.route("**/v1/search", lambda route: route.abort())
    page.get_by_role("combobox", name="Search").fill("copy files")
    expect(page.locator("#status.error")).to_have_text(
        "The service is not reachable. Check your connection and try again."
    )
    page.unroute("**/v1/search")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#status.error")).to_have_count(0)
    expect(page.get_by_role("button", name="Try again")).to_be_hidden()
    expect(page.locator("#heading")).to_be_focused()


def test_a_service_that_never_answers_times_out(page: Page) -> None:
    page.clock.install()
    unanswered: list[Route] = []
    page.route("**/v1/search", lambda route: unanswered.append(route))
    page.get_by_role("combobox", name="Search").fill("copy")
    page.clock.run_for(450)
    expect(page.locator("#results.stale")).to_have_count(1)
    expect(page.locator("#skeleton")).to_be_visible()
    page.wait_for_timeout(50)
    page.clock.run_for(1_500)
    expect(page.locator("#status")).to_have_text("Still searching …")
    page.clock.run_for(7_500)
    expect(page.locator("#status.error")).to_have_count(0)
    page.clock.run_for(2_000)
    expect(page.locator("#status.error")).to_have_text(
        "The service did not answer within 10 seconds. Try again."
    )
    expect(page.locator("#skeleton")).to_be_hidden()
    assert len(unanswered) == 1


def test_hits_stay_while_the_service_may_recover(page: Page) -> None:
    ask(page, "copy files")
    page.route("**/v1/search", lambda route: route.abort())
    page.get_by_role("combobox", name="Search").fill("rename")
    expect(page.locator("#status.error")).to_contain_text("not reachable")
    expect(page.locator("#results.stale .hit").first).to_be_visible()
    page.unroute("**/v1/search")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#results:not(.stale) .hit").first).to_be_visible()


def test_the_page_recovers_from_a_service_that_was_down_at_first(page: Page) -> None:
    page.route("**/v1/models", lambda route: route.fulfill(status=502, body=HTML))
    page.reload()
    expect(page.locator("#status.error")).to_have_text(
        "The service is not reachable (502). Try again."
    )
    page.unroute("**/v1/models")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#status.error")).to_have_count(0)
    expect(page.locator("#model option")).to_have_count(3)
    ask(page, "copy")


def test_a_filter_in_the_address_that_is_not_json_is_reported(page: Page, url: str) -> None:
    page.goto(f"{url}/console#q=copy&filter=section")
    expect(page.locator("#status.error")).to_have_text("The filter in the address is not JSON.")
    expect(page.get_by_role("button", name="Try again")).to_be_hidden()
