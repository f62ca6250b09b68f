"""Keyboard, names, contrast, touch targets and narrow screens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.support import ask, titles, violations

pytestmark = pytest.mark.browser

ADDRESSES = [
    "/",
    "/#q=copy+files",
    "/#q=copy+files&filter=%7B%22section%22%3A%7B%22in%22%3A%5B1%2C8%5D%7D%7D",
    "/#q=zzzqqqxxy",
    "/#q=x&model=nosuch",
    "/console",
    "/console#q=copy+files&with=bm25&filter=%7B%22section%22%3A1%7D",
    "/console#q=zzzqqqxxy",
    "/console#similar=ls",
    "/console#q=x&model=nosuch",
    "/console#view=match",
    "/console#view=models",
    "/console#view=clicks",
]
SCHEMES: Sequence[Literal["light", "dark"]] = ("light", "dark")
WORDS = [{"text": text, "kind": "word"} for text in ("copy files", "copying")]
READY = ", ".join(
    [
        ".hit",
        "#nothing:not([hidden])",
        "#search:not([hidden]) #empty:not([hidden])",
        "#match:not([hidden])",
        "#versions li",
        "#status.error",
    ]
)

CONTRAST = r"""() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const luminance = (color) => color.slice(0, 3)
        .map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ratio = (one, two) => {
        const [low, high] = [luminance(one), luminance(two)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const background = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const color = rgba(getComputedStyle(at).backgroundColor);
            if (color[3] === 1) return color;
        }
        return [255, 255, 255, 1];
    };
    const name = (e) => `${e.tagName.toLowerCase()}#${e.id}.${e.className} ${e.textContent.trim().slice(0, 30)}`;
    const found = [];
    const need = (least, what, one, two) => found.push([what, ratio(one, two), least]);
    const shown = [...document.body.querySelectorAll("*")].filter((e) =>
        e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && e.offsetWidth > 1);
    for (const e of shown) {
        const style = getComputedStyle(e);
        const speaks = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        if (speaks && !e.closest("svg")) need(4.5, name(e), rgba(style.color), background(e));
        if (e.matches("select, input:not([type=checkbox])")) {
            need(3, `border of ${name(e)}`, rgba(style.borderTopColor), background(e.parentElement));
        }
        if (e.matches("#query:placeholder-shown")) {
            need(4.5, "placeholder", rgba(getComputedStyle(e, "::placeholder").color), background(e));
        }
        if (e.matches(".track")) {
            need(3, "switch", rgba(style.backgroundColor), background(e.parentElement));
            need(3, "knob", rgba(getComputedStyle(e, "::after").backgroundColor), rgba(style.backgroundColor));
        }
        if (e.matches(".bar i:not(.tick, .minus), .dot")) {
            need(3, name(e), rgba(style.backgroundColor), background(e.parentElement));
        }
    }
    return found;
}"""


def settled(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator(READY).first).to_be_visible()
    expect(page.locator("#results:not(.stale)")).to_have_count(1)


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_address_is_readable_in_both_schemes(
    browser: Browser, url: str, address: str
) -> None:
    """axe-core finds nothing; borders, switches and bars have the contrast that it does not look at."""
    context = browser.new_context(reduced_motion="reduce", viewport={"width": 1280, "height": 844})
    page = context.new_page()
    settled(page, url + address)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = page.evaluate(CONTRAST)
        assert len(found) >= 2
        if address.startswith("/console"):
            assert {"switch", "knob"} <= {what for what, _, _ in found}
            assert any(what.startswith("border of select#model") for what, _, _ in found)
        assert [entry for entry in found if entry[1] < entry[2]] == []
    for unfolded in (".open", ".why"):
        if page.locator(unfolded).first.is_visible():
            page.locator(unfolded).first.click()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page) == []
    context.close()


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_address_fits_a_phone_and_fingers(phone: Page, address: str) -> None:
    settled(phone, address)
    targets = phone.locator("a:not(.skip), button, select, input").evaluate_all(
        """targets => targets.filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect())
            .map(({ width, height }) => [width, height])"""
    )
    assert len(targets) >= 1
    assert min(width for width, _ in targets) >= 44
    assert min(height for _, height in targets) >= 44
    for width in (320, 390):
        phone.set_viewport_size({"width": width, "height": 740})
        widths = phone.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1] == width
    if phone.locator("#show-facets").is_visible():
        phone.locator("#show-facets").tap()
        expect(phone.get_by_role("dialog", name="Filters")).to_be_visible()
    for scheme in SCHEMES:
        phone.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(phone) == []


@pytest.mark.parametrize("path", ["/", "/console"])
def test_what_is_seen_before_and_between_answers_is_accessible(
    browser: Browser, url: str, path: str
) -> None:
    """A skeleton before the first hits; then the last hits, readable until the next come."""
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    held: list[Route] = []
    page.route("**/v1/search", lambda route: held.append(route))
    page.route("**/v1/complete?*", lambda route: route.fulfill(json={"completions": WORDS}))

    def check() -> None:
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert violations(page) == []

    page.goto(url + path)
    expect(page.locator("#model option")).to_have_count(3)
    box = page.get_by_role("combobox", name="Search")
    box.fill("copy")
    expect(page.locator("#skeleton")).to_be_visible()
    expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(2)
    expect(page.locator("#status")).to_have_text("Still searching …")
    check()
    held.pop().continue_()
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#skeleton")).to_be_hidden()
    box.fill("copy l")
    box.press("Enter")
    expect(page.locator("#results.stale .hit").first).to_be_visible()
    check()
    held.pop().abort()
    context.close()


def test_hits_are_reached_by_keyboard(page: Page) -> None:
    ask(page, "copy files")
    box = page.get_by_role("combobox", name="Search")
    opened = page.locator(".open")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(opened.nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(".similar").nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(".why").nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(opened.nth(2)).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    expect(box).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("/")
    expect(box).not_to_be_focused()
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()


def test_every_control_has_a_name(page: Page) -> None:
    ask(page, "copy")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button")]
            .filter(e => e.checkVisibility() && !e.labels?.length && !e.textContent.trim())
            .map(e => e.outerHTML)"""
    )
    assert unnamed == []


def test_a_phone_shows_one_of_two_models_at_a_time(phone: Page) -> None:
    phone.goto("/console#q=copy+files&with=bm25")
    columns = phone.locator(".column")
    expect(columns).to_have_count(2)
    sides = phone.get_by_role("group", name="Results shown").get_by_role("button")
    assert sides.all_inner_texts() == ["learned", "bm25"]
    expect(columns.nth(0)).to_be_visible()
    expect(columns.nth(1)).to_be_hidden()
    sides.nth(1).tap()
    expect(sides.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(columns.nth(0)).to_be_hidden()
    expect(columns.nth(1)).to_be_visible()
    assert titles(phone, 1)[:2] == ["cp", "scp"]
    # The choice stays for the next query, and one model alone is always shown.
    phone.get_by_role("combobox", name="Search").fill("remote host")
    expect(phone.locator("#heading")).to_have_text("Results for “remote host”")
    expect(columns.nth(1)).to_be_visible()
    phone.get_by_text("Side by side").tap()
    expect(columns).to_have_count(1)
    expect(columns).to_be_visible()
    expect(sides.first).to_be_hidden()
