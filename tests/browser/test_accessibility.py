"""Keyboard, names, contrast, touch targets and narrow screens."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.support import ask, titles, violations

pytestmark = pytest.mark.browser

ADDRESSES = [
    "",
    "#q=copy+files",
    "#q=copy+files&with=bm25&filter=%7B%22section%22%3A1%7D",
    "#q=zzzqqqxxy",
    "#similar=ls",
    "#q=x&model=nosuch",
    "#view=match",
    "#view=models",
    "#view=clicks",
]
SCHEMES = ["light", "dark"]
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


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_and_controls_have_enough_contrast(
    browser: Browser, url: str, address: str, scheme: Any
) -> None:
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{url}/console{address}")
    expect(page.locator(READY).first).to_be_visible()
    expect(page.locator("#results:not(.stale)")).to_have_count(1)
    found = page.evaluate(CONTRAST)
    assert len(found) >= 9
    assert {"switch", "knob"} <= {what for what, _, _ in found}
    assert any(what.startswith("border of select#model") for what, _, _ in found)
    assert [entry for entry in found if entry[1] < entry[2]] == []
    context.close()


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_violation_of_wcag_aa(
    browser: Browser, url: str, address: str, scheme: Any, width: int
) -> None:
    context = browser.new_context(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 844}
    )
    page = context.new_page()
    page.goto(f"{url}/console{address}")
    expect(page.locator(READY).first).to_be_visible()
    expect(page.locator("#results:not(.stale)")).to_have_count(1)
    for unfolded in (".open", ".why", "#show-facets"):
        if page.locator(unfolded).first.is_visible():
            page.locator(unfolded).first.click()
    assert violations(page) == []
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


@pytest.mark.parametrize("address", ADDRESSES)
def test_touch_targets_are_at_least_44_px(phone: Page, address: str) -> None:
    phone.goto(f"/console{address}")
    expect(phone.locator(READY).first).to_be_visible()
    expect(phone.locator("#results:not(.stale)")).to_have_count(1)
    targets = phone.locator("a:not(.skip), button, select, input").evaluate_all(
        """targets => targets.filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect())
            .map(({ width, height }) => [width, height])"""
    )
    assert len(targets) >= 3
    assert min(width for width, _ in targets) >= 44
    assert min(height for _, height in targets) >= 44


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_never_scrolls_sideways(phone: Page, address: str, width: int) -> None:
    phone.set_viewport_size({"width": width, "height": 740})
    phone.goto(f"/console{address}")
    expect(phone.locator(READY).first).to_be_visible()
    widths = phone.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1] == width


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


def test_the_last_hits_stay_readable_until_the_next_arrive(page: Page) -> None:
    ask(page, "copy files")
    waiting: list[Route] = []
    page.route("**/v1/search", lambda route: waiting.append(route))
    page.get_by_role("combobox", name="Search").fill("list files")
    expect(page.locator("#results.stale")).to_have_count(1)
    page.wait_for_timeout(300)  # longer than any transition
    assert violations(page) == []
    waiting[0].abort()
