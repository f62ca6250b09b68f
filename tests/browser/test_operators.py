"""The section for operators: it asks for a key, then shows clicks, the experiment and the loop's decisions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fullrank.events.log import EVENTS, LISTS
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank_service.http.keys import create_key
from fullrank_service.models.swap import Swap
from tests.api.support import KEY, at, make_bundle, served
from tests.browser.support import violations

pytestmark = pytest.mark.browser
_DAY_S = 86_400


def log_clicks(root: Path, active: str, candidate: str) -> None:
    """Log nine people who ask the same yesterday; eight of them click the candidate's document, on place 2."""
    lists, events, at = [], [], time.time() - _DAY_S
    for number in range(9):
        who, id = {"user_id": f"u{number}"}, f"q{number}"
        served = ServedList(
            id, at, "Copy  Files", ["cp", "scp"], model=active, candidate=candidate,
            teams="ab", texts=who,
        )  # fmt: skip
        lists.append(served.line())
        clicked = "scp" if number else "cp"
        events.append(Event("click", at, {"query_id": id, **who}, clicked).line())
    for kind, lines in ((LISTS, lists), (EVENTS, events)):
        writer = SegmentWriter(root / ".events", kind)
        writer.append(lines)
        writer.close()


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with an experiment, votes and a decision."""
    root = tmp_path_factory.mktemp("operated")
    candidate = make_bundle(root, "candidate", created=at(1))
    active = make_bundle(root, "learned", n_dense=8, created=at(2))
    swap = Swap(root)
    swap.activate(active)
    with pytest.MonkeyPatch.context() as patch:
        begun = time.time() - 2 * _DAY_S
        patch.setattr("fullrank_service.models.swap.time.time", lambda: begun)
        swap.start_experiment(candidate, 0.2, 14)
    log_clicks(root, active, candidate)
    gate = {"name": "clicks", "passed": True, "reason": "as good as before"}
    report = {"published": candidate, "gates": [gate]}
    began = {"at": 1.0, "name": "learned", "did": "began an experiment", "retrained": active}
    ended = {
        "at": 0.5, "name": "learned", "did": "stopped", "active": active, "candidate": "older-1", "started": 0.0,
        "wins": 1, "losses": 9, "e_value": 21.0, "e_values": [[0.1, 2.0], [0.5, 21.0]],
    }  # fmt: skip
    (root / "loop.json").write_text(json.dumps([ended, {**began, "report": report}]))
    with served(root) as address:
        yield address


def enter_key(page: Page) -> None:
    """Open the section by keyboard: it asks for a key."""
    expect(page.locator("#model option")).to_have_count(3)
    page.get_by_role("link", name="Clicks").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    page.keyboard.type(KEY)
    page.keyboard.press("Enter")


def test_an_admin_sees_clicks_and_the_experiment(browser: Browser, operated: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{operated}/console")
    enter_key(page)
    section = page.get_by_role("region", name="Clicks")
    expect(section.get_by_role("heading", name="Clicks", exact=True)).to_be_focused()
    expect(section.locator("#figures div")).to_have_text(
        ["Searches9", "With a click100%", "Mean clicked place1.9", "Without hits0"]
    )
    row = section.get_by_role("table", name="Frequent queries").locator("tbody tr")
    expect(row).to_have_text(["copy files99"])
    expect(section.locator("#queries table")).to_have_count(1)
    expect(section.locator("#experiment p").nth(1)).to_have_text(
        # 2^9 / (10 · 9)
        "8 votes for the candidate, 1 against, e-value 5.69: undecided so far. "
        "The votes of a day (UTC) count once it is over."
    )
    chart = section.locator("#experiment").get_by_role("img", name="it decides at 20")
    assert chart.locator("path").get_attribute("d", timeout=1000)
    line, one = (chart.locator(f".{kind}").bounding_box() for kind in ("decides", "start"))
    assert line is not None
    assert one is not None
    assert line["y"] < one["y"]
    newest, stopped = section.locator("#decisions > li").all()
    expect(newest).to_contain_text("learned: began an experiment")
    expect(newest).to_contain_text("clicks passed: as good as before")
    expect(newest.get_by_role("img")).to_have_count(0)
    # An experiment that has ended keeps its chart.
    expect(stopped).to_contain_text("1 to 9 votes, e-value 21")
    expect(stopped.get_by_role("img", name="to 21.0 on")).to_be_visible()
    assert violations(page) == []
    # A reload keeps the key of the tab; the days are chosen by keyboard.
    page.reload()
    expect(section).to_be_visible()
    with page.expect_response("**/v1/analytics?days=30"):
        section.get_by_label("of the last").select_option("30")
    page.go_back()
    expect(section.get_by_label("of the last")).to_have_value("7")
    page.go_forward()
    expect(section.get_by_label("of the last")).to_have_value("30")
    page.get_by_role("link", name="Search").click()
    expect(section).to_be_hidden()
    page.go_back()
    expect(section).to_be_visible()
    context.close()


def test_visitors_see_no_section_and_phones_have_room_for_it(
    browser: Browser, operated: str
) -> None:
    context = browser.new_context(viewport={"width": 320, "height": 740})
    page = context.new_page()
    page.goto(f"{operated}/console")
    expect(page.locator("#model option")).to_have_count(3)
    expect(page.locator("#clicks")).to_be_hidden()
    enter_key(page)
    expect(page.locator("#clicks")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    context.close()


def test_a_key_that_may_too_little_is_named_and_can_be_replaced_or_removed(
    browser: Browser, operated: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = tmp_path_factory.getbasetemp() / "operated0.keys.json"
    _, writer = create_key(keys, ["ingest"], "ingest")
    time.sleep(1.1)  # Running services accept it within a second.
    page = browser.new_context().new_page()
    page.goto(f"{operated}/console#view=clicks")
    box, use = page.get_by_label("Key", exact=True), page.get_by_role("button", name="Use this")
    remove = page.get_by_role("button", name="Remove the key")
    expect(box).to_be_visible()
    expect(remove).to_be_hidden()
    for address in ("#view=clicks", "#q=copy", "#view=models"):
        box.fill(writer)
        use.click()
        expect(page.locator("#status.error")).to_contain_text("'ingest' does not have the scope")
        page.goto(f"{operated}/console{address}")
        page.reload()
        expect(page.locator("#status.error")).to_contain_text("'ingest' does not have the scope")
        expect(box).to_be_visible()
    remove.click()
    expect(page.locator("#versions li")).to_have_count(2)
    expect(box).to_be_hidden()
    page.goto(f"{operated}/console#q=copy")
    expect(page.locator(".hit").first).to_be_visible()
    page.get_by_role("link", name="Clicks").click()
    expect(box).to_be_visible()
    page.context.close()
