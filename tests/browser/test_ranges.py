"""The side panel: ranges of numbers and times are counted and filtered as a plain count says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.support import BEGIN, DAYS, PRICES, TIMES, ask, violations

pytestmark = pytest.mark.browser


@pytest.fixture
def shop(browser: Browser, grouped: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.route("**/v1/complete?*", lambda route: route.fulfill(json={"completions": []}))
    page = context.new_page()
    page.goto(f"{grouped}/console#model=shop")
    expect(page.locator("#model option")).to_have_count(5)
    ask(page, "copy")
    yield page
    context.close()


def group(page: Page, field: str) -> Locator:
    return page.get_by_role("group", name=field, exact=True)


def choices(page: Page, field: str) -> list[tuple[str, int]]:
    """The ranges of a field with their counts, as they are read."""
    found = []
    for button in group(page, field).locator(".choice").all():
        label, count = button.locator("span").inner_text(), button.locator("small").inner_text()
        found.append((label, int(count)))
    return found


def count(values: list[float], holds: Callable[[float], bool]) -> int:
    return sum(map(holds, values))


def test_ranges_of_numbers_count_what_is_in_them(shop: Page) -> None:
    edges = [50, 100, 150, 200, 250]
    expected = [
        ("below 50", count(PRICES, lambda price: price < 50)),
        *((f"{a} to {b}", count(PRICES, lambda p, a=a, b=b: a <= p < b)) for a, b in pairwise(edges)),  # type: ignore[misc]
        ("250 and more", count(PRICES, lambda price: price >= 250)),
    ]  # fmt: skip
    assert choices(shop, "price") == [one for one in expected if one[1]]
    depths = choices(shop, "depth")
    assert depths[0] == ("below -10", 10)
    assert sum(number for _, number in depths) == 40
    # Powers of ten where the largest is far from the least.
    sizes = [2**i for i in range(40)]
    assert choices(shop, "bytes")[1] == ("10 to 100", sum(10 <= size < 100 for size in sizes))


def test_ranges_of_times_count_what_is_in_them(shop: Page) -> None:
    found = choices(shop, "published")
    # The browser puts thin spaces around the dash.
    assert [label.replace("\u2009", " ") for label, _ in found] == [
        "before Jan 2025", "Jan – Mar 2025", "Apr – Jun 2025", "Jul – Sep 2025", "Oct – Dec 2025",
        "since Jan 2026",
    ]  # fmt: skip
    edges = [datetime(2025, month, 1, tzinfo=UTC) for month in (1, 4, 7, 10)]
    edges = [BEGIN, *edges, datetime(2026, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    assert [number for _, number in found] == [
        sum(a <= time < b for time in TIMES) for a, b in pairwise(edges)
    ]
    assert sum(number for _, number in choices(shop, "day")) == 40


@pytest.mark.parametrize("field", ["price", "published", "day", "depth", "bytes"])
def test_choosing_a_range_finds_as_many_as_it_counts_and_back_undoes_it(
    shop: Page, field: str
) -> None:
    counted = choices(shop, field)
    label, number = counted[1]
    button = group(shop, field).get_by_role("button", name=f"{label} {number}", exact=True)
    button.focus()
    shop.keyboard.press("Enter")
    status = shop.get_by_role("status")
    expect(status).to_contain_text(f"{number} document{'s' if number > 1 else ''} found")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(button).to_be_focused()
    # The other ranges of the field count what choosing them would find.
    assert choices(shop, field) == counted
    other, more = counted[-1]
    group(shop, field).get_by_role("button", name=f"{other} {more}", exact=True).click()
    expect(status).to_contain_text(f"{more} document")
    shop.go_back()
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    expect(status).to_contain_text("40 documents found")
    expect(button).to_have_attribute("aria-pressed", "false")


def test_any_other_range_of_days_is_typed_and_both_days_belong_to_it(shop: Page) -> None:
    days = group(shop, "day")
    days.get_by_label("from").fill("2024-12-01")
    days.get_by_label("to").fill("2024-12-05")
    shop.keyboard.press("Enter")
    expect(shop.get_by_role("status")).to_contain_text("5 documents found")
    expect(shop.locator("#limits")).to_contain_text("day: 2024-12-01 to 2024-12-05")
    expect(days.get_by_label("to")).to_have_value("2024-12-05")
    assert sum(number for _, number in choices(shop, "published")) == 5
    assert violations(shop) == []
    times = group(shop, "published")
    times.get_by_label("from").fill("2025-04-01")
    times.get_by_role("button", name="Apply").click()
    left = sum(
        day in DAYS[11:16] and time >= datetime(2025, 4, 1, tzinfo=UTC)
        for day, time in zip(DAYS, TIMES, strict=True)
    )
    assert 0 < left < 5
    expect(shop.get_by_role("status")).to_contain_text(f"{left} document")
    shop.get_by_role("button", name="Remove all").click()
    expect(shop.get_by_role("status")).to_contain_text("40 documents found")


def test_an_address_with_a_bound_that_is_no_day_is_shown(shop: Page, grouped: str) -> None:
    shop.goto(f'{grouped}/console#model=shop&q=copy&filter={{"day":{{"lt":"tea"}}}}')
    shop.reload()
    expect(shop.get_by_role("status")).to_contain_text("40 documents found")
    expect(group(shop, "day").get_by_label("to")).to_have_value("")


def test_the_ranges_of_one_field_have_no_gap_and_no_overlap(shop: Page) -> None:
    """For random bounds, in the page's own code: every value is in exactly one range."""
    wrong = shop.evaluate("""async () => {
        const { rangesOf } = await import("/ranges.js");
        let seed = 1;
        const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
        const wrong = [];
        for (let round = 0; round < 3000; round++) {
            const isTime = round % 2;
            const size = 10 ** (random() * (isTime ? 4.5 : 12) - (isTime ? 0 : 6));
            const low = isTime ? Date.UTC(1800 + 300 * random()) : (random() - 0.3) * size * 3;
            const high = low + (isTime ? 86_400_000 : 1) * size;
            const text = (at) => new Date(at).toISOString();
            const ranges = rangesOf(isTime ? { min: text(low), max: text(high) } : { min: low, max: high });
            const number = (bound, or) => bound === undefined ? or : isTime ? Date.parse(bound) : bound;
            for (let i = 0; i < 20 && ranges.length; i++) {
                const value = low + (high - low) * random();
                const inside = ranges.filter(({ from, to }) =>
                    number(from, -Infinity) <= value && value < number(to, Infinity));
                if (inside.length !== 1) wrong.push([low, high, value, ranges]);
            }
            const wanted = ranges.length > (isTime ? 9 : 14) || (ranges.length < 2 && size > 2);
            if (wanted) wrong.push([low, high, ranges.length]);
            if (new Set(ranges.map(({ label }) => label)).size < ranges.length) wrong.push(ranges);
        }
        return wrong.slice(0, 3);
    }""")
    assert wrong == []
