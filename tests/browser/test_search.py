"""The search page in headless Chromium, against the real server."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.api.support import KEY, at, make_bundle, served

pytestmark = pytest.mark.browser

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("bundles")
    make_bundle(root, "bm25", created=at(1))
    make_bundle(root, "learned", n_dense=8, created=at(2))
    with served(root) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not on PATH (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def is_defect(line: ConsoleMessage) -> bool:
    """Answers of 4xx are logged by the browser itself; anything else is the page's fault."""
    return line.type in ("error", "warning") and "Failed to load resource" not in line.text


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page just opened; whatever goes wrong inside it fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if is_defect(line) else None)
    page.goto(url)
    expect(page.locator("#model option")).to_have_count(3)
    yield page
    context.close()
    assert wrong == []


def titles(page: Page, column: int = 0) -> list[str]:
    return page.locator(".column").nth(column).locator("h3").all_inner_texts()


def ask(page: Page, text: str) -> None:
    page.get_by_role("searchbox").fill(text)
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#results:not(.stale)")).to_be_visible()


def test_answers_appear_while_typing(page: Page) -> None:
    expect(page.locator("#empty")).to_be_visible()
    page.get_by_role("searchbox").press_sequentially("remote host", delay=30)
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#status")).to_contain_text("7 documents ranked · exact")
    expect(page.locator("#empty")).to_be_hidden()
    page.get_by_role("searchbox").fill("")
    expect(page.locator(".hit")).to_have_count(0)
    expect(page.locator("#empty")).to_be_visible()


def test_the_parts_add_up_to_the_score(page: Page) -> None:
    ask(page, "copy remote files")
    for hit in page.locator(".hit").all():
        score = float(hit.locator(".score").inner_text())
        parts = hit.locator("[data-part]").evaluate_all(
            "spans => spans.map(span => Number(span.dataset.value))"
        )
        assert len(parts) == 3
        assert sum(parts) == pytest.approx(score, abs=0.0051)
        assert hit.locator(".bar").get_attribute("aria-label")
    assert page.locator(".hit").first.locator(".words li").count() > 0


def test_the_bars_show_the_parts(page: Page) -> None:
    page.locator("#model").select_option("bm25")
    ask(page, "copy files")
    widths = page.locator(".bar .exact").evaluate_all("bars => bars.map(bar => bar.offsetWidth)")
    assert widths[0] > 100
    assert widths == sorted(widths, reverse=True)
    assert page.locator(".bar .learned").count() == 0


def test_the_model_is_switched(page: Page) -> None:
    ask(page, "copy files")
    expect(page.locator(".column")).to_have_attribute("data-model", re.compile("^learned-"))
    page.get_by_label("Model").select_option("bm25")
    expect(page.locator(".column")).to_have_attribute("data-model", re.compile("^bm25-"))
    assert titles(page)[:2] == ["cp", "scp"]
    assert page.url.endswith("#q=copy+files&model=bm25")


def test_two_models_side_by_side(page: Page) -> None:
    ask(page, "copy files")
    page.get_by_text("Side by side").click()
    expect(page.locator(".column")).to_have_count(2)
    columns = page.locator(".column")
    expect(columns.nth(0)).to_have_attribute("data-model", re.compile("^learned-"))
    expect(columns.nth(1)).to_have_attribute("data-model", re.compile("^bm25-"))
    boxes = [columns.nth(i).bounding_box() for i in range(2)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    # A badge says where the other model has the same document.
    first = titles(page, 0)[0]
    place = titles(page, 1).index(first) + 1
    expect(columns.nth(0).locator(".elsewhere").first).to_have_text(f"#{place} there")
    page.get_by_text("Side by side").click()
    expect(page.locator(".column")).to_have_count(1)


def test_the_address_brings_everything_back(page: Page, url: str) -> None:
    page.goto(f"{url}/#q=remote+host&model=learned&with=bm25")
    page.reload()
    expect(page.locator(".column")).to_have_count(2)
    expect(page.get_by_role("searchbox")).to_have_value("remote host")
    expect(page.get_by_label("Model")).to_have_value("learned")


def test_markup_in_documents_is_text(page: Page) -> None:
    ask(page, "markup")
    hit = page.locator(".hit", has_text="taken")
    expect(hit.locator("h3")).to_have_text("<script>document.title='taken'</script>")
    expect(hit.locator(".snippet")).to_contain_text("<img src=x>")
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Fullrank"
    ask(page, "<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize(
    ("query", "title", "marks"),
    [
        ("COPY ssh", "scp", ["Copy", "ssh"]),
        ("file", "ls", []),  # not a part of "files"
        ("東京", "日本語の検索", ["東京"]),
    ],
)
def test_the_words_are_marked_in_the_text(
    page: Page, query: str, title: str, marks: list[str]
) -> None:
    page.locator("#model").select_option("bm25")
    ask(page, query)
    hit = page.locator(".hit").filter(has=page.locator("h3", has_text=re.compile(f"^{title}$")))
    assert hit.locator("mark").all_inner_texts() == marks


def test_similar_documents_and_back(page: Page) -> None:
    page.locator("#model").select_option("bm25")
    ask(page, "markup files")
    hit = page.locator(".hit", has_text="taken")
    hit.hover()
    hit.get_by_role("button", name="Similar documents").click()
    expect(page.locator("#like")).to_contain_text("Similar to <b>&\"'")
    expect(page.locator(".hit", has_text="taken")).to_have_count(0)
    page.get_by_role("button", name="Back to search").click()
    expect(page.locator(".hit", has_text="taken")).to_have_count(1)


def test_the_keyboard_is_enough(page: Page) -> None:
    ask(page, "copy files")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".hit").nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_stale_answers_never_overwrite_newer_ones(page: Page) -> None:
    held: list[Any] = []

    def hold_first(route: Any) -> None:
        if "first" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/search", hold_first)
    page.get_by_role("searchbox").fill("first")
    page.wait_for_timeout(250)
    assert held
    ask(page, "rename")
    found = titles(page)
    for route in held:
        route.abort()
    page.wait_for_timeout(100)
    assert titles(page) == found


def test_an_error_is_said_and_the_next_answer_takes_it_away(page: Page, url: str) -> None:
    page.goto(f"{url}/#q=x&model=gone")
    page.reload()
    expect(page.locator("#status.error")).to_contain_text("No loaded model is called 'gone'")
    page.get_by_label("Model").select_option("default")
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#status.error")).to_have_count(0)


@pytest.mark.parametrize("address", ["", "#q=copy+files", "#q=copy+files&with=bm25"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_never_scrolls_sideways(
    browser: Browser, url: str, address: str, scheme: Any
) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{url}/{address}")
    expect(page.locator(".hit, #empty:not([hidden])").first).to_be_visible()
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1] == 360
    context.close()


def test_every_control_has_a_name(page: Page) -> None:
    ask(page, "copy")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button")]
            .filter(e => !e.hidden && !e.labels?.length && !e.textContent.trim())
            .map(e => e.outerHTML)"""
    )
    assert unnamed == []


def test_nothing_is_fetched_from_elsewhere(browser: Browser, url: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{url}/#q=copy")
    expect(page.locator(".hit").first).to_be_visible()
    assert asked
    assert all(address.startswith((url, "data:")) for address in asked)
    context.close()


def test_a_key_is_asked_for_where_one_is_needed(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("locked")
    make_bundle(root, "bm25", created=at(1))
    with served(root, FULLRANK_ANONYMOUS="none") as address:
        page = browser.new_context().new_page()
        page.goto(f"{address}/#q=copy+files")
        expect(page.locator("#status.error")).to_contain_text("Send a key")
        for key, hits in (("fr_test_wrong", 0), (KEY, 7)):
            page.get_by_label("Key").fill(key)
            page.get_by_role("button", name="Use it").click()
            expect(page.locator(".hit")).to_have_count(hits)
            expect(page.get_by_label("Key")).to_be_visible(visible=not hits)
        page.reload()
        expect(page.locator(".hit")).to_have_count(7)
        assert KEY not in page.url
        page.context.close()


def test_the_page_has_no_inline_script_or_style() -> None:
    html = (Path(__file__).resolve().parents[2] / "service/page/index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html)
