"""A hit: its bar, its snippet, and what its title opens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.support import answer_searches, ask, explain, hit, hit_titled

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
    explain(page)
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
    explain(page)
    weak = bar_ends(page)
    ask(page, "strong")
    explain(page)
    strong = bar_ends(page)
    ask(page, "huge")
    explain(page)
    huge = bar_ends(page)
    assert weak[0] < 0.25
    assert strong[0] > 0.6
    assert strong[1] == pytest.approx(weak[0], abs=0.005)
    assert huge == pytest.approx([1, weak[0]], abs=0.005)
    expect(page.locator(".axis").first).to_have_text("110100")
    expect(page.locator(".sum").first).to_contain_text("the same for every answer and model")


def test_a_negative_part_is_striped_and_ends_the_bar_at_the_score(page: Page) -> None:
    answer_searches(page, {"x": [hit("a", 2.0, dense=3.0, bias=-1.5), hit("b", 2.0)]})
    ask(page, "x")
    explain(page)
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
        ("file", "ls", ["files"]),  # the last word is a prefix too
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
    ("text", "snippet"),
    [
        (
            DOCSTRING,
            "Parameters: a : array_like The matrix to factorize, see numpy.linalg.svd. "
            "Returns: s : ndarray Vector with the singular values, sorted.",
        ),
        ("# Title\n\n**Bold** and [a link](https://x.example/).", "Title: Bold and a link."),
        ("| a | b |\n|---|---|\n| 1 | __init__ |", "| a | b | | 1 | __init__ |"),
    ],
    ids=["docstring", "markdown", "table"],
)
def test_a_snippet_is_plain_text(page: Page, text: str, snippet: str) -> None:
    whole = {"text": {"snippet": text, "spans": []}}
    found = [hit("a", title="a", text=text), hit("b", title="b", text=text, highlight=whole)]
    answer_searches(page, {"q": found})
    ask(page, "q")
    assert page.locator(".snippet").all_text_contents() == [snippet, snippet]


def test_marks_are_where_the_service_says_counted_in_code_points(page: Page) -> None:
    # An emoji is two units of a JavaScript string; characters for private use may be in any text.
    text = "Before. 🎉 \ue001 see ``file`` and a <b>paper</b>. After."
    part = text[8:-7]
    spans = [
        [part.index(word), part.index(word) + len(word), kind]
        for word, kind in (("file", "word"), ("paper", "meaning"))
    ]
    highlight = {
        "title": {"snippet": "My file", "spans": [[3, 7, "word"]]},
        "text": {"snippet": part, "spans": spans},
    }
    answer_searches(page, {"q": [hit("a", title="My file", text=text, highlight=highlight)]})
    ask(page, "q")
    shown = page.locator(".snippet")
    expect(shown).to_have_text("… 🎉 \ufffd see file and a <b>paper</b>. …")
    assert shown.locator("mark").all_text_contents() == ["file", "paper"]
    assert shown.locator("mark.meaning").all_text_contents() == ["paper"]
    assert page.locator("h3 mark").all_text_contents() == ["file"]


def test_hits_are_low_until_somebody_asks_why(page: Page) -> None:
    ad = {"adomain": ["a-long-name-of-a-shop.example"], "price": 2.5, "cur": "EUR"}
    long = hit(
        "an/id/" * 9,
        title="A title",
        text="Many words. " * 50,
        ad=ad,
        dense=0.5,
        words={"many": 1.0},
    )
    answer_searches(page, {"q": [long]})
    ask(page, "q")
    for width in (1200, 390):
        page.set_viewport_size({"width": width, "height": 900})
        box = page.locator(".hit").bounding_box()
        assert box is not None
        assert 90 < box["height"] <= 110
    why = page.get_by_role("button", name="Why this? A title")
    expect(why).to_have_attribute("aria-expanded", "false")
    why.focus()
    page.keyboard.press("Enter")
    expect(why).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_role("img", name="dense 0.50, lexical 0.50, bias 0.00")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(".bar")).to_be_hidden()


@pytest.mark.parametrize(
    "text", ["`" * 50_000, "[" * 50_000, "x" * 50_000, "|-" * 25_000, "*a " * 20_000]
)
def test_no_text_makes_the_page_slow(page: Page, text: str) -> None:
    took: float = page.evaluate(
        """async text => {
            const { plainText } = await import("/text.js");
            const start = performance.now();
            plainText(text);
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
    page.set_viewport_size({"width": 600, "height": 400})
    others = [hit(str(i), title=f"Page {i}", url=f"{url}/livez") for i in range(6)]
    answer_searches(page, {"q": [*others, hit("a", title="The page", url=f"{url}/livez")]})
    ask(page, "q")
    link = page.get_by_role("link", name="The page")
    if how == "click":
        link.click()
    else:
        link.focus()
        page.keyboard.press("Enter")
    page.wait_for_url("**/livez")
    with page.expect_request("**/v1/search") as again:
        page.go_back()
    # The results stand as they were left, and count as no other search.
    body: Any = again.value.post_data_json
    assert body["typing"] is True
    expect(link).to_be_focused()
    expect(link).to_be_in_viewport()


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "https://", 3])
def test_an_unsafe_url_makes_no_link(page: Page, address: object) -> None:
    answer_searches(page, {"q": [hit("a", title="The page", url=address)]})
    ask(page, "q")
    expect(page.locator(".hit a")).to_have_count(0)
    expect(page.get_by_role("button", name="The page", exact=True)).to_be_visible()


def test_a_marked_title_is_one_text_on_a_touch_screen(phone: Page) -> None:
    title = "Copy many remote files between two hosts over an encrypted ssh connection"
    spans = [[0, 4, "word"], [17, 22, "word"], [59, 62, "meaning"]]
    marked = {"title": {"snippet": title, "spans": spans}}
    link = "https://elsewhere.example/x"
    found = [
        hit("plain", title=title, text="x"),
        hit("marked", title=title, text="x", highlight=marked),
        hit("linked", title=title, text="x", highlight=marked, url=link),
        hit("short", title="cp", text="x", url=link),
    ]
    answer_searches(phone, {"q": found})
    phone.goto("/console")
    ask(phone, "q")
    assert phone.evaluate("matchMedia('(pointer: coarse)').matches")
    assert (
        phone.locator("h3 mark").evaluate_all(
            "marks => marks.map(mark => getComputedStyle(mark).display)"
        )
        == ["inline"] * 6
    )
    boxes = [box for title in phone.locator(".open").all() if (box := title.bounding_box())]
    assert boxes[1]["height"] == pytest.approx(boxes[0]["height"], abs=2)
    assert boxes[2]["height"] == pytest.approx(boxes[0]["height"], abs=2)
    assert [box for box in boxes if min(box["height"], box["width"]) < 44] == []


def test_text_from_right_to_left_is_shown_so(page: Page) -> None:
    answer_searches(page, {"בדיקה": [hit("d", title="שלום עולם", text="טקסט קצר")]})
    ask(page, "בדיקה")
    for place in ("#query", ".hit h3", ".hit .snippet"):
        assert page.locator(place).evaluate("place => getComputedStyle(place).direction") == "rtl"


def test_a_pasted_text_that_is_cut_is_said_so(page: Page) -> None:
    page.get_by_role("combobox", name="Search").focus()
    page.evaluate("text => navigator.clipboard.writeText(text)", "copy files " * 300)
    page.keyboard.press("Control+v")
    expect(page.locator("#status")).to_contain_text("only the first 2,000 characters are searched")
