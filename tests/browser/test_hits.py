"""A hit: its bar, its snippet, and what its title opens."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import answer_searches, ask, hit, hit_titled

pytestmark = pytest.mark.browser

DOCSTRING = """\
Parameters
----------
a : array_like
    The ``matrix`` to factorize, see :func:`numpy.linalg.svd`.

Returns
-------
s : ndarray
    Vector with the *singular* values, sorted.
"""


def bar_ends(page: Page) -> list[float]:
    """Where each bar ends, as a share of the full width."""
    ends: list[float] = page.locator(".bar").evaluate_all(
        """bars => bars.map(bar => Math.max(...[...bar.querySelectorAll("i:not(.tick, .minus)")]
            .map(part => part.getBoundingClientRect().right - bar.getBoundingClientRect().left)
        ) / bar.clientWidth)"""
    )
    return ends


def test_bars_end_at_the_score(page: Page) -> None:
    page.locator("#model").select_option("bm25")
    ask(page, "copy files")
    ends = bar_ends(page)
    assert ends[0] > 0.1
    assert ends == sorted(ends, reverse=True)
    assert page.locator(".bar .dense").count() == 0


def test_bars_of_different_answers_share_one_scale(page: Page) -> None:
    answer_searches(
        page,
        {
            "weak": [hit("a", 1.6), hit("b", 0.4)],
            "strong": [hit("a", 19.5), hit("b", 1.6, dense=1.0)],
            "huge": [hit("a", 5000.0), hit("b", 1.6, bias=0.3)],
        },
    )
    ask(page, "weak")
    weak = bar_ends(page)
    ask(page, "strong")
    strong = bar_ends(page)
    ask(page, "huge")
    huge = bar_ends(page)
    assert weak[0] < 0.25
    assert strong[0] > 0.6
    assert strong[1] == pytest.approx(weak[0], abs=0.005)
    assert huge == pytest.approx([1, weak[0]], abs=0.005)
    expect(page.locator(".axis")).to_have_text("110100")
    expect(page.locator(".scale")).to_contain_text("the same for every answer and model")


def test_a_negative_part_is_striped_and_ends_the_bar_at_the_score(page: Page) -> None:
    answer_searches(page, {"x": [hit("a", 2.0, dense=3.0, bias=-1.5), hit("b", 2.0)]})
    ask(page, "x")
    bars = page.locator(".bar")
    striped, plain = (
        bars.nth(i).evaluate(
            """bar => [...bar.querySelectorAll(".minus, .lexical")]
                .map(part => [part.className, part.offsetLeft, part.offsetLeft + part.offsetWidth])"""
        )
        for i in range(2)
    )
    assert [name for name, _, _ in striped] == ["lexical", "minus"]
    assert striped[1][1] == pytest.approx(plain[0][2], abs=1)
    assert bars.first.get_attribute("aria-label") == "dense 3.00, lexical 0.50, bias -1.50"


@pytest.mark.parametrize(
    ("query", "title", "marks"),
    [
        ("COPY ssh", "scp", ["Copy", "ssh"]),
        ("file", "ls", []),  # not a part of "files"
        ("東京", "日本語の検索", ["東京"]),
    ],
)
def test_the_words_of_the_query_are_marked(
    page: Page, query: str, title: str, marks: list[str]
) -> None:
    page.locator("#model").select_option("bm25")
    ask(page, query)
    hit = page.locator(".hit").filter(has=page.locator("h3", has_text=re.compile(f"^{title}$")))
    assert hit.locator("mark").all_inner_texts() == marks


@pytest.mark.parametrize(
    ("text", "words", "snippet"),
    [
        (
            DOCSTRING,
            {},
            "Parameters: a : array_like The matrix to factorize, see numpy.linalg.svd. "
            "Returns: s : ndarray Vector with the singular values, sorted.",
        ),
        ("# Title\n\n**Bold** and [a link](https://x.example/).", {}, "Title: Bold and a link."),
        ("| a | b |\n|---|---|\n| 1 | __init__ |", {}, "| a | b | | 1 | __init__ |"),
        ("first " + "x " * 300 + "End here. Then the needle.", {"needle": 2.0}, None),
        ("語" * 400 + "東京の天気", {"東京": 2.0}, None),
    ],
    ids=["docstring", "markdown", "table", "late", "unspaced"],
)
def test_a_snippet_is_plain_text_around_the_words(
    page: Page, text: str, words: dict[str, float], snippet: str | None
) -> None:
    answer_searches(page, {"q": [hit("a", 2.0, words=words, title="a", text=text)]})
    ask(page, "q")
    shown = page.locator(".snippet").text_content() or ""
    if snippet is None:
        assert re.match(r"… (Then the needle\.|語+東京の天気)$", shown), shown
    else:
        assert shown == snippet


def test_a_snippet_shows_the_words_that_moved_the_score_most(page: Page) -> None:
    text = f"the of {'x ' * 300} the rare gem {'y ' * 300} the rare stone of {'z ' * 300}"
    words = {"of": -0.1, "the": 0.05, "rare": 3.0, "stone": 2.0, "gem": 1.0}
    answer_searches(page, {"q": [hit("a", 5.0, words=words, title="a", text=text)]})
    ask(page, "q")
    expect(page.locator(".snippet")).to_contain_text("the rare stone of")
    assert page.locator("mark").all_inner_texts() == ["rare", "stone"]


@pytest.mark.parametrize(
    "text", ["`" * 50_000, "[" * 50_000, "x" * 50_000, "|-" * 25_000, "*a " * 20_000]
)
def test_no_text_makes_the_page_slow(page: Page, text: str) -> None:
    took: float = page.evaluate(
        """async text => {
            const { snippetOf } = await import("/text.js");
            const start = performance.now();
            snippetOf(text, [{ word: "x", weight: 1 }]);
            return performance.now() - start;
        }""",
        text,
    )
    assert took < 2_000  # milliseconds; quadratic time would need minutes


def test_a_document_without_a_text_field_shows_its_longest_field(page: Page) -> None:
    answer_searches(page, {"q": [hit("a", title="A title that is long", brand="b", body="Body")]})
    ask(page, "q")
    expect(page.locator(".snippet")).to_have_text("Body")


@pytest.mark.parametrize("how", ["click", "Enter", "Space"])
def test_a_title_opens_the_document_by_click_and_by_key(page: Page, how: str) -> None:
    ask(page, "copy files")
    found = hit_titled(page, "cp")
    title = found.get_by_role("button", name="cp", exact=True)

    def act() -> None:
        if how == "click":
            title.click()
        else:
            title.press(how)

    act()
    expect(title).to_have_attribute("aria-expanded", "true")
    expect(found.locator(".full .text")).to_have_text("Copy files and directories")
    expect(found.locator(".full dl")).to_have_text("section1")
    expect(found.locator(".snippet")).to_be_hidden()
    act()
    expect(title).to_have_attribute("aria-expanded", "false")
    expect(found.locator(".full")).to_be_hidden()
    expect(found.locator(".snippet")).to_be_visible()


@pytest.mark.parametrize("how", ["click", "Enter"])
def test_a_title_leads_to_the_url_of_the_document(page: Page, url: str, how: str) -> None:
    answer_searches(page, {"q": [hit("a", title="The page", url=f"{url}/livez")]})
    ask(page, "q")
    link = page.get_by_role("link", name="The page")
    if how == "click":
        link.click()
    else:
        page.keyboard.press("ArrowDown")
        expect(link).to_be_focused()
        page.keyboard.press("Enter")
    page.wait_for_url("**/livez")
    page.go_back()
    expect(page.get_by_role("link", name="The page")).to_be_visible()


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "https://", 3])
def test_an_unsafe_url_makes_no_link(page: Page, address: object) -> None:
    answer_searches(page, {"q": [hit("a", title="The page", url=address)]})
    ask(page, "q")
    expect(page.locator(".hit a")).to_have_count(0)
    expect(page.get_by_role("button", name="The page", exact=True)).to_be_visible()
