"""Copies of ledgers against the ledgers, whatever questions they miss."""

from __future__ import annotations

import random

import numpy as np

from fullrank.live import View
from fullrank.storage.documents import Document
from fullrank_fleet.serving.ledgers import LedgerCopies
from fullrank_service.ads.counts import Spent
from fullrank_service.ads.ledger import RECENT, Ledger
from tests.bundles import linear_model
from tests.live import bundle_of

NOW = 1_793_491_200.0
IDS = [f"d{number:03}" for number in range(60)]


def view() -> View:
    ad = {"adomain": ["a.example"], "price": 1.0, "budget": {"amount": 3}}
    stored = {id: {"title": "copy", "ad": ad} for id in IDS}
    return View.of(
        bundle_of(linear_model([Document(id, {"title": "copy", "text": ""}) for id in IDS]), stored)
    )


def test_copies_that_miss_questions_become_equal() -> None:
    rng, whole = random.Random(3), view()
    part, name = whole.base, whole.bundle.name
    ledger, copies = Ledger(), [LedgerCopies(lambda _: True) for _ in range(3)]
    totals, change, behind = dict.fromkeys(IDS, 0.0), 0, 0
    for _ in range(300):
        for _ in range(rng.choice([0, 1, 3, 30])):
            change += 1
            ad = rng.choice(IDS)
            totals[ad] += 0.25
            ledger.note(Spent(change, name, ad, totals[ad], 0, 0.0))
        if rng.random() < 0.1:
            ledger.deny(name, rng.choice(IDS), NOW + 5)
        copy = rng.choice(copies)
        found = copy.updated(ledger.excerpt(name, NOW))
        if isinstance(found, int):
            behind += 1
            found = copy.updated(ledger.excerpt(name, NOW, found))
        assert isinstance(found, Ledger)
        expected, own = ledger.over(name, part, NOW), found.over(name, part, NOW)
        assert expected is not None
        assert own is not None
        np.testing.assert_array_equal(own, expected)
    assert behind > 10


def test_an_excerpt_has_the_newest_changes_of_each_ad() -> None:
    ledger = Ledger()
    for change in range(1, 201):
        ledger.note(Spent(change, "shop", f"d{change % 50}", float(change), 0, 0.0))
    ledger.note(Spent(201, "other", "x", 1.0, 0, 0.0))
    recent = ledger.excerpt("shop", NOW)
    assert (recent.after, recent.last) == (200 - RECENT, 200)
    assert [one.change for one in recent.changes] == list(range(201 - RECENT, 201))
    assert [one.change for one in ledger.excerpt("shop", NOW, 0).changes] == list(range(151, 201))
    assert [one.change for one in ledger.excerpt("shop", NOW, 197).changes] == [198, 199, 200]
    assert ledger.excerpt("nothing", NOW) == (ledger.source, "nothing", 0, 0, [], [])


def test_an_older_question_takes_nothing_back() -> None:
    ledger, copies, whole = Ledger(), LedgerCopies(lambda _: True), view()
    name = whole.bundle.name
    ledger.note(Spent(1, name, IDS[0], 1.0, 0, 0.0))
    older = ledger.excerpt(name, NOW)
    ledger.note(Spent(2, name, IDS[0], 3.0, 0, 0.0))
    copies.updated(ledger.excerpt(name, NOW))
    found = copies.updated(older)
    assert isinstance(found, Ledger)
    over = found.over(name, whole.base, NOW)
    assert over is not None
    assert over.tolist() == [True] + [False] * 59


def test_a_shard_keeps_what_its_own_ads_have_spent() -> None:
    ledger, whole = Ledger(), view()
    name = whole.bundle.name
    for change, id in enumerate(IDS, 1):
        ledger.note(Spent(change, name, id, 3.0, 0, 0.0))
    copies = LedgerCopies(lambda id: id < "d030")
    found = copies.updated(ledger.excerpt(name, NOW, 0))
    assert isinstance(found, Ledger)
    over = found.over(name, whole.base, NOW)
    assert over is not None
    assert over.tolist() == [id < "d030" for id in IDS]
    assert len(found.excerpt(name, NOW, 0).changes) == 30


def test_ledgers_that_asked_long_ago_are_forgotten() -> None:
    copies, first = LedgerCopies(lambda _: True), Ledger()
    first.note(Spent(7, "shop", "d", 1.0, 0, 0.0))
    assert isinstance(copies.updated(first.excerpt("shop", NOW)), Ledger)
    for _ in range(70):
        copies.updated(Ledger().excerpt("shop", NOW))
    assert copies.updated(first.excerpt("shop", NOW, 7)) == 0
