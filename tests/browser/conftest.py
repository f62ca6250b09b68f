"""Fixtures of the browser tests: the real server, headless Chromium, an open page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Playwright,
    expect,
    sync_playwright,
)

from fullrank.storage.documents import Document
from tests.api.support import at, make_bundle, served
from tests.browser.support import ADS, DAYS, PRICES, TIMES

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


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the models "bm25" and "learned"; "learned" is active."""
    root = tmp_path_factory.mktemp("bundles")
    make_bundle(root, "bm25", created=at(1))
    make_bundle(root, "learned", n_dense=8, created=at(2))
    with served(root) as address:
        yield address


@pytest.fixture(scope="session")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with "older" and "newer", which is active, a "shop" with prices and times, and "ads"."""
    root = tmp_path_factory.mktemp("grouped")
    documents = [
        Document(f"d{i}", {"title": f"copy tool {i}", "text": "copy files", "section": ("net", "mail", "shells")[i % 3],
                           "year": 1980 + i})
        for i in range(45)
    ]  # fmt: skip
    priced = [
        Document(f"d{i:02}", {"title": f"tool {i}", "text": "copy files", "price": PRICES[i], "day": DAYS[i],
                              "published": TIMES[i].isoformat(), "bytes": 2**i, "depth": i - 20})
        for i in range(40)
    ]  # fmt: skip
    ads = [
        Document(id, {"title": id, "text": "copy files", **fields})
        for id, fields in sorted(ADS.items())
    ]
    for day, (name, held) in enumerate(
        {"ads": ads, "shop": priced, "older": documents, "newer": documents}.items(), 1
    ):
        make_bundle(root, name, held, created=at(day))
    with served(root) as address:
        yield address


@cache
def started() -> tuple[Playwright, Browser]:
    playwright = sync_playwright().start()
    return playwright, playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


@pytest.fixture(scope="session")
def browser() -> Browser:
    """One browser for all tests of the session."""
    if CHROMIUM is None:
        pytest.skip("chromium is not on PATH (Debian: apt-get install chromium)")
    return started()[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Playwright occupies the event loop of the thread until it stops, so async tests must not follow.
    items.sort(key=lambda item: "browser" in item.keywords)


def pytest_unconfigure() -> None:
    if started.cache_info().currsize:
        playwright, browser = started()
        browser.close()
        playwright.stop()


def is_defect(line: ConsoleMessage) -> bool:
    return line.type in ("error", "warning") and "Failed to load resource" not in line.text


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """An open page, 1200 px wide. An error or warning in its console fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    # A list of completions would cover hits that a test clicks; test_completion.py has its own answers.
    context.route("**/v1/complete?*", lambda route: route.fulfill(json={"completions": []}))
    page = context.new_page()
    defects: list[str] = []
    page.on("pageerror", lambda error: defects.append(str(error)))
    page.on("console", lambda line: defects.append(line.text) if is_defect(line) else None)
    page.goto(f"{url}/console")
    expect(page.locator("#model option")).to_have_count(3)
    yield page
    context.close()
    assert defects == []


@pytest.fixture
def phone(browser: Browser, url: str) -> Iterator[Page]:
    """A blank page of a phone with a touch screen, 390 px wide."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, base_url=url
    )
    yield context.new_page()
    context.close()
