"""The built documentation: no page is wider than a phone, harder to read than WCAG allows, or heavy."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Response, expect

from tests.browser.support import violations
from tests.waiting import join

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    (path.relative_to(ROOT / "docs").with_suffix("").as_posix() + "/").removeprefix("index/")
    for path in (ROOT / "docs").rglob("*.md")
)
# Not of WCAG: the theme names two landmarks alike, and tables of names and texts need no header for the texts.
THEME = {"landmark-unique", "empty-table-header"}
VAGUE = re.compile(
    "(click )?here|right here|go|start|this|(learn |read )?more|(more )?info(rmation)?", re.I
)
"""Texts of links that say nothing about the page they lead to, as Lighthouse lists them."""
MAX_KB = 900
"""The largest size of a page with its styles and scripts, uncompressed."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the site, whose search box asks the service at the same address, which does not exist."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=ROOT / "build/site")
    ) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        subprocess.run(
            [Path(sys.executable).with_name("zensical"), "build", "--strict"],
            cwd=ROOT, env={"PATH": "/usr/bin:/bin", "FULLRANK_SITE_SEARCH": url}, check=True, capture_output=True,
        )  # fmt: skip
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield url
        server.shutdown()
        join(thread)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone_and_is_accessible(browser: Browser, site: str, path: str) -> None:
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        page, answers = context.new_page(), list[Response]()
        page.on("response", lambda answer: answers.append(answer))
        page.goto(f"{site}/{path}", wait_until="networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.title()
        description = page.locator("meta[name=description]").get_attribute("content")
        assert 20 <= len(description or "") <= 150
        assert {re.match(r"https?://[^/]*", answer.url)[0] for answer in answers} == {site}  # type: ignore[index]
        assert sum(len(answer.body()) for answer in answers) <= MAX_KB * 1000
        links = page.locator("a[href]:not([href^='#'])").all_inner_texts()
        assert [text for text in links if VAGUE.fullmatch(text.strip())] == []
        assert [found for found in violations(page) if found[0] not in THEME] == []


def test_the_search_box_says_that_its_service_does_not_answer(browser: Browser, site: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(site)
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Search").fill("filters")
        expect(page.get_by_text("The search service does not answer.").first).to_be_visible()
