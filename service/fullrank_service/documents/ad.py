"""The object ``ad`` of a document, with the names of OpenRTB 2.6, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from logging import getLogger
from typing import Annotated, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from fullrank.bundle import Bundle
from fullrank.errors import FieldError
from fullrank.filters.columns import Columns
from fullrank.filters.columns.build import MAX_FIELDS
from fullrank.search.part import Part
from fullrank.storage.encoding import Int32, Int64
from fullrank.storage.strict_json import parse_time
from fullrank.storage.strings import DocumentStore

# The field of a document that holds its ad.
FIELD = "ad"
MAX_ITEMS = 64
MAX_CHARS = 256
MAX_DOMAIN_CHARS = 253
# OpenRTB's defaults of `cattax` and `cur`.
DEFAULT_TAXONOMY = 1
DEFAULT_CURRENCY = "USD"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_DOMAINS = re.compile(rf"{_DOMAIN.pattern}(?:\n{_DOMAIN.pattern})*")


class AdError(FieldError):
    """An ad is malformed, or no page could ever show it; its path is like "ad.adomain"."""


def domain(text: str) -> str:
    """Return a domain in lower case and ASCII. Raises ValueError if it cannot be one."""
    found = text.lower().removesuffix(".")
    if not found.isascii():
        found = found.encode("idna").decode()  # UnicodeError is a ValueError
    if len(found) > MAX_DOMAIN_CHARS or not _DOMAIN.fullmatch(found):
        raise ValueError("is not a domain")
    return found


def _advertiser(text: str) -> str:
    try:
        return domain(text)
    except ValueError:
        raise ValueError("is not a domain, such as shop.example") from None


_Name = Annotated[str, Field(max_length=MAX_CHARS)]
_Ignored = Annotated[_Name, AfterValidator(lambda _: "")]
_Items = Field(max_length=MAX_ITEMS)
_Number = Annotated[int, Field(ge=1, lt=1 << 31)]
_Time = Annotated[float, BeforeValidator(partial(parse_time, needs_offset=True))]
Currency = Annotated[str, Field(pattern="^[A-Z]{3}$")]
"""An ISO 4217 code."""


@dataclass(frozen=True, slots=True)
class Ad:
    """A checked ad, with the names of OpenRTB: cattax numbers the taxonomy of cat, attr the attributes of the creative.

    start and end are in seconds since 1970, end is not included; price is in units of cur. Campaign and creative (cid,
    crid) are the ad server's: checked, and not kept.
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    adomain: Annotated[
        tuple[Annotated[_Name, AfterValidator(_advertiser)], ...], Field(min_length=1), _Items
    ]
    cat: Annotated[tuple[Annotated[_Name, Field(min_length=1)], ...], _Items] = ()
    cattax: _Number = DEFAULT_TAXONOMY
    seat: _Name = ""
    attr: Annotated[tuple[_Number, ...], _Items] = ()
    price: Annotated[float, Field(ge=0, le=1e15)] = 0.0
    cur: Currency = DEFAULT_CURRENCY
    start: _Time = -math.inf
    end: _Time = math.inf
    status: Literal["active", "paused"] = "active"
    cid: _Ignored = ""
    crid: _Ignored = ""


_AD = TypeAdapter(Ad)
# What release 0.1 had and a stored ad may still have.
_BILLING = frozenset({"budget", "cap"})


def parse_ad(value: Mapping[str, Any], *, is_stored: bool = False) -> Ad:
    """Read the object ``ad`` of a document; null is absent. A stored ad may have the budget and the cap of release 0.1.

    Raises:
        AdError: It is malformed, or no page could ever show it; the path begins with "ad".

    Example:
        >>> ad = parse_ad({"adomain": ["Shop.Example"], "price": 2.5, "cur": "EUR"})
        >>> ad.adomain, ad.price
        (('shop.example',), 2.5)
    """
    if not isinstance(value, Mapping):
        raise AdError(FIELD, "is not an object")
    for name in sorted(_BILLING & value.keys()) if not is_stored else ():
        reason = "is no longer a field: an ad server keeps budgets and caps, see docs/guides/ads.md"
        raise AdError(f"{FIELD}.{name}", reason)
    given = {
        name: found for name, found in value.items() if found is not None and name not in _BILLING
    }
    try:
        ad = _AD.validate_json(orjson.dumps(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = str(first.get("ctx", {}).get("error", first["msg"]))
        if first["type"] == "unexpected_keyword_argument":
            reason = f"is unknown; there are {', '.join(sorted(Ad.__dataclass_fields__))}"
        raise AdError(".".join(map(str, (FIELD, *first["loc"]))), reason) from None
    if ad.end <= ad.start:
        raise AdError(f"{FIELD}.end", "is not after start")
    return ad


def has_ended(ad: Ad, now: float) -> bool:
    """Check whether an ad can never be shown again; now: seconds since 1970."""
    return ad.end <= now


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
        currency: int32 (m,), places in currencies.
        taxonomy: int32 (m,), the taxonomy of the categories; 0: the ad has no category.
        categories: By (taxonomy, category).
        domains: By domain of the advertiser and all domains above it.
        advertisers: By domain of the advertiser.
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
            np.array([ad.status == "paused" for ad in filled]),
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

        The mask, bool (m,), is read-only, and the same array until an ad starts or ends.
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
    """Read the ads of stored documents, given their columns or the bundle that has them; None without ads."""
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
