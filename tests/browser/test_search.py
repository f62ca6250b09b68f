"""Searching with the page: answers, models, markup, keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from fullrank.progress import Reporter
from fullrank.storage.documents import Document
from fullrank_trainer.train import train
from tests.api.support import KEY, at, make_bundle, served
from tests.browser.support import ask, explain, titles
from tests.planted import write_lines

pytestmark = pytest.mark.browser


def test_answers_appear_while_typing(page: Page) -> None:
    expect(page.locator("#empty")).to_be_visible()
    page.get_by_role("combobox", name="Search").press_sequentially("remote host", delay=30)
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#status")).to_contain_text("7 documents found · exact")
    expect(page.locator("#empty")).to_be_hidden()
    page.get_by_role("combobox", name="Search").fill("")
    expect(page.locator(".hit")).to_have_count(0)
    expect(page.locator("#empty")).to_be_visible()


def test_the_parts_add_up_to_the_score(page: Page) -> None:
    ask(page, "copy remote files")
    expect(page.locator(".bar").first).to_be_hidden()
    explain(page)
    for hit in page.locator(".hit").all():
        score = float(hit.locator(".score").inner_text())
        parts = hit.locator("[data-part]").evaluate_all(
            "spans => spans.map(span => Number(span.dataset.value))"
        )
        assert len(parts) == 3
        assert sum(parts) == pytest.approx(score, abs=0.0051)
        assert hit.locator(".bar").get_attribute("aria-label")
    assert page.locator(".hit").first.locator(".words li").count() > 0


def test_choosing_a_model_searches_with_it(page: Page) -> None:
    ask(page, "copy files")
    expect(page.locator(".column")).to_have_attribute("data-model", re.compile("^learned-"))
    page.locator("#model").select_option("bm25")
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
    # A badge names the document's place in the other list.
    first = titles(page, 0)[0]
    place = titles(page, 1).index(first) + 1
    expect(columns.nth(0).locator(".place").first).to_have_text(f"other model: #{place}")
    expect(page.locator("#sides")).to_be_hidden()
    page.get_by_text("Side by side").click()
    expect(page.locator(".column")).to_have_count(1)


def test_markup_in_documents_is_text(page: Page) -> None:
    ask(page, "markup")
    hit = page.locator(".hit", has_text="taken")
    expect(hit.locator("h3")).to_have_text("<script>document.title='taken'</script>")
    expect(hit.locator(".snippet")).to_contain_text("<img src=x>")
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "markup · Fullrank"
    ask(page, "<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0


def test_stale_answers_never_overwrite_newer_ones(page: Page) -> None:
    delayed: list[Route] = []

    def delay_first(route: Route) -> None:
        if "first" in (route.request.post_data or ""):
            delayed.append(route)
        else:
            route.continue_()

    page.route("**/v1/search", delay_first)
    with page.expect_request("**/v1/search"):
        page.get_by_role("combobox", name="Search").fill("first")
    ask(page, "rename")
    found = titles(page)
    assert delayed
    for route in delayed:
        route.abort()
    page.wait_for_timeout(100)
    assert titles(page) == found


def test_an_error_is_shown_until_the_next_answer(page: Page, url: str) -> None:
    page.goto(f"{url}/console#q=x&model=gone")
    page.reload()
    expect(page.locator("#status.error")).to_contain_text("'gone'")
    page.locator("#model").select_option("default")
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#status.error")).to_have_count(0)


def test_the_page_loads_nothing_from_other_servers(browser: Browser, url: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{url}/console#q=copy")
    expect(page.locator(".hit").first).to_be_visible()
    assert asked
    assert all(address.startswith((url, "data:")) for address in asked)
    context.close()


def test_the_page_asks_for_a_key_if_the_service_needs_one(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("locked")
    make_bundle(root, "bm25", created=at(1))
    with served(root, FULLRANK_ANONYMOUS="none") as address:
        page = browser.new_context().new_page()
        page.goto(f"{address}/console#q=copy+files")
        expect(page.locator("#status.error")).to_contain_text("key")
        for key, hits in (("fr_test_wrong", 0), (KEY, 7)):
            page.get_by_label("Key", exact=True).fill(key)
            page.get_by_role("button", name="Use this key").click()
            expect(page.locator(".hit")).to_have_count(hits)
            expect(page.get_by_label("Key", exact=True)).to_be_visible(visible=not hits)
        page.reload()
        expect(page.locator(".hit")).to_have_count(7)
        assert KEY not in page.url
        page.context.close()


def test_documents_without_title_and_text_are_found_and_named(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("products")
    boots = {"name": "Waterproof boots", "material": "leather and rubber soles for wet days"}
    products = [{"_id": "7", **boots}, {"_id": "8", "name": "Tent", "material": "light canvas"}]
    write_lines(root / "shop" / "corpus.jsonl", products)
    train(root / "shop", root / "bundles", "shop", reporter=Reporter(quiet=True))
    # Another corpus for the same model has none of the fields that it reads.
    make_bundle(root / "bundles", "bare", [Document("9", {"price": 3})], created=at(1))
    with served(root / "bundles") as address:
        page = browser.new_context().new_page()
        page.goto(f"{address}/console")
        page.get_by_role("link", name="Waterproof boots").click()
        expect(page.locator(".hit h3")).to_have_text("Waterproof boots")
        expect(page.locator(".hit h3 mark")).to_have_text(["Waterproof", "boots"])
        ask(page, "rubber")
        expect(page.locator(".hit h3")).to_have_text("Waterproof boots")
        expect(page.locator(".snippet mark")).to_have_text("rubber")
        page.goto(f"{address}/console#q=x&model=bare")
        page.reload()
        expect(page.locator(".hit h3")).to_have_text("9")
        expect(page.locator("#status.error")).to_have_count(0)
        page.context.close()


def test_the_page_has_a_description_and_no_inline_script_or_style() -> None:
    html = (
        Path(__file__).resolve().parents[2] / "service/fullrank_service/page/index.html"
    ).read_text()
    assert '<meta name="description" content="Search' in html
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html)
