"""What became of served ads: impressions and clicks by score and placement, from which clicks are predicted.

Rows of the file of counts, without ids of people or ads. Scores are rounded to eight binary digits, so that equal ones
share a row; each row belongs to one model, because scores of different models cannot be compared. A row leaves with the
day of its impressions.
"""

from __future__ import annotations

import math
import sqlite3
from typing import NamedTuple

import numpy as np
import orjson

from fullrank.ads.calibration import Calibration, Float64
from fullrank_service.ads.tokens import LIFETIME_S, Served

TABLES = """
CREATE TABLE IF NOT EXISTS outcomes (
    collection TEXT NOT NULL, model TEXT NOT NULL, placement TEXT NOT NULL, day INTEGER NOT NULL,
    score REAL NOT NULL, impressions INTEGER NOT NULL DEFAULT 0, clicks INTEGER NOT NULL DEFAULT 0,
    UNIQUE (collection, model, placement, day, score)
);
CREATE INDEX IF NOT EXISTS outcomes_by_day ON outcomes (day);
CREATE TABLE IF NOT EXISTS calibrations (
    collection TEXT NOT NULL, model TEXT NOT NULL, at REAL NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (collection, model)
) WITHOUT ROWID;
"""
# Most rows; beyond them the oldest leave.
MAX_ROWS = 200_000
_DAY_S = 86_400
_DIGITS = 8

# The name of a bundle, and the id of its model.
Scorer = tuple[str, str]


class Outcomes(NamedTuple):
    """The outcomes of one model, m groups; see ``fullrank.ads.calibration.fit``."""

    placements: list[str]
    scores: Float64
    impressions: Float64
    clicks: Float64


class Fitted(NamedTuple):
    """A calibration, and when it was fitted, in seconds since 1970."""

    at: float
    calibration: Calibration


def note(file: sqlite3.Connection, served: Served, *, is_click: bool) -> None:
    """Count the impression or the click of a served ad."""
    # A click belongs to the day of its impression, so that both leave together.
    day = int((served.expires - LIFETIME_S) // _DAY_S)
    row = (served.collection, served.model, served.placement, day, rounded(served.score))
    file.execute(
        "INSERT OR IGNORE INTO outcomes (collection, model, placement, day, score) VALUES (?, ?, ?, ?, ?)",
        row,
    )
    column = "clicks" if is_click else "impressions"
    file.execute(
        f"UPDATE outcomes SET {column} = {column} + 1 "
        "WHERE collection = ? AND model = ? AND placement = ? AND day = ? AND score = ?",
        row,
    )


def rounded(score: float) -> float:
    """Return a score with eight binary digits: at most 0.4 % away."""
    mantissa, exponent = math.frexp(score)
    return math.ldexp(round(mantissa * (1 << _DIGITS)), exponent - _DIGITS)


def expire(file: sqlite3.Connection, now: float, days: int) -> None:
    """Remove outcomes and calibrations that are older than some days, and the oldest rows beyond the bound."""
    last = int(now // _DAY_S) - days
    file.execute("DELETE FROM outcomes WHERE day < ?", (last,))
    file.execute("DELETE FROM calibrations WHERE at < ?", (now - days * _DAY_S,))
    [count] = file.execute("SELECT count(*) FROM outcomes").fetchone()
    if count > MAX_ROWS:
        file.execute(
            "DELETE FROM outcomes WHERE rowid IN (SELECT rowid FROM outcomes ORDER BY day, rowid LIMIT ?)",
            (count - MAX_ROWS,),
        )


def clicks(file: sqlite3.Connection) -> dict[Scorer, int]:
    """Return the counted clicks of each model."""
    query = "SELECT collection, model, sum(clicks) FROM outcomes GROUP BY collection, model"
    return {(name, model): count for name, model, count in file.execute(query)}


def read(file: sqlite3.Connection, scorer: Scorer) -> Outcomes:
    """Return the outcomes of a model, in an order that the rows alone decide."""
    query = (
        "SELECT placement, score, sum(impressions), sum(clicks) FROM outcomes "
        "WHERE collection = ? AND model = ? GROUP BY placement, score HAVING sum(impressions) > 0 "
        "ORDER BY placement, score"
    )
    rows = file.execute(query, scorer).fetchall()
    numbers = np.array([row[1:] for row in rows], np.float64).reshape(-1, 3)
    return Outcomes([row[0] for row in rows], *numbers.T)


def keep(file: sqlite3.Connection, scorer: Scorer, fitted: Fitted) -> None:
    """Keep the calibration of a model for all workers."""
    content = orjson.dumps(fitted.calibration.json())
    file.execute(
        "INSERT OR REPLACE INTO calibrations VALUES (?, ?, ?, ?)", (*scorer, fitted.at, content)
    )


def kept(file: sqlite3.Connection) -> dict[Scorer, Fitted]:
    """Return the kept calibrations."""
    query = "SELECT collection, model, at, content FROM calibrations"
    return {
        (name, model): Fitted(at, Calibration(**orjson.loads(content)))
        for name, model, at, content in file.execute(query)
    }
