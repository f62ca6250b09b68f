"""The page at /, as visitors of a site see it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.browser.support import answer_searches, ask, explain, hit, violations

pytestmark = pytest.mark.browser

# The boxes of visible elements: [x, y, width, height] by selector.
BOXES = """places => Object.fromEntries(places.split(", ").map(place => [place,
    [...document.querySelectorAll(place)].filter(e => e.checkVisibility() && e.offsetWidth).map(e => {
        const { x, y, width, height } = e.getBoundingClientRect();
        return [x, y, width, height].map(Math.round);
    })]))"""


@pytest.fixture
def site(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900}, base_url=url)
    page = context.new_page()
    page.goto("/")
    expect(page.locator("#model option")).to_have_count(3)
    yield page
    context.close()


def test_visitors_see_results_and_nothing_for_operators(site: Page) -> None:
    ask(site, "copy files")
    expect(site.locator("#status")).to_have_text("7 documents found")
    for hidden in ("#views", ".controls", ".hit .id"):
        expect(site.locator(hidden).first).to_be_hidden()
    site.goto("about:blank")
    site.goto("/#q=copy+files&view=clicks&with=bm25")
    expect(site.locator(".hit").first).to_be_visible()
    expect(site.locator(".column")).to_have_count(1)
    expect(site.locator("#clicks")).to_be_hidden()


def test_words_near_in_meaning_are_marked_with_the_reasons_only(site: Page) -> None:
    spans = [[0, 5, "word"], [6, 11, "meaning"]]
    marked = hit("d", title="Greek", highlight={"text": {"snippet": "Greek ouzo", "spans": spans}})
    marked["fields"]["text"] = "Greek ouzo"
    answer_searches(site, {"greek": [marked]})
    ask(site, "greek")
    meaning = site.locator("mark.meaning")
    assert "underline" not in meaning.evaluate("mark => getComputedStyle(mark).textDecoration")
    explain(site)
    assert "underline" in meaning.evaluate("mark => getComputedStyle(mark).textDecoration")


def marked(id: str, words: str = "", related: str = "", **more: Any) -> dict[str, Any]:
    """A hit whose text is these words, marked; more: fields of the hit, and the number of clicks on it."""
    kinds = [
        *((word, "word") for word in words.split()),
        *((word, "meaning") for word in related.split()),
    ]
    text = " ".join(word for word, _ in kinds)
    ends = list(accumulate(len(word) + 1 for word, _ in kinds))
    spans = [
        [end - len(word) - 1, end - 1, kind] for end, (word, kind) in zip(ends, kinds, strict=True)
    ]
    clicks = {
        "after_query": more.pop("after", 0),
        "lexical": more.pop("lexical", 1.5),
        "in_all": more.pop("in_all", 0),
        "bias": more.pop("bias", 0.5),
    }
    made = hit(id, 3.0, dense=more.pop("dense", 1.0), title=f"Title {id}", text=text)
    made["explanation"]["clicks"] = clicks
    return {
        **made,
        "highlight": {"text": {"snippet": text, "spans": spans}} if spans else None,
        **more,
    }


def reasons(page: Page, id: str) -> list[str]:
    page.get_by_role("button", name=f"Why this? Title {id}").click()
    return page.locator(f'[data-id="{id}"] .plain li').all_inner_texts()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (marked("d", "camera Bag CAMERA"), ["Contains: camera, Bag"]),
        (marked("d", related="satchel"), ["Related to your words: satchel"]),
        (marked("d", "bag", "of 360 satchel"), ["Contains: bag", "Related to your words: satchel"]),
        (marked("d", "in a b cd ef gh ij kl"), ["Contains: in, cd, ef, gh, ij"]),
        (marked("d", "a"), ["Contains: a"]),
        (marked("d", "bag", in_all=812), ["Contains: bag", "Often chosen by others"]),
        (marked("d", in_all=812, bias=-0.1), ["Related to your words"]),
        (marked("d", after=656, in_all=812), ["Often chosen by others after the same search"]),
        (marked("d", after=1, in_all=1), ["Chosen before after the same search"]),
        (marked("d", in_all=1), ["Related to your words"]),
        (
            marked("d", "bag", "satchel", in_all=9, rule="summer"),
            ["Placed here by this site", "Contains: bag", "Related to your words: satchel"],
        ),
    ],
    ids=[
        "words",
        "related",
        "telling",
        "five",
        "letter",
        "clicks",
        "clicks-against",
        "same-search",
        "once",
        "dense",
        "pinned",
    ],
)
def test_a_visitor_is_told_why_in_plain_words(
    site: Page, found: dict[str, Any], said: list[str]
) -> None:
    answer_searches(site, {"bags": [found]})
    ask(site, "bags")
    assert reasons(site, "d") == said
    text = site.locator(".reasons").inner_text()
    assert text.split("\n") == said
    assert violations(site) == []


def test_words_that_most_hits_have_are_no_reason(site: Page) -> None:
    several = [marked(str(i), "halo", f"Xbox edition{i}") for i in range(5)]
    answer_searches(site, {"halo": several, "few": several[:2]})
    ask(site, "halo")
    assert reasons(site, "0") == ["Contains: halo", "Related to your words: edition0"]
    ask(site, "few")
    assert reasons(site, "0") == ["Contains: halo", "Related to your words: Xbox, edition0"]


def test_without_a_reason_nobody_is_asked_to_look_for_one(site: Page) -> None:
    answer_searches(site, {"x": [marked("d", dense=0.0), {**hit("e"), "explanation": None}]})
    ask(site, "x")
    expect(site.locator(".why:visible")).to_have_count(0)


def test_the_service_itself_gives_reasons(site: Page) -> None:
    ask(site, "copy files")
    for button in site.locator(".why").all():
        button.click()
    shown = site.locator(".hit").filter(has=site.get_by_text("cp", exact=True))
    expect(shown.locator(".plain li").first).to_have_text("Contains: Copy, files")
    assert not re.search(
        r"[\d.]|dense|lexical|bias|score", site.locator(".reasons").first.inner_text(), re.I
    )


def test_scripts_are_fetched_at_once(site: Page) -> None:
    """Not one after another, as they import each other: a slow network would wait for each."""
    asked: set[str] = set()
    site.on("request", lambda request: asked.add(request.url.rpartition("/")[2]))
    site.reload()
    ask(site, "copy files")
    named = site.locator("[rel=modulepreload]").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    assert {name for name in asked if name.endswith(".js")} == {*named, "app.js"}


def test_on_a_phone_a_snippet_begins_near_the_first_word_of_the_query(phone: Page) -> None:
    text = "Many words stand here before the one that somebody asked for: ouzo. " * 2
    at = text.index("ouzo")
    spans = [[at - 10, at - 6, "meaning"], [at, at + 4, "word"]]
    found = hit(
        "d", title="Greek", text=text, highlight={"text": {"snippet": text, "spans": spans}}
    )
    answer_searches(phone, {"ouzo": [found]})
    phone.goto("/#q=ouzo")
    expect(phone.locator(".snippet")).to_have_text(
        re.compile("^… (somebody )?asked for: ouzo. Many")
    )
    assert phone.locator(".snippet mark").all_inner_texts()[-1] == "ouzo"
    phone.set_viewport_size({"width": 900, "height": 800})
    phone.reload()
    expect(phone.locator(".snippet")).to_have_text(re.compile("^Many words stand here"))


def test_on_a_phone_a_snippet_without_spaces_keeps_the_word_of_the_query(phone: Page) -> None:
    before = "東" * 60 + "𠮷" * 10 + "京" * 9
    text = f"{before}駅は広い。 次の文。"
    spans = [[len(before), len(before) + 1, "word"]]
    found = hit("d", title="駅", text=text, highlight={"text": {"snippet": text, "spans": spans}})
    answer_searches(phone, {"駅": [found]})
    phone.goto("/#q=駅")
    expect(phone.locator(".snippet")).to_have_text(f"… {'𠮷' * 5}{'京' * 9}駅は広い。 次の文。")
    assert phone.locator(".snippet mark").all_inner_texts() == ["駅"]


def test_a_page_shows_where_it_is(site: Page) -> None:
    url = "https://docs.example/guide/caf%C3%A9/%zz/intro.html?x=1"
    answer_searches(site, {"intro": [hit("d", title="Intro", url=url), hit("e", title="None")]})
    ask(site, "intro")
    crumbs = site.locator(".crumbs")
    expect(crumbs.first).to_have_text("docs.example › guide › café › %zz")
    expect(crumbs.nth(1)).to_be_hidden()


def test_the_first_hit_is_on_the_first_screen_of_a_phone(phone: Page) -> None:
    phone.goto("/#q=copy+files")
    expect(phone.locator(".hit").first).to_be_visible()
    box = phone.locator(".hit").first.bounding_box()
    assert box is not None
    assert box["y"] <= 260


def body_of(request: Request) -> Any:
    return request.post_data_json


def events_of(page: Page) -> list[dict[str, Any]]:
    """The events that a page reports, in a list that grows."""
    sent: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if request.url.endswith("/v1/events"):
            sent.extend(json.loads(request.post_data or ""))

    page.on("request", note)
    return sent


def test_what_is_typed_counts_as_a_search_once_it_stays(site: Page) -> None:
    asked: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if request.url.endswith("/v1/search"):
            asked.append(body_of(request))

    site.on("request", note)
    sent = events_of(site)
    box = site.get_by_role("combobox", name="Search")
    for word in ("copy", "copy files"):
        box.fill(word)
        with site.expect_response("**/v1/search") as answered:
            expect(site.locator("#heading")).to_have_text(f"Results for “{word}”")
    expect(site.locator("#results:not(.stale) .hit").first).to_be_visible()
    with site.expect_request("**/v1/events"):
        pass
    # Enter adds nothing to what was counted.
    box.press("Enter")
    site.wait_for_timeout(100)
    assert [(body["query"], body["typing"]) for body in asked] == [
        ("copy", True),
        ("copy files", True),
    ]
    [event] = sent
    assert (event["action_name"], event["query_id"]) == (
        "impression",
        answered.value.json()["query_id"],
    )
    # Enter without a pause, and a chosen example, are searches at once.
    box.fill("rename")
    with site.expect_response("**/v1/search") as answered:
        box.press("Enter")
    assert body_of(answered.value.request)["typing"] is False
    expect(site.locator("#heading")).to_have_text("Results for “rename”")
    # Two tabs are one person.
    other = site.context.new_page()
    with other.expect_request("**/v1/search") as request:
        other.goto("/#q=copy")
    body = body_of(request.value)
    assert body["typing"] is False
    assert body["client_id"] == asked[0]["client_id"]
    assert len(sent) == 1


def test_where_events_are_refused_every_search_counts(site: Page) -> None:
    site.route("**/v1/events", lambda route: route.fulfill(status=401, json={}))
    box = site.get_by_role("combobox", name="Search")
    for word, typing in (("copy", True), ("files", False)):
        with site.expect_request("**/v1/search") as request:
            box.fill(word)
        assert body_of(request.value)["typing"] is typing
        expect(site.locator("#results:not(.stale) .hit").first).to_be_visible()
        if typing:
            with site.expect_response("**/v1/events"):
                box.blur()


def show_pictures(page: Page) -> None:
    """Let https://shop.example have a picture at every address that ends in .svg."""
    picture = '<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>'
    page.route(
        "https://shop.example/*.svg",
        lambda route: route.fulfill(body=picture, content_type="image/svg+xml"),
    )


def test_pictures_of_documents_are_shown_and_bad_ones_leave_no_hole(site: Page) -> None:
    show_pictures(site)
    site.route("https://shop.example/gone.png", lambda route: route.fulfill(status=404))
    pictures = [
        "https://shop.example/a.svg",
        "b.svg",
        "https://shop.example/gone.png",
        "javascript:alert(1)",
        7,
        None,
    ]
    found = [
        hit(str(i), title=f"Boots {i}", url="https://shop.example/boots", image=image)
        for i, image in enumerate(pictures)
    ]
    answer_searches(site, {"boots": found})
    ask(site, "boots")
    shown = site.locator(".thumb")
    expect(shown).to_have_count(2)
    assert shown.evaluate_all("all => all.map(({ src }) => src)") == [
        "https://shop.example/a.svg",
        "https://shop.example/b.svg",
    ]
    assert shown.evaluate_all("all => all.every(({ naturalWidth, alt }) => naturalWidth && !alt)")


def test_similar_documents_are_named_by_title_without_an_id(site: Page) -> None:
    answer_searches(
        site, {"boots": [hit("sku-1", title="Red boots"), hit("sku-2", title="Blue boots")]}
    )
    ask(site, "boots")
    site.route(
        "**/similar?*",
        lambda route: route.fulfill(json={"total": 0, "hits": [], "took_ms": 1, "model": "m"}),
    )
    site.get_by_role("button", name="Similar to Red boots").click()
    expect(site.locator("#heading")).to_have_text("Similar to Red boots")
    expect(site.locator("#nothing")).to_have_text("Nothing is similar to this document.")
    assert "sku-1" not in site.locator("body").inner_text()
    assert "sku-1" not in site.title()


LAYOUT = Path(__file__).with_name("layout.json")
STATES = {
    "empty": "/",
    "hits": "/#q=boots",
    "none": "/#q=nothing",
    "two": "/console#q=boots&with=bm25",
    "filtered": "/#q=boots&filter=%7B%22brand%22%3A%7B%22in%22%3A%5B%22Acme%22%2C%22Polar%22%5D%7D%7D",
}
PLACES = (
    ".brand, .field, .suggested, .controls, #nothing, #advice, #examples, .limit, #no-limits, "
    ".hit, .hit h3, .thumb, .below"
)


def test_the_layout_is_that_of_the_snapshot(browser: Browser, url: str) -> None:
    """Boxes stand where they stood, within 12 px. FULLRANK_SNAPSHOT=1 writes them anew; then look at the page."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    hits = [
        hit(
            str(i),
            title=f"Boots {i}",
            text="Short",
            url="https://a.example/b/c",
            image="https://shop.example/a.svg",
        )
        for i in range(3)
    ]
    for width in (1280, 768, 390):
        context = browser.new_context(
            viewport={"width": width, "height": 844},
            has_touch=width < 1000,
            is_mobile=width < 1000,
            base_url=url,
        )
        page = context.new_page()
        show_pictures(page)
        answer_searches(page, {"boots": hits, "nothing": []})
        for name, address in STATES.items():
            page.goto("about:blank")
            page.goto(address)
            expect(
                page.locator(".hit, #nothing:not([hidden]), #examples:not([hidden])").first
            ).to_be_visible()
            found[f"{name} {width}"] = page.evaluate(BOXES, PLACES)
        context.close()
    if "FULLRANK_SNAPSHOT" in os.environ:
        LAYOUT.write_text(json.dumps(found).replace("}, ", "},\n ") + "\n")
    expected = json.loads(LAYOUT.read_text())
    assert found.keys() == expected.keys()
    for state, boxes in expected.items():
        assert found[state].keys() == boxes.keys(), state
        for place, several in boxes.items():
            # Fonts differ between machines: text is a little higher or lower, and moves what follows.
            assert np.array(found[state][place]) == pytest.approx(np.array(several), abs=12), (
                state,
                place,
            )
