"""The page reports the documents that a visitor opens, under the id of the list that showed them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect

from tests.browser.support import answer_searches, ask, hit

pytestmark = pytest.mark.browser


def test_an_opened_document_is_a_click(page: Page) -> None:
    with page.expect_response("**/v1/search") as searched:
        ask(page, "copy files")
    reply = searched.value.json()
    title = page.locator(".hit .open").first
    with page.expect_response("**/v1/events") as reported:
        title.click()
    assert reported.value.json()["kept"] == 1
    [event] = json.loads(reported.value.request.post_data or "")
    assert event["action_name"] == "click"
    assert event["query_id"] == reply["query_id"]
    assert event["event_attributes"]["object"]["object_id"] == reply["hits"][0]["id"]
    asked: Any = searched.value.request.post_data_json
    assert len(event["session_id"]) == 32
    assert event["session_id"] == asked["session_id"]
    assert len(event["client_id"]) == 32
    assert event["client_id"] == asked["client_id"] != event["session_id"]


def test_closing_is_no_click_and_links_are(page: Page) -> None:
    sent: list[Any] = []

    def note(request: Request) -> None:
        if request.url.endswith("/v1/events"):
            sent.append(json.loads(request.post_data or ""))

    page.on("request", note)
    page.context.route("https://elsewhere.example/**", lambda route: route.fulfill(body="there"))
    link = hit("linked", title="Elsewhere", url="https://elsewhere.example/x")
    answer_searches(page, {"copy": [hit("plain", title="Plain", text="copy"), link]})
    ask(page, "copy")
    plain = page.locator(".hit .open").first
    plain.click()
    plain.click()
    expect(plain).to_have_attribute("aria-expanded", "false")
    page.locator(".hit .open").nth(1).click()
    page.wait_for_url("https://elsewhere.example/**")
    opened = [event["event_attributes"]["object"]["object_id"] for [event] in sent]
    assert opened == ["plain", "linked"]
