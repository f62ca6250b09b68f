"""Count impressions and clicks of ads: each token once, a click after its impression, no client too often.

One SQLite file for all workers of a machine; a count is synced before it is acknowledged. Which client did what is kept
for a day, a token until it expires, an impression for a cap as long as the cap says, outcomes for some days, the sums
of an ad for good.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fullrank.errors import FullrankError
from fullrank.events.places import DAYS
from fullrank_service.ads import outcomes
from fullrank_service.ads.outcomes import Fitted, Outcomes, Scorer
from fullrank_service.ads.tokens import Served
from fullrank_service.sqlite import SqliteFile

FILE = "ads.sqlite"
IMPRESSION, CLICK = "impression", "click"
# A click that this machine has not leased enough for; nothing was counted, report it again after leasing.
NO_LEASE = "no_lease"
RESULTS = (
    IMPRESSION,
    CLICK,
    "repeated",
    "bot",
    "over_limit",
    "over_budget",
    "no_impression",
    "expired",
    "invalid",
)
# Most counted events of one client within some seconds: clicks on any ads, impressions of one ad.
LIMITS = ((60, 1), (3600, 10), (86_400, 25))
_DAY_S = 86_400
# Sums of prices are not exact in binary.
TOLERANCE = 1e-9
# Pause between two removals of what has expired.
_EXPIRY_S = 60.0
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS tokens (
    id BLOB PRIMARY KEY, expires REAL NOT NULL, is_clicked INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tokens_by_expiry ON tokens (expires);
CREATE TABLE IF NOT EXISTS counted (
    client TEXT NOT NULL, kind TEXT NOT NULL, ad TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS counted_by_client ON counted (client, kind, at, ad);
CREATE INDEX IF NOT EXISTS counted_by_time ON counted (at);
CREATE TABLE IF NOT EXISTS sums (
    collection TEXT NOT NULL, ad TEXT NOT NULL, day INTEGER NOT NULL,
    impressions INTEGER NOT NULL DEFAULT 0, clicks INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (collection, ad, day)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
    change INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, ad TEXT NOT NULL,
    total REAL NOT NULL, day INTEGER NOT NULL, today REAL NOT NULL, UNIQUE (collection, ad)
);
CREATE TABLE IF NOT EXISTS machine (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL);
INSERT OR IGNORE INTO machine VALUES (1, lower(hex(randomblob(8))));
CREATE TABLE IF NOT EXISTS leases (key TEXT PRIMARY KEY, leased REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (
    person TEXT NOT NULL, collection TEXT NOT NULL, token TEXT NOT NULL, ad TEXT NOT NULL,
    expires REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS seen_by_person ON seen (person, collection, expires, token, ad);
CREATE INDEX IF NOT EXISTS seen_by_expiry ON seen (expires);
"""
    + outcomes.TABLES
)


class CountsError(FullrankError):
    """The file of counts cannot be read or written; nothing was counted."""


class Report(NamedTuple):
    """A reported event of a served ad.

    Attributes:
        kind: IMPRESSION or CLICK.
        served: What the token says.
        client: Who reports it; the person of the token, if there is one.
        at: When the report came, seconds since 1970.
        most: What the ad may have spent up to now, the click included.
        most_today: The same, since midnight in UTC.
        cap_s: How long an impression counts for the cap of the ad; 0: it has none.
        is_leased: Whether this machine may spend only what it has leased.
        is_final: Whether a click without a lease is counted as over budget; else the result is NO_LEASE.
    """

    kind: str
    served: Served
    client: str
    at: float
    most: float = math.inf
    most_today: float = math.inf
    cap_s: int = 0
    is_leased: bool = False
    is_final: bool = True

    @property
    def seen(self) -> Seen | None:
        """What its impression counts for a cap; None: the ad has none, or nobody is named."""
        person, collection, token, ad = (
            self.served.person,
            self.served.collection,
            self.served.id,
            self.served.ad,
        )
        if not self.cap_s or not person:
            return None
        return Seen(person, collection, token, ad, self.at + self.cap_s)


class Spent(NamedTuple):
    """What an ad has spent.

    Attributes:
        change: Rises with every change of any ad.
        collection: Name of the bundle.
        ad: Id of the document.
        total: In all.
        day: The last day on which it spent, days since 1970 in UTC.
        today: On that day.
    """

    change: int
    collection: str
    ad: str
    total: float
    day: int
    today: float


class Seen(NamedTuple):
    """An impression that counts for the cap of its ad.

    Attributes:
        person: Who saw it, as a pseudonym.
        collection: Name of the bundle.
        token: Id of its token.
        ad: Id of the document.
        expires: When the cap forgets it, seconds since 1970.
    """

    person: str
    collection: str
    token: str
    ad: str
    expires: float


class Counts:
    """One connection to the file, for one thread at a time.

    Args:
        path: The file; it need not exist.
        days: After which outcomes are removed.
    """

    def __init__(self, path: Path, days: int = DAYS) -> None:
        self._file = SqliteFile(path, _TABLES, CountsError)
        self._days = days
        self._next_expiry = 0.0

    def count(self, reports: Sequence[Report]) -> list[str]:
        """Count some reports in one synced transaction.

        Returns:
            The result of each, one of ``RESULTS``.

        Raises:
            CountsError: Nothing was counted.
        """
        with self._file.changing() as file:
            found = [self._count(file, report) for report in reports]
            if reports and reports[-1].at >= self._next_expiry:
                self._next_expiry = reports[-1].at + _EXPIRY_S
                file.execute("DELETE FROM tokens WHERE expires < ?", (reports[-1].at,))
                file.execute("DELETE FROM seen WHERE expires < ?", (reports[-1].at,))
                file.execute("DELETE FROM counted WHERE at < ?", (reports[-1].at - _DAY_S,))
                outcomes.expire(file, reports[-1].at, self._days)
        return found

    def sums(self, collection: str) -> dict[str, tuple[int, int]]:
        """Return impressions and clicks of each ad. Raises CountsError."""
        query = (
            "SELECT ad, sum(impressions), sum(clicks) FROM sums WHERE collection = ? GROUP BY ad"
        )
        with self._file.reading() as file:
            return {ad: (seen, clicked) for ad, seen, clicked in file.execute(query, (collection,))}

    def spent_after(self, change: int) -> list[Spent]:
        """Return what ads have spent whose sums changed after a change, in its order. Raises CountsError."""
        query = "SELECT change, collection, ad, total, day, today FROM spent WHERE change > ? ORDER BY change"
        if self._file.is_missing:
            return []
        with self._file.reading() as file:
            return [Spent(*row) for row in file.execute(query, (change,))]

    def seen(self, person: str, collection: str, now: float) -> list[Seen]:
        """Return what a person has seen of ads that have a cap, within its seconds. Raises CountsError."""
        if self._file.is_missing:
            return []
        query = "SELECT * FROM seen WHERE person = ? AND collection = ? AND expires > ?"
        with self._file.reading() as file:
            return [Seen(*row) for row in file.execute(query, (person, collection, now))]

    def all_seen(self, now: float) -> list[Seen]:
        """Return what ``seen`` returns, of all people. Raises CountsError."""
        if self._file.is_missing:
            return []
        with self._file.reading() as file:
            return [
                Seen(*row) for row in file.execute("SELECT * FROM seen WHERE expires > ?", (now,))
            ]

    def clicks(self) -> dict[Scorer, int]:
        """Return the counted clicks on ads that each model placed. Raises CountsError."""
        if self._file.is_missing:
            return {}
        with self._file.reading() as file:
            return outcomes.clicks(file)

    def outcomes(self, scorer: Scorer) -> Outcomes:
        """Return what became of the ads that a model placed. Raises CountsError."""
        with self._file.reading() as file:
            return outcomes.read(file, scorer)

    def calibrations(self) -> dict[Scorer, Fitted]:
        """Return the calibration of each model, of this or another worker. Raises CountsError."""
        if self._file.is_missing:
            return {}
        with self._file.reading() as file:
            return outcomes.kept(file)

    def keep_calibration(self, scorer: Scorer, fitted: Fitted) -> None:
        """Keep the calibration of a model for all workers. Raises CountsError."""
        with self._file.changing() as file:
            outcomes.keep(file, scorer, fitted)

    def erase(self, person: str) -> None:
        """Forget what a person saw and clicked; sums stay. Raises CountsError."""
        if self._file.is_missing:
            return
        with self._file.changing() as file:
            file.execute("DELETE FROM seen WHERE person = ?", (person,))
            file.execute("DELETE FROM counted WHERE client = ?", (person,))

    def machine(self) -> str:
        """Return the id of this machine, the same for all workers. Raises CountsError."""
        with self._file.reading() as file:
            return str(file.execute("SELECT id FROM machine").fetchone()[0])

    def balances(self, collection: str, ad: str, day: int) -> list[tuple[str, float, float]]:
        """Return key, leased and not yet spent of the leases of an ad: in all, and on a day. Raises CountsError."""
        keys = lease_keys(collection, ad, day)
        with self._file.reading() as file:
            spent = _spent(file, collection, ad, day)
            leased = [_leased(file, key) for key in keys]
        return [(key, own, own - used) for key, own, used in zip(keys, leased, spent, strict=True)]

    def add_lease(self, key: str, amount: float) -> None:
        """Note that this machine has leased more. Raises CountsError."""
        with self._file.changing() as file:
            file.execute(
                "INSERT INTO leases VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET leased = leased + ?",
                (key, amount, amount),
            )

    def leases(self) -> dict[str, float]:
        """Return what this machine has leased so far, by key. Raises CountsError."""
        with self._file.reading() as file:
            return dict(file.execute("SELECT key, leased FROM leases").fetchall())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _count(self, file: sqlite3.Connection, report: Report) -> str:
        served, id = report.served, bytes.fromhex(report.served.id)
        if served.expires <= report.at:
            return "expired"
        known = file.execute("SELECT is_clicked FROM tokens WHERE id = ?", (id,)).fetchone()
        if known is None and report.kind == CLICK:
            return "no_impression"
        if known is not None and (report.kind == IMPRESSION or known[0]):
            return "repeated"
        if self._is_over_limit(file, report):
            return "over_limit"
        result = report.kind
        if report.kind == CLICK and not self._charge(file, report):
            result = "over_budget"
            if report.is_leased and not report.is_final:
                return NO_LEASE
        if report.kind == IMPRESSION:
            file.execute("INSERT INTO tokens (id, expires) VALUES (?, ?)", (id, served.expires))
        else:
            file.execute("UPDATE tokens SET is_clicked = 1 WHERE id = ?", (id,))
        row = (report.client, report.kind, _ad(served), report.at)
        file.execute("INSERT INTO counted VALUES (?, ?, ?, ?)", row)
        key = (served.collection, served.ad, int(report.at // _DAY_S))
        file.execute("INSERT OR IGNORE INTO sums (collection, ad, day) VALUES (?, ?, ?)", key)
        column = "impressions" if report.kind == IMPRESSION else "clicks"
        file.execute(
            f"UPDATE sums SET {column} = {column} + 1 WHERE collection = ? AND ad = ? AND day = ?",
            key,
        )
        outcomes.note(file, served, is_click=report.kind == CLICK)
        if report.kind == IMPRESSION and report.seen is not None:
            file.execute("INSERT INTO seen VALUES (?, ?, ?, ?, ?)", report.seen)
        return result

    def _charge(self, file: sqlite3.Connection, report: Report) -> bool:
        """Add the price of a click to what its ad has spent; False if the budget does not allow it."""
        served, today = report.served, int(report.at // _DAY_S)
        spent, spent_today = _spent(file, served.collection, served.ad, today)
        total, spent_today = spent + served.price, spent_today + served.price
        most, most_today = report.most, report.most_today
        if report.is_leased:
            keys = lease_keys(served.collection, served.ad, today)
            leased = [_leased(file, key) for key in keys]
            most = min(most, leased[0]) if math.isfinite(most) else most
            most_today = min(most_today, leased[1]) if math.isfinite(most_today) else most_today
        if total > most + TOLERANCE or spent_today > most_today + TOLERANCE:
            return False
        file.execute(
            "INSERT OR REPLACE INTO spent (collection, ad, total, day, today) VALUES (?, ?, ?, ?, ?)",
            (served.collection, served.ad, total, today, spent_today),
        )
        return True

    def _is_over_limit(self, file: sqlite3.Connection, report: Report) -> bool:
        query = "SELECT at FROM counted WHERE client = ? AND kind = ? AND at > ?"
        values: list[object] = [report.client, report.kind, report.at - _DAY_S]
        if report.kind == IMPRESSION:
            query += " AND ad = ?"
            values.append(_ad(report.served))
        times = [at for (at,) in file.execute(query, values)]
        return any(
            sum(at > report.at - seconds for at in times) >= most for seconds, most in LIMITS
        )


def lease_keys(collection: str, ad: str, day: int) -> tuple[str, str]:
    """Return the keys of what is leased of an ad: in all, and on a day since 1970."""
    return f"all {collection} {ad}", f"{day} {collection} {ad}"


def _leased(file: sqlite3.Connection, key: str) -> float:
    found = file.execute("SELECT leased FROM leases WHERE key = ?", (key,)).fetchone()
    return float(found[0]) if found else 0.0


def _spent(file: sqlite3.Connection, collection: str, ad: str, day: int) -> tuple[float, float]:
    """Return what an ad has spent on this machine, in all and on a day."""
    query = "SELECT total, day, today FROM spent WHERE collection = ? AND ad = ?"
    total, last, today = file.execute(query, (collection, ad)).fetchone() or (0.0, day, 0.0)
    return total, today if last == day else 0.0


def _ad(served: Served) -> str:
    # Names of collections have no spaces.
    return f"{served.collection} {served.ad}"
