"""Events of served ads: sign tokens for hits, count what clients report about them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import TypeVar

from fullrank.ads import Ad
from fullrank.ads.budget import most_spent
from fullrank.ads.pacing import DAY_S
from fullrank.errors import FullrankError
from fullrank.events.people import Pseudonyms, key_for, read_key
from fullrank.events.places import DAYS
from fullrank.events.records import Event
from fullrank_service.ads.calibrations import Calibrations
from fullrank_service.ads.counts import (
    CLICK,
    IMPRESSION,
    NO_LEASE,
    TOLERANCE,
    Counts,
    CountsError,
    Report,
)
from fullrank_service.ads.leases import SLICE, Ask, Leases
from fullrank_service.ads.shared_caps import SharedCaps
from fullrank_service.ads.spending import Spending
from fullrank_service.ads.tokens import InvalidToken, Placed, Served, Signer, served
from fullrank_service.errors import EventsUnavailable, Overloaded
from fullrank_service.groups import Full, GroupCommit, Stopping
from fullrank_service.telemetry.metrics import Metrics

# Requests whose reports are counted in one transaction.
_MOST = 64
# How long an ad is left out after a lease was denied.
_DENIED_S = 5.0
_KINDS = (IMPRESSION, CLICK)
Result = TypeVar("Result")
FindAd = Callable[[str, str], Awaitable[Ad | None]]
_log = getLogger(__name__)


class AdEvents:
    """Counts the events of served ads in one worker.

    Args:
        path: File of the counts.
        key: File of the key of the log of events.
        metrics: Counts results.
        find: Returns the ad of a document of a collection as it is now; None if there is none.
        leases: Share budgets with other machines; None: this one has them alone.
        caps: Share impressions with other machines; None: this one counts its own.
        days: After which outcomes are removed.
    """

    def __init__(
        self,
        path: Path,
        key: Path,
        metrics: Metrics,
        find: FindAd,
        leases: Leases | None = None,
        caps: SharedCaps | None = None,
        days: int = DAYS,
    ) -> None:
        self._key = key
        self._find = find
        self._leases, self._caps = leases, caps
        self._metrics = metrics
        self._secrets: tuple[Signer, Pseudonyms] | None = None
        self._counts = Counts(path, days)
        self.spending = Spending(partial(Counts, path), failed=metrics.background_failed)
        self.calibrations = Calibrations(partial(Counts, path), failed=metrics.background_failed)
        self._reader = Counts(path)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="caps")
        self._group: GroupCommit[Sequence[Report], list[str] | CountsError] = GroupCommit(
            "ads",
            self._commit,
            most=_MOST,
            failed=metrics.background_failed,
            ended=self._counts.close,
        )

    def start(self) -> None:
        """Start what needs the event loop."""
        if self._leases is not None:
            self._leases.start(
                lambda: self._read(self._reader.machine), lambda: self._read(self._reader.leases)
            )
        if self._caps is not None:
            self._caps.start(lambda: self._read(partial(self._reader.all_seen, time.time())))

    def tokens(
        self, collection: str, model: str, who: str | None, placed: Sequence[Placed]
    ) -> Sequence[str | None]:
        """Return the token of each ad of a page; None if there is no key: then its events count nothing.

        Args:
            collection: Name of the bundle.
            model: Id of its model.
            who: Sees the page, in clear.
            placed: The ads.
        """
        if not placed:
            return []
        try:
            signer, people = self._opened()
        except EventsUnavailable:
            return [None] * len(placed)
        person = people.of(who) if who else ""
        return [signer.token(one) for one in served(time.time(), collection, model, person, placed)]

    async def seen(self, collection: str, who: str | None) -> dict[str, int]:
        """Return how often a person has seen each ad that has a cap, empty for nobody.

        Args:
            collection: Name of the bundle.
            who: The person, in clear.

        Raises:
            EventsUnavailable: The file of counts cannot be read.
        """
        if not who:
            return {}
        person, now = self._opened()[1].of(who), time.time()
        found = await self._read(partial(self._reader.seen, person, collection, now))
        if self._caps is not None:
            found += await self._caps.of(person, collection, now)
        # An impression that both know has one token.
        return Counter(ad for _, ad in {(one.token, one.ad) for one in found})

    async def erase(self, who: str) -> None:
        """Forget what a person, in clear, saw and clicked. Raises EventsUnavailable."""
        _, people = self._opened()
        # Release 0.1 counted under the pseudonyms of the log.
        for person in (people.of(who), Pseudonyms(read_key(self._key)).of(who)):
            await self._read(partial(self._reader.erase, person))
            if self._caps is not None:
                await self._caps.forget(person)

    async def count(
        self, events: Sequence[Event], address: str, *, is_bot: bool
    ) -> list[str | None]:
        """Count events that have a token; when this returns the counts survive a power cut.

        Args:
            events: As clients reported them.
            address: Where they come from: the client of an event that names nobody.
            is_bot: A program reports them.

        Returns:
            The result for each, one of ``RESULTS`` of counts.py; None: it has no token, or is another action.

        Raises:
            EventsUnavailable, Overloaded: Nothing was counted.
            Problem: Any that reading the documents of the ads raises; nothing was counted.
        """
        found: list[str | None] = []
        valid: list[tuple[Event, Served]] = []
        places: list[int] = []
        now = time.time()
        for event in events:
            if event.token is None or event.action.lower() not in _KINDS:
                found.append(None)
                continue
            served = self._served(event, event.token)
            found.append("bot" if served is not None and is_bot else "invalid")
            if served is not None and not is_bot:
                places.append(len(found) - 1)
                valid.append((event, served))
        ads = await self._ads([served for _, served in valid])
        reports = [
            self._report(event, served, ads[served.collection, served.ad], address, now)
            for event, served in valid
        ]
        results = await self._count(reports)
        if self._caps is not None:
            both = zip(reports, results, strict=True)
            seen = [one.seen for one, result in both if result == IMPRESSION and one.seen]
            await self._caps.add(seen, now)
        unpaid = [i for i, result in enumerate(results) if result == NO_LEASE]
        if unpaid:
            again = [
                await self._lease(one, ads[one.served.collection, one.served.ad])
                for one in map(reports.__getitem__, unpaid)
            ]
            for i, result in zip(unpaid, await self._count(again), strict=True):
                results[i] = result
                if result == "over_budget":
                    # Other machines have leased the rest, or Redis does not answer. So this machine cannot pay.
                    ad = reports[i].served
                    self.spending.deny(ad.collection, ad.ad, now + _DENIED_S)
        for place, result in zip(places, results, strict=True):
            found[place] = result
        for one in found:
            if one is not None:
                self._metrics.ad_events[one].inc()
        return found

    async def close(self) -> None:
        """Count what waits, then close the file."""
        if self._leases is not None:
            await self._leases.close()
        if self._caps is not None:
            await self._caps.close()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._group.close()
        self.spending.close()
        self.calibrations.close()
        self._pool.shutdown(wait=False)
        self._reader.close()

    def _served(self, event: Event, token: str) -> Served | None:
        """Return what the token of an event says; None if it is invalid or of another document."""
        signer, _ = self._opened()
        try:
            served = signer.read(token)
        except InvalidToken:
            return None
        return None if event.object_id not in (None, served.ad) else served

    async def _ads(self, served: Sequence[Served]) -> dict[tuple[str, str], Ad | None]:
        """Return the ads that were served, as they are now, by collection and id."""
        keys = list(dict.fromkeys((one.collection, one.ad) for one in served))
        found = await asyncio.gather(*(self._find(*key) for key in keys))
        return dict(zip(keys, found, strict=True))

    def _report(
        self, event: Event, served: Served, ad: Ad | None, address: str, now: float
    ) -> Report:
        """Return the report that an event makes."""
        _, people = self._opened()
        kind = event.action.lower()
        # Who asked for the page counts before what the event says, which a client can change at will.
        client = served.person or people.of(event.person or address)
        if ad is None:
            return Report(kind, served, client, now)
        cap_s = 0 if ad.cap is None else ad.cap.seconds
        is_leased = self._leases is not None and ad.budget is not None
        return Report(
            kind, served, client, now, *most_spent(ad, now), cap_s, is_leased, not is_leased
        )

    async def _lease(self, report: Report, ad: Ad | None) -> Report:
        """Lease what a click lacks; return the report for a last try."""
        served, leases = report.served, self._leases
        final = report._replace(is_final=True)
        if leases is None or ad is None or ad.budget is None:
            return final
        machine = await self._read(self._reader.machine)
        day = int(report.at // DAY_S)
        balances = await self._read(
            partial(self._reader.balances, served.collection, served.ad, day)
        )
        limits = ((ad.budget.amount, report.most), (ad.budget.daily, report.most_today))
        for (key, own, left), (budget, most) in zip(balances, limits, strict=True):
            if budget is not None and left < served.price - TOLERANCE:
                ask = Ask(key, own, max(SLICE * budget, served.price), served.price, most)
                granted = await leases.request(machine, ask)
                if granted:
                    await self._read(partial(self._reader.add_lease, key, granted))
        return final

    async def _read(self, work: Callable[[], Result]) -> Result:
        """Use the file on a thread. Raises EventsUnavailable."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except CountsError as error:
            _log.error("the counts of ads cannot be used: %s", error)
            raise EventsUnavailable from None

    async def _count(self, reports: Sequence[Report]) -> list[str]:
        if not reports:
            return []
        try:
            found = await self._group.submit(reports)
        except (Full, Stopping):
            raise Overloaded("Too many events are waiting; try again shortly.") from None
        if isinstance(found, CountsError):
            _log.error("events of ads are not counted: %s", found)
            raise EventsUnavailable from None
        return found

    def _commit(self, group: Sequence[Sequence[Report]]) -> Sequence[list[str] | CountsError]:
        try:
            results = iter(self._counts.count([report for reports in group for report in reports]))
        except CountsError as error:
            return [error] * len(group)
        return [[next(results) for _ in reports] for reports in group]

    def _opened(self) -> tuple[Signer, Pseudonyms]:
        if self._secrets is None:
            try:
                key = read_key(self._key)
            except FullrankError as error:
                _log.error("no tokens: %s", error)
                raise EventsUnavailable from None
            # Tokens show pseudonyms to everybody, so they are not those of the log.
            self._secrets = Signer(key), Pseudonyms(key_for(key, b"people of ads"))
        return self._secrets
