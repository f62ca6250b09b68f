"""Filled pages against a slow filling that walks the whole ranking with the slow check of ads; kept masks of rules."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fullrank.live import Operation, View
from fullrank.search.searchable import Hits
from fullrank.storage.documents import Document
from fullrank_service.ads.filling import PageFilling, RuleMasks
from fullrank_service.ads.placing import Placed, Slot
from fullrank_service.ads.rules import AdRules, PriceFloor
from fullrank_service.documents.ad import ads_of
from tests.bundles import linear_model
from tests.live import bundle_of
from tests.unit.service.ads.oracle import NOW, is_allowed, random_ad, random_page, rules_of

WORDS = ["copy", "files", "remote", "host", "list", "move"]


def random_fields(rng: random.Random) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "title": rng.choice(WORDS),
        "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 6))),
    }
    if rng.random() < 0.8:
        fields["ad"] = random_ad(rng)
    return fields


def random_view(rng: random.Random) -> tuple[View, dict[str, dict[str, Any]]]:
    """Return a view with a bundle and segments, some documents removed, and its documents by id."""
    stored = {f"b{i:02}": random_fields(rng) for i in range(40)}
    model = linear_model([Document(id, fields) for id, fields in stored.items()])
    view = View.of(bundle_of(model, stored))
    for seq in range(1, 31):
        id = rng.choice([f"b{rng.randrange(40):02}", f"n{rng.randrange(20):02}"])
        fields = None if rng.random() < 0.3 else random_fields(rng)
        view = view.apply([Operation(seq, id, fields)])
        stored.pop(id, None)
        if fields is not None:
            stored[id] = fields
    return view, stored


def fill(view: View, filling: PageFilling, query: str, blocked: Sequence[str] = ()) -> Placed:
    encoded = view.model.encode_queries([query])

    def search(limit: int, deleted: Any) -> Hits:
        return view.search(encoded, limit, deleted=deleted)

    return filling.fill(view, search, view.deleted(exclude=blocked))


def slowly_filled(
    ranking: Sequence[tuple[str, float]],
    stored: Mapping[str, Mapping[str, Any]],
    slots: Sequence[tuple[Slot, Mapping[str, Any]]],
    per_advertiser: int,
    *,
    with_tree: bool,
) -> list[list[str]]:
    """Place documents one after another: for each free place the whole ranking is read from the top."""
    used, placed_of = set[str](), Counter[str]()
    result = []
    for slot, page in slots:
        here: list[str] = []
        for id, score in ranking:
            ad = stored[id].get("ad")
            if len(here) == slot.count or id in used:
                continue
            if slot.min_score is not None and score < slot.min_score:
                continue
            domains = set() if ad is None else set(ad["adomain"])
            if ad is not None and not is_allowed(ad, page, with_tree=with_tree):
                continue
            if any(placed_of[domain] >= per_advertiser for domain in domains):
                continue
            placed_of.update(domains)
            used.add(id)
            here.append(id)
        result.append(here)
    return result


@pytest.mark.parametrize("seed", range(8))
def test_placements_are_filled_as_the_slow_filling_does(seed: int) -> None:
    rng = random.Random(seed)
    view, stored = random_view(rng)
    for _ in range(25):
        query = " ".join(rng.choices(WORDS, k=2))
        encoded = view.model.encode_queries([query])
        blocked = rng.sample(sorted(stored), 2)
        everything = view.search(encoded, 1000, deleted=view.deleted(exclude=blocked)).hits
        ranking = [(hit.id, hit.score) for hit in everything]
        page, with_tree = random_page(rng), rng.random() < 0.5
        rules, _ = rules_of(page, with_tree=with_tree)
        slots: list[tuple[Slot, dict[str, Any]]] = []
        for _ in range(rng.randint(1, 4)):
            own = {k: v for k, v in page.items() if not k.startswith("bidfloor")}
            other = random_page(rng)
            own |= {k: v for k, v in other.items() if k.startswith("bidfloor")}
            floor = rules_of(own, with_tree=with_tree)[1]
            least = rng.choice([None, None, rng.choice(ranking)[1]])
            slots.append((Slot(rng.randint(1, 12), floor, least), own))
        per = rng.choice([1, 1, 2, 30])
        filling = PageFilling([slot for slot, _ in slots], rules, NOW, per)
        found = fill(view, filling, query, blocked)
        ids = iter([hit.id for hit in found.hits.hits])
        placed = [[next(ids) for _ in range(count)] for count in found.counts]
        assert placed == slowly_filled(ranking, stored, slots, per, with_tree=with_tree)
        assert next(ids, None) is None
        assert found.hits.certified


def test_counts_of_ads_left_out_add_up() -> None:
    rng = random.Random(3)
    view, stored = random_view(rng)
    n_ads = sum("ad" in fields for fields in stored.values())
    rules, floor = rules_of({"cattax": 7, "bcat": ["1"], "bidfloor": 1.0}, with_tree=True)
    filling = PageFilling([Slot(3, floor), Slot(2)], rules, NOW, 1, counting=True)
    found = fill(view, filling, "copy files")
    on_page = [hit for hit in found.hits.hits if "ad" in stored[hit.id]]
    full = {domain for hit in on_page for domain in stored[hit.id]["ad"]["adomain"]}
    page = {"cattax": 7, "bcat": ["1"]}
    allowed = {
        id
        for id, fields in stored.items()
        if "ad" in fields and is_allowed(fields["ad"], page, with_tree=True)
    }
    others = {id for id in allowed if not full & set(stored[id]["ad"]["adomain"])}
    assert sum(found.left_out.values()) == n_ads - len(on_page) - len(others)
    assert found.left_out["per_advertiser"] == len(allowed) - len(on_page) - len(others)
    above, anything = found.left_out_of
    page["bidfloor"] = 1.0
    dear = {id for id in allowed if is_allowed(stored[id]["ad"], page, with_tree=True)}
    assert sum(above.values()) == len(allowed) - len(dear)
    assert anything == {}


def test_merged_segments_keep_their_ads() -> None:
    rng = random.Random(5)
    stored = {"b00": {"title": "copy", "text": " ".join(WORDS)}}
    model = linear_model([Document(id, fields) for id, fields in stored.items()])
    whole = View.of(bundle_of(model, stored))
    new = {f"x{i:03}": random_fields(rng) for i in range(300)}
    for start in range(0, 300, 60):
        ids = sorted(new)[start : start + 60]
        whole = whole.apply([Operation(start + i + 1, id, new[id]) for i, id in enumerate(ids)])
    whole = whole.apply([Operation(400, "x007", None)]).settled()
    for id, fields in new.items():
        if id == "x007":
            continue
        part, row = whole.find(id)
        table = ads_of(part)
        ad = None if table is None else table.ad(row)
        assert (ad is not None) == ("ad" in fields)
        if ad is not None:
            assert ad.price == fields["ad"].get("price", 0)
            assert list(ad.adomain) == fields["ad"]["adomain"]


@pytest.mark.parametrize("max_bytes", [0, 10_000, 1 << 20])
def test_pages_with_kept_masks_equal_those_without(max_bytes: int) -> None:
    rng = random.Random(7)
    view, _ = random_view(rng)
    pages = [random_page(rng) for _ in range(12)]
    masks = RuleMasks(max_bytes)
    for _ in range(150):
        page, with_tree = rng.choice(pages), rng.random() < 0.5
        rules, floor = rules_of(page, with_tree=with_tree)
        # Ads start and end between the pages.
        now = NOW + rng.choice([-86_400, -1, 0, 1800, 3600, 86_400])
        filling = PageFilling([Slot(4, floor), Slot(2)], rules, now)
        kept = fill(view, replace(filling, masks=masks), "copy files")
        fresh = fill(view, filling, "copy files")
        assert [hit.id for hit in kept.hits.hits] == [hit.id for hit in fresh.hits.hits]
        assert kept.counts == fresh.counts


def test_equal_rules_share_a_mask_and_others_do_not() -> None:
    view, _ = random_view(random.Random(1))
    masks, (part, other_part) = RuleMasks(), view.parts[:2]
    table, other_table = ads_of(part), ads_of(other_part)
    assert table is not None
    assert other_table is not None
    one, same, other = (AdRules(bseat=frozenset({seat})) for seat in ("s1", "s1", "s2"))
    mask = masks.forbidden(part, table, one, None)
    assert masks.forbidden(part, table, same, None) is mask
    assert masks.forbidden(part, table, other, None) is not mask
    assert masks.forbidden(part, table, one, PriceFloor(1.0)) is not mask
    assert masks.forbidden(other_part, other_table, one, None) is not mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = True
    np.testing.assert_array_equal(mask, one.forbids(table))


def test_long_rules_count_towards_the_bound() -> None:
    view, _ = random_view(random.Random(1))
    masks, part = RuleMasks(1 << 20), view.parts[0]
    table = ads_of(part)
    assert table is not None
    made: list[Any] = []
    for number in range(30):
        names = [f"s{number} {i} {'x' * 200}" for i in range(500)]
        rules = AdRules(bseat=frozenset(names))
        made.append(
            (sum(map(sys.getsizeof, names)), masks.forbidden(part, table, rules, None), rules)
        )
    # The newest first: one that has to be made again replaces the oldest.
    kept = [
        size
        for size, mask, rules in reversed(made)
        if masks.forbidden(part, table, rules, None) is mask
    ]
    assert 0 < sum(kept) <= 1 << 20
    assert len(kept) < len(made)
