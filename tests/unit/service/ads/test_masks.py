"""Kept masks of rules equal fresh ones, and what changes with time stays exact."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fullrank.ads import AdRules, PriceFloor
from fullrank_service.ads.filling import PageFilling
from fullrank_service.ads.masks import RuleMasks
from fullrank_service.ads.placing import Slot
from tests.unit.fullrank.ads.oracle import NOW, random_page, rules_of
from tests.unit.service.ads.test_filling import fill, random_view


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
    masks, part = RuleMasks(), view.parts[0]
    one, same, other = (AdRules(bseat=frozenset({seat})) for seat in ("s1", "s1", "s2"))
    mask = masks.forbidden(part, one, None)
    assert mask is not None
    assert masks.forbidden(part, same, None) is mask
    assert masks.forbidden(part, other, None) is not mask
    assert masks.forbidden(part, one, PriceFloor(1.0)) is not mask
    assert masks.forbidden(view.parts[1], one, None) is not mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = True
    assert part.ads is not None
    np.testing.assert_array_equal(mask, one.forbids(part.ads))


def test_long_rules_count_towards_the_bound() -> None:
    view, _ = random_view(random.Random(1))
    masks, part = RuleMasks(1 << 20), view.parts[0]
    made: list[Any] = []
    for number in range(30):
        names = [f"s{number} {i} {'x' * 200}" for i in range(500)]
        rules = AdRules(bseat=frozenset(names))
        made.append((sum(map(sys.getsizeof, names)), masks.forbidden(part, rules, None), rules))
    # The newest first: one that has to be made again replaces the oldest.
    kept = [
        size for size, mask, rules in reversed(made) if masks.forbidden(part, rules, None) is mask
    ]
    assert 0 < sum(kept) <= 1 << 20
    assert len(kept) < len(made)


def test_a_view_without_ads_has_no_masks() -> None:
    view, _ = random_view(random.Random(1))
    plain = replace(view.parts[0], ads=None)
    assert RuleMasks().forbidden(plain, AdRules(), None) is None
