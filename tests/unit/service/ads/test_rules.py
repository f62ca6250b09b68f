"""Which ads a page may show: masks over all ads equal a slow check of each."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.storage.documents import Document
from fullrank.storage.strings import DocumentStore
from fullrank_service.ads.rules import (
    REASONS,
    AdRules,
    PriceFloor,
    Taxonomy,
    count_reasons,
    sum_reasons,
)
from fullrank_service.documents.ad import AdError, AdTable, parse_ad
from tests.unit.service.ads.oracle import NOW, is_allowed, random_ad, random_page, rules_of

AD = {"adomain": ["a.example"]}


@pytest.mark.sweep
def test_100_000_random_pages_and_ads_agree_with_the_slow_check() -> None:
    rng = random.Random(15)
    tried = allowed = 0
    for _ in range(50):
        ads = [random_ad(rng) for _ in range(100)]
        table = AdTable.of(range(len(ads)), [parse_ad(ad) for ad in ads])
        assert table is not None
        for _ in range(20):
            page, with_tree = random_page(rng), rng.random() < 0.5
            rules, floor = rules_of(page, with_tree=with_tree)
            found = rules.reasons(table, NOW) == 0
            assert np.array_equal(rules.forbids(table) | table.unavailable(NOW), ~found)
            if floor is not None:
                found &= floor.reasons(table) == 0
                assert np.array_equal(floor.forbids(table), floor.reasons(table) > 0)
            expected = [is_allowed(ad, page, with_tree=with_tree) for ad in ads]
            assert found.tolist() == expected, page
            tried, allowed = tried + len(ads), allowed + sum(expected)
    assert tried == 100_000
    assert 0.1 < allowed / tried < 0.9  # neither side is trivial


def table_of(*changes: dict[str, object]) -> AdTable:
    documents = [Document(f"{i}", {"ad": AD | change}) for i, change in enumerate(changes)]
    table = AdTable.of_store(DocumentStore.of(documents))
    assert table is not None
    return table


def reasons(rules: AdRules, table: AdTable) -> list[str]:
    return [REASONS[code] for code in rules.reasons(table, NOW)]


def test_ads_start_and_end_as_time_passes() -> None:
    table = table_of(
        {"start": "2026-11-23T12:00:00Z"},
        {"end": "2026-11-23T13:00:00Z"},
        {"status": "paused"},
        {"start": "2026-11-23T12:30:00Z", "end": "2026-11-23T13:00:00Z"},
    )
    for seconds in (0, 10, -1, 1799, 1800, 3600, 3599, 7200, -7200):
        now = NOW + seconds
        found = AdRules().forbids(table) | table.unavailable(now)
        assert found.tolist() == [seconds < 0, seconds >= 3600, True, not 1800 <= seconds < 3600]
        assert np.array_equal(found, AdRules().reasons(table, now) > 0)


def test_an_ad_is_counted_once_by_the_first_rule_that_forbids_it() -> None:
    table = table_of(
        {"status": "paused", "seat": "s1"}, {"seat": "s1"}, {"seat": "s2"}, {"price": "much"}
    )
    rules = AdRules(bseat=frozenset({"s1"}), badv=frozenset({"a.example"}))
    assert reasons(rules, table) == ["status", "badv", "badv", "malformed"]
    counts = count_reasons([rules.reasons(table, NOW)])
    assert counts == {"malformed": 1, "status": 1, "badv": 2}


def test_another_taxonomy_or_currency_is_not_eligible() -> None:
    table = table_of({"cat": ["1"], "cattax": 6}, {"cat": ["1"], "cattax": 7}, {})
    assert reasons(AdRules(bcat=frozenset({"2"}), cattax=7), table) == ["cattax", "", ""]
    assert reasons(AdRules(acat=frozenset({"1"}), cattax=7), table) == ["cattax", "", "acat"]
    assert reasons(AdRules(cattax=7), table) == ["", "", ""]
    priced = table_of({"price": 2, "cur": "EUR"}, {"price": 2}, {"price": 1})
    assert [REASONS[code] for code in PriceFloor(1.5).reasons(priced)] == [
        "bidfloorcur",
        "",
        "bidfloor",
    ]


def test_a_taxonomy_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "taxonomy.tsv"
    path.write_text("1\t\tFood\n11\t1\tBread\n111\t11\tRye\n\n2\t\n")
    assert Taxonomy.read(path, 7).below(["11", "9"]) == {"11", "111", "9"}
    path.write_text("1\t2\n2\t3\n3\t1\n")
    with pytest.raises(AdError, match="is below itself"):
        Taxonomy.read(path, 7)
    with pytest.raises(AdError, match="cannot be read"):
        Taxonomy.read(tmp_path / "missing.tsv", 7)
    path.write_text("1,2\n")
    with pytest.raises(AdError, match=r"taxonomy\.tsv:1: is not id, tab, parent"):
        Taxonomy.read(path, 7)


def test_stored_documents_give_a_table() -> None:
    fields: list[dict[str, Any]] = [
        {"title": 'says "ad"'},
        {"ad": "text"},
        {"ad": AD | {"price": 3}},
        {"ad": AD | {"cid": 7}},
        {"ad": AD, "title": "x"},
    ]
    documents = [Document(f"d{i}", one) for i, one in enumerate(fields)]
    table = AdTable.of_store(DocumentStore.of(documents))
    assert table is not None
    assert table.rows.tolist() == [2, 3, 4]
    assert table.is_malformed.tolist() == [False, True, False]
    assert [table.ad(row) is not None for row in range(5)] == [False, False, True, False, True]
    np.testing.assert_array_equal(table.price, [3, 0, 0])
    assert AdTable.of_store(DocumentStore.of(documents[:2])) is None


def test_expanded_rules_forbid_the_same_ads_without_a_taxonomy() -> None:
    rng = random.Random(12)
    table = AdTable.of(range(60), [parse_ad(random_ad(rng)) for _ in range(60)])
    assert table is not None
    for _ in range(200):
        rules, _ = rules_of(random_page(rng), with_tree=rng.random() < 0.8)
        assert rules.expanded.taxonomy is None
        np.testing.assert_array_equal(rules.expanded.reasons(table, NOW), rules.reasons(table, NOW))


def test_counts_of_shards_add_up_to_that_of_all() -> None:
    rng = random.Random(13)
    reasons = [rng.choices(range(len(REASONS)), k=rng.randint(0, 30)) for _ in range(4)]
    arrays = [np.array(own, np.uint8) for own in reasons]
    found = sum_reasons([count_reasons([own]) for own in arrays])
    assert list(found.items()) == list(count_reasons(arrays).items())
