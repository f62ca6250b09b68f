"""One ad: the object ``ad`` of a document, with the names of OpenRTB 2.6, checked.

An ad that is malformed, or that no page could ever show, is refused with the path and the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from logging import getLogger
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import orjson

from fullrank.bundle import Bundle
from fullrank.encoding import Int32, Int64
from fullrank.errors import FieldError
from fullrank.filters.columns import Columns
from fullrank.filters.columns.build import MAX_FIELDS
from fullrank.search.part import Part
from fullrank.storage.documents import DocumentStore

# The field of a document that holds its ad.
FIELD = "ad"
MAX_ITEMS = 64
MAX_CHARS = 256
MAX_DOMAIN_CHARS = 253
# OpenRTB's defaults of `cattax` and `cur`.
DEFAULT_TAXONOMY = 1
DEFAULT_CURRENCY = "USD"
STATUSES = ("active", "paused")
_MAX_INT = 1 << 31
_CURRENCY = re.compile(r"[A-Z]{3}")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_DOMAINS = re.compile(rf"{_DOMAIN.pattern}(?:\n{_DOMAIN.pattern})*")


class AdError(FieldError):
    """An ad is malformed, or no page could ever show it; its path is like "ad.adomain"."""


@dataclass(frozen=True, slots=True)
class Ad:
    """A checked ad.

    Attributes:
        adomain: Domains of the advertiser, lower case, at least one.
        cat: Categories, numbers of the taxonomy cattax as text.
        cattax: The taxonomy, numbered as in OpenRTB.
        seat: Buyer seat, "" without one.
        attr: Attributes of the creative, numbered as in OpenRTB.
        price: In units of cur.
        cur: ISO 4217 code.
        start: First moment, seconds since 1970; -inf: no start.
        end: The moment after the last one; inf: no end.
        is_active: Whether the status is "active".
    """

    adomain: tuple[str, ...]
    cat: tuple[str, ...] = ()
    cattax: int = DEFAULT_TAXONOMY
    seat: str = ""
    attr: tuple[int, ...] = ()
    price: float = 0.0
    cur: str = DEFAULT_CURRENCY
    start: float = -math.inf
    end: float = math.inf
    is_active: bool = True


# The status is stored as `is_active`.
# Campaign and creative are the ad server's.
_KEYS = frozenset({field.name for field in fields(Ad)} - {"is_active"} | {"status", "cid", "crid"})
# What release 0.1 had and a stored ad may still have.
_BILLING = frozenset({"budget", "cap"})


def parse_ad(value: Mapping[str, Any], *, is_stored: bool = False) -> Ad:
    """Read the object ``ad`` of a document.

    Args:
        value: JSON values by name.
        is_stored: Ignore the budget and the cap of an ad of release 0.1.

    Returns:
        The ad.

    Raises:
        AdError: It is malformed, or no page could ever show it; the path begins with "ad".

    Example:
        >>> ad = parse_ad({"adomain": ["Shop.Example"], "price": 2.5, "cur": "EUR"})
        >>> ad.adomain, ad.price
        (('shop.example',), 2.5)
    """
    value = _object(value, is_stored=is_stored)
    if not value.get("adomain"):
        raise AdError(f"{FIELD}.adomain", "is missing: name a domain of the advertiser")
    status = value.get("status", "active")
    if status not in STATUSES:
        raise AdError(f"{FIELD}.status", f"is not one of {', '.join(STATUSES)}")
    start, end = _time(value, "start", -math.inf), _time(value, "end", math.inf)
    if end <= start:
        raise AdError(f"{FIELD}.end", "is not after start")
    for name in ("cid", "crid"):
        _name(value, name)
    return Ad(
        tuple(_domain(text, path) for text, path in _texts(value, "adomain")),
        tuple(text for text, _ in _texts(value, "cat")),
        _integer(value.get("cattax", DEFAULT_TAXONOMY), f"{FIELD}.cattax"),
        _name(value, "seat"),
        tuple(_integer(item, path) for item, path in _items(value, "attr")),
        _number(value.get("price", 0), f"{FIELD}.price"),
        currency(value.get("cur", DEFAULT_CURRENCY), f"{FIELD}.cur"),
        start,
        end,
        status == "active",
    )


def has_ended(ad: Ad, now: float) -> bool:
    """Check whether an ad can never be shown again; now: seconds since 1970."""
    return ad.end <= now


def domain(text: str) -> str:
    """Return a domain in lower case and ASCII. Raises ValueError if it cannot be one."""
    found = text.lower().removesuffix(".")
    if not found.isascii():
        found = found.encode("idna").decode()  # UnicodeError is a ValueError
    if len(found) > MAX_DOMAIN_CHARS or not _DOMAIN.fullmatch(found):
        raise ValueError("is not a domain")
    return found


def domains(texts: list[str]) -> list[str]:
    """Return domains as ``domain`` does. Raises ValueError that names the first that cannot be one."""
    lower = "\n".join(texts).lower()
    found = lower.split("\n")
    # One match over all of them takes a tenth of the time of one for each.
    if (
        len(found) == len(texts)
        and _DOMAINS.fullmatch(lower)
        and len(max(found, key=len)) <= MAX_DOMAIN_CHARS
    ):
        return found
    found = []
    for place, text in enumerate(texts):
        try:
            found.append(domain(text))
        except ValueError:
            raise ValueError(f"item {place} is not a domain, such as shop.example") from None
    return found


def currency(value: object, path: str) -> str:
    """Return an ISO 4217 code. Raises AdError with the path."""
    if not isinstance(value, str) or not _CURRENCY.fullmatch(value):
        raise AdError(path, "is not a currency code of three capital letters")
    return value


def _object(value: object, *, is_stored: bool) -> dict[str, Any]:
    """Return the fields of an ad that are not null."""
    if not isinstance(value, Mapping):
        raise AdError(FIELD, "is not an object")
    for name in value.keys() - _KEYS:
        if name not in _BILLING:
            raise AdError(f"{FIELD}.{name}", f"is unknown; there are {', '.join(sorted(_KEYS))}")
        if not is_stored:
            reason = "is no longer a field: an ad server keeps budgets and caps, see docs/ads.md"
            raise AdError(f"{FIELD}.{name}", reason)
    return {name: found for name, found in value.items() if found is not None}


def _items(value: Mapping[str, Any], name: str) -> list[tuple[Any, str]]:
    path, found = f"{FIELD}.{name}", value.get(name, [])
    if not isinstance(found, list):
        raise AdError(path, "is not a list")
    if len(found) > MAX_ITEMS:
        raise AdError(path, f"has more than {MAX_ITEMS} items")
    return [(item, f"{path}.{place}") for place, item in enumerate(found)]


def _texts(value: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    return [(_text(item, path), path) for item, path in _items(value, name)]


def _text(value: object, path: str, least: int = 1) -> str:
    if not isinstance(value, str):
        raise AdError(path, "is not text")
    if not least <= len(value) <= MAX_CHARS:
        raise AdError(path, f"does not have {least} to {MAX_CHARS} characters")
    return value


def _name(value: Mapping[str, Any], name: str) -> str:
    return _text(value.get(name, ""), f"{FIELD}.{name}", least=0)


def _domain(text: str, path: str) -> str:
    try:
        return domain(text)
    except ValueError:
        raise AdError(path, "is not a domain, such as shop.example") from None


def _number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AdError(path, "is not a number")
    if not 0 <= value <= 1e15:  # NaN too is refused
        raise AdError(path, "is not a number from 0 to 1e15")
    return float(value)


def _integer(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < _MAX_INT:
        raise AdError(path, f"is not a whole number from 1 to {_MAX_INT - 1}")
    return value


def _time(value: Mapping[str, Any], name: str, missing: float) -> float:
    """Read a moment as seconds since 1970."""
    found, path = value.get(name), f"{FIELD}.{name}"
    if found is None:
        return missing
    try:
        moment = datetime.fromisoformat(found)
    except (TypeError, ValueError):
        raise AdError(path, "is not a date and time of ISO 8601") from None
    if moment.tzinfo is None:
        raise AdError(path, "has no offset, such as Z or +01:00")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


# The ads of many documents as arrays, so that the rules of a page are masks over all of them at once.

Mask = npt.NDArray[np.bool_]
_KEY = orjson.dumps(FIELD)
# A view keeps the store of a part when it removes documents, so the table is read once.
_tables: WeakKeyDictionary[DocumentStore, AdTable | None] = WeakKeyDictionary()
_log = getLogger(__name__)


class Postings:
    """Which ads have which value of a list, such as a category."""

    def __init__(self, values: Sequence[Iterable[Hashable]]) -> None:
        found: dict[Hashable, list[int]] = {}
        self._sizes = np.zeros(len(values), np.int32)
        for place, own in enumerate(values):
            distinct = set(own)
            self._sizes[place] = len(distinct)
            for value in distinct:
                found.setdefault(value, []).append(place)
        self._places = {value: np.array(places, np.int64) for value, places in found.items()}

    def mark(self, values: Iterable[Hashable], mask: Mask) -> None:
        """Set the ads that have at least one of some values in a mask, bool (m,)."""
        places = self._places
        found = [places[value] for value in values if value in places]
        if found:
            mask[np.concatenate(found)] = True

    def any_of(self, values: Iterable[Hashable]) -> Mask:
        """Return the ads that have at least one of some values, bool (m,)."""
        mask = np.zeros(len(self._sizes), np.bool_)
        self.mark(values, mask)
        return mask

    def only(self, values: set[Hashable]) -> Mask:
        """Return the ads that have a value, and none but some values, bool (m,)."""
        counts = np.zeros(len(self._sizes), np.int32)
        for value in values & self._places.keys():
            counts[self._places[value]] += 1
        mask: Mask = (counts == self._sizes) & (counts > 0)
        return mask


class _Window(NamedTuple):
    """From first to before last no ad starts or ends."""

    first: float
    last: float
    unavailable: Mask


@dataclass(frozen=True, eq=False)
class AdTable:
    """The m ads of n documents.

    Attributes:
        rows: int64 (m,), ascending: the document of each ad.
        ads: Each ad; None: it is malformed and must not be shown.
        is_malformed: bool (m,).
        is_paused: bool (m,), its status is not "active".
        start: float64 (m,), seconds since 1970.
        end: float64 (m,).
        price: float64 (m,).
        currency: int32 (m,), places in currencies.
        currencies: Place by code.
        taxonomy: int32 (m,), the taxonomy of the categories; 0: the ad has no category.
        categories: By (taxonomy, category).
        domains: By domain of the advertiser and all domains above it.
        advertisers: By domain of the advertiser.
        seats: By seat.
        attributes: By number.
    """

    rows: Int64
    ads: tuple[Ad | None, ...]
    is_malformed: Mask
    is_paused: Mask
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    price: npt.NDArray[np.float64]
    currency: Int32
    currencies: Mapping[str, int]
    taxonomy: Int32
    categories: Postings
    domains: Postings
    advertisers: Postings
    seats: Postings
    attributes: Postings
    _window: list[_Window] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, rows: Sequence[int], ads: Sequence[Ad | None]) -> AdTable | None:
        """Make the table of ads, None for a malformed one, in ascending order of rows; None without ads."""
        if not ads:
            return None
        filled = [Ad(()) if ad is None else ad for ad in ads]
        currencies = {cur: place for place, cur in enumerate(sorted({ad.cur for ad in filled}))}
        return cls(
            np.array(rows, np.int64),
            tuple(ads),
            np.array([ad is None for ad in ads]),
            np.array([not ad.is_active for ad in filled]),
            np.array([ad.start for ad in filled]),
            np.array([ad.end for ad in filled]),
            np.array([ad.price for ad in filled]),
            np.array([currencies[ad.cur] for ad in filled], np.int32),
            currencies,
            np.array([ad.cattax if ad.cat else 0 for ad in filled], np.int32),
            Postings([[(ad.cattax, id) for id in ad.cat] for ad in filled]),
            Postings([_with_parents(ad.adomain) for ad in filled]),
            Postings([ad.adomain for ad in filled]),
            Postings([[ad.seat] if ad.seat else [] for ad in filled]),
            Postings([ad.attr for ad in filled]),
        )

    @classmethod
    def of_store(cls, store: DocumentStore) -> AdTable | None:
        """Read the ads of stored documents; None without ads."""
        rows, ads, malformed = [], list[Ad | None](), list[AdError]()
        for row in range(len(store)):
            # A search for bytes skips the parsing of documents without ads.
            if _KEY not in store.json(row):
                continue
            value = store.fields(row).get(FIELD)
            if not isinstance(value, Mapping):
                continue
            rows.append(row)
            try:
                ads.append(parse_ad(value, is_stored=True))
            except AdError as error:
                ads.append(None)
                malformed.append(error)
        if malformed:
            _log.warning(
                "%d of %d ads are malformed and will not be shown; the first: %s",
                len(malformed), len(ads), malformed[0],
            )  # fmt: skip
        return cls.of(rows, ads)

    def __len__(self) -> int:
        return len(self.ads)

    def unavailable(self, now: float) -> Mask:
        """Return the ads that no page may show at a moment: malformed, paused, before their start or after their end.

        Args:
            now: Seconds since 1970.

        Returns:
            bool (m,), read-only; the same array until an ad starts or ends.
        """
        for window in self._window:
            if window.first <= now < window.last:
                return window.unavailable
        mask: Mask = self.is_malformed | self.is_paused | (self.start > now) | (self.end <= now)
        mask.flags.writeable = False
        changes = np.concatenate([self.start, self.end])
        first = np.max(changes, where=changes <= now, initial=-np.inf)
        last = np.min(changes, where=changes > now, initial=np.inf)
        self._window[:] = [_Window(float(first), float(last), mask)]
        return mask

    def is_of_another(self, currency: str) -> Mask:
        """Return the ads whose price is in another currency, bool (m,)."""
        mask: Mask = self.currency != self.currencies.get(currency, -1)
        return mask

    def ad(self, row: int) -> Ad | None:
        """Return the ad of a document; None if it has none that can be read."""
        rows = self.rows
        # Rows ascend, so this holds where all documents up to the row are ads; a comparison is faster than a search.
        is_dense = row < len(rows) and rows[row] == row
        place = row if is_dense else int(rows.searchsorted(row))
        return self.ads[place] if is_dense or (place < len(rows) and rows[place] == row) else None


def ads_of(part: Part) -> AdTable | None:
    """Return the ads of the documents of a part; None without ads. The first call is slow; see ``prepare_ads``."""
    store = part.store
    try:
        return _tables[store]
    except KeyError:
        found = _tables[store] = read_ads(store, part.fields)
        return found


def prepare_ads(parts: Iterable[Part]) -> None:
    """Read the ads of parts before requests need them."""
    for part in parts:
        ads_of(part)


def read_ads(store: DocumentStore, fields: Columns | Bundle) -> AdTable | None:
    """Read the ads of stored documents; None without ads.

    Args:
        store: The documents.
        fields: Their columns, or the bundle that has them, as of ``Part``.
    """
    # A bundle of an earlier release would have to read all documents to build its columns.
    if isinstance(fields, Bundle) and "columns" in fields.sections:
        columns = fields.columns
        is_complete = len(columns.by_name) + len(columns.refused) < MAX_FIELDS
        # A field that holds objects is refused as a column, so most bundles need no look at their documents.
        if is_complete and FIELD not in columns.refused:
            return None
    return AdTable.of_store(store)


def _with_parents(domains: Iterable[str]) -> Iterator[str]:
    for domain in domains:
        labels = domain.split(".")
        yield from (".".join(labels[first:]) for first in range(len(labels)))
