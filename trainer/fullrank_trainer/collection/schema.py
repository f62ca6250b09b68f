"""Decide which fields of the documents are read, that is searched, and which are only stored.

The first of these that says something about a field decides:

    --fields title,text,brand       these fields are read, in this order, and no others
    schema.json                     {"fields": {"sku": "stored", "brand": "text"}}
    the rule                        title, text and anchors are read, and fields whose values are words

The rule looks at the values of a field, at most 1,000 different ones, evenly spaced over the documents in
the order of their ids. It reads the field if at least half of them are words (see ``values``).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

from fullrank.errors import CollectionError
from fullrank.storage import strict_json
from fullrank.storage.documents import Document, text_of
from fullrank.storage.strict_json import JsonError
from fullrank_trainer.collection.corpus import FIELD as ANCHORS
from fullrank_trainer.collection.pairs import hashed

_MAX_CHARACTERS = 400  # of a value that are read
_MAX_UNIT_LETTERS = 3  # of a unit or a currency next to a number: kg, pcs, EUR
_PROSE_WORDS = 4  # this many words make a text, whatever else is in it
_PLACEHOLDERS = frozenset({"n/a", "nan", "none", "null"})
_FLAGS = frozenset({"true", "false", "yes", "no", "on", "off"})

_EMAIL = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
_LINK = re.compile(r"(?:[a-z][a-z0-9+.-]*://|www\.|//|(?:mailto|tel|data|urn|magnet):)\S*", re.I)
_PATH = re.compile(r"(?:~?/|\.{1,2}/|[a-z]:\\|\\\\)\S*", re.I)
_DOTTED = re.compile(r"[\w%~+@/\\-]+(?:\.[\w%~+@/\\-]+)*\.[a-z][a-z0-9]*", re.I)
_FILE = re.compile(r".*\.(?:jpe?g|png|gif|webp|avif|svg|tiff?|bmp|pdf|mp[34]|zip|html?)", re.I)
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}(?:[-/.]\d{1,2})?(?:[T ]\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}(?:\s+\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(?::\d{2})?(?:\s*[ap]\.?m\.?)?"
    r"|\d{2,4}\s*[年년]\s*\d{1,2}\s*[月월](?:\s*\d{1,2}\s*[日일])?.*"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?,?\s+\d{4}",
    re.I,
)
_DAY = re.compile(r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th|er|º|ª)?", re.I)
_YEAR = re.compile(r"[12]\d{3}")
# Letters, joined by signs that names contain: rock'n'roll, AC/DC, T-shirt, red,blue.
_WORD = re.compile(r"[^\W\d_]+(?:[-‐‑–'’ʼ·‧&+,;/|()!>]{1,2}[^\W\d_]+)*")
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_LETTERS = re.compile(r"[^\W\d_]+")
_JOINTS = re.compile(r"[-_/]")
# A letter before a digit, as in B12, SKU-12 and hashes; but 10x20 is a size.
_SERIAL = re.compile(r"(?<!\d)[^\W\d_][-_]?\d|[^\W\d_x][-_]?\d", re.I)


class Kind(StrEnum):
    """What a value is; the text is the plural that reports use."""

    WORDS = "words"
    # One word in capitals, or several joined by "_" or "-": a name if many documents have it, else an id.
    LABELS = "labels"
    NUMBERS = "numbers"
    DATES = "dates"
    LINKS = "links"
    EMAILS = "e-mail addresses"
    FILES = "paths and dotted names"
    FLAGS = "yes or no"
    SHORT = "short codes"
    CODES = "codes"


def kind_of(value: str) -> Kind | None:
    """Tell what a value is; None for one without a letter or digit, and for placeholders such as "n/a".

    Example:
        >>> kind_of("Nike Air"), kind_of("AB-1234"), kind_of("2024-01-05")
        (<Kind.WORDS: 'words'>, <Kind.CODES: 'codes'>, <Kind.DATES: 'dates'>)
    """
    text = _plain(value[:_MAX_CHARACTERS]).strip()
    if not any(map(str.isalnum, text)) or text.lower() in _PLACEHOLDERS:
        return None
    if text.lower() in _FLAGS:
        return Kind.FLAGS
    tokens = [token for part in text.split() if (token := _EDGES.sub("", part))]
    if _EMAIL.fullmatch(text):
        return Kind.EMAILS
    if _LINK.fullmatch(text):
        return Kind.LINKS
    if _DATE.fullmatch(text) or _is_written_date(text.split()):
        return Kind.DATES
    if any(pattern.fullmatch(text) for pattern in (_FILE, _PATH, _DOTTED)):
        return Kind.FILES
    if _is_number(text):
        return Kind.NUMBERS
    if all(map(_is_short_code, tokens)):
        return Kind.SHORT
    if len(tokens) == 1 and (found := _kind_of_token(text, tokens[0])) is not None:
        return found
    count = sum(map(_is_word, tokens))
    return Kind.WORDS if 2 * count >= len(tokens) or count >= _PROSE_WORDS else Kind.CODES


def _plain(text: str) -> str:
    """Normalise, and drop marks: ``str.isalpha`` and ``\\w`` do not count the vowel signs of many scripts."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    return "".join(c for c in text if unicodedata.category(c)[0] != "M")


def _has_no_case(character: str) -> bool:
    """Check for a letter of a script without capitals (Han, Kana, Arabic, Thai)."""
    return character.isalpha() and character.lower() == character.upper()


def _is_number(text: str) -> bool:
    """Check for digits with at most a unit, a currency or signs: "19,99 €", "10 x 20 cm", "1,200円"."""
    digits = sum(map(str.isdigit, text))
    if not digits:
        return False
    caseless = sum(map(_has_no_case, text))
    if caseless:
        letters = sum(map(str.isalpha, text))
        return letters == caseless and caseless <= max(2, digits)
    if _SERIAL.search(text):
        return False
    runs = [len(run) for run in _LETTERS.findall(text)]
    fits = len(runs) <= 1 or sum(runs) < digits
    return fits and max(runs, default=0) <= _MAX_UNIT_LETTERS


def _is_written_date(parts: list[str]) -> bool:
    """Check for a day, a month's name and a year: "12 March 2024", "Mon, 02 Jan 2006 15:04:05 GMT"."""
    days = years = names = 0
    for i, part in enumerate(parts):
        token = part.strip(".,()")
        if token.isalpha():
            # Short words join the parts ("de"), and a weekday comes first with a comma.
            names += len(token) > _MAX_UNIT_LETTERS and not (i == 0 and part.endswith(","))
        elif _YEAR.fullmatch(token):
            years += 1
        elif _DAY.fullmatch(token):
            days += 1
        elif not re.fullmatch(r"[+-]?[\d:.]+(?:[ap]m|z)?", token, re.I):
            return False
    has_letters = any(part.strip(".,()").isalpha() for part in parts)
    return days == years == 1 and names <= 1 and has_letters


def _is_short_code(token: str) -> bool:
    if any(map(_has_no_case, token)):
        return False
    return all(
        part.isalpha() and (len(part) <= 2 or (len(part) <= _MAX_UNIT_LETTERS and part.isupper()))
        for part in _JOINTS.split(token)
    )


def _kind_of_token(text: str, token: str) -> Kind | None:
    """Tell what a value of one token is; None if it is to be judged as a text."""
    if text.startswith("#"):
        return Kind.CODES
    if any(map(_has_no_case, token)):
        return None
    joints, has_one_case = len(_JOINTS.findall(token)), token.isupper() or token.islower()
    if not any(map(str.isdigit, token)) and (
        "_" in token or ("-" in token and joints > 1 and has_one_case) or token.isupper()
    ):
        return Kind.LABELS
    return None


def _is_word(token: str) -> bool:
    if any(map(_has_no_case, token)):
        return sum(map(str.isalpha, token)) > sum(map(str.isdigit, token))
    return len(token) > 1 and _WORD.fullmatch(token) is not None


SCHEMA = "schema.json"
MAX_FIELDS = 32
"""Most fields that the rule reads: each one costs a count of all documents and a row of weights."""

_SAMPLE = 1000
_MIN_SHARE = 0.5  # of the values that are words
_MAX_DISTINCT_SHARE = 0.5  # of the values of a label; above, it is an id
_DEFAULT = ("title", "text", ANCHORS)
_USES = {"text": True, "stored": False}
_TYPE_NAMES = {bool: "true or false", int: "numbers", float: "numbers", list: "lists"}


@dataclass(frozen=True)
class FieldVerdict:
    """The use of one field: searches find its words, or it is only stored; and why."""

    name: str
    is_read: bool
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Schema:
    """A parsed schema.json: field → true for text, false for stored. Fields that it leaves out follow the rule."""

    path: Path
    uses: Mapping[str, bool]


@dataclass
class _Values:
    """The values of one field: where each distinct text, by hash, comes first, and the types of the others.

    Each text of a list is a value.
    """

    documents: int = 0  # that have text
    texts: int = 0
    first: dict[int, tuple[int, int]] = field(default_factory=dict)  # row, place in its list
    types: set[type] = field(default_factory=set)
    # The first document with a value that is not text.
    example: str = ""


def field_uses(fields: Iterable[FieldVerdict]) -> dict[str, str]:
    """Return which fields are read and which are only stored, and why, as two lines of a report."""
    found: dict[str, list[str]] = {"read": [], "stored": []}
    for verdict in fields:
        use = "read" if verdict.is_read else "stored"
        found[use].append(f"{verdict.name} ({verdict.reason})")
    return {use: ", ".join(lines) or "no field" for use, lines in found.items()}


def parse_schema(path: Path, content: bytes) -> Schema:
    try:
        value = strict_json.parse_object(content, max_depth=3)
    except JsonError as error:
        where = f"field {error.field!r} " if error.field else ""
        raise CollectionError(f"{path}: {where}{error.reason}") from None
    for name in value:
        if name != "fields":
            raise CollectionError(f"{path}: field {name!r}: unknown; there is only 'fields'")
    uses = value.get("fields")
    if not isinstance(uses, dict):
        raise CollectionError(
            f"{path}: field 'fields': expected an object such as "
            '{"fields": {"sku": "stored", "brand": "text"}}'
        )
    for name, use in uses.items():
        if not isinstance(use, str) or use not in _USES:
            raise CollectionError(
                f'{path}: field {name!r}: expected "text" or "stored", got {use!r}'
            )
    return Schema(path, {name: _USES[use] for name, use in uses.items()})


def choose_fields(
    documents: Sequence[Document],
    schema: Schema | None = None,
    asked: Sequence[str] | None = None,
) -> tuple[FieldVerdict, ...]:
    """Decide which fields of the documents are read.

    Args:
        asked: the fields to read, in this order; None leaves the choice to the schema and the rule.

    Returns:
        A verdict on every field: those of ``asked`` first, or title, text and the others in order of appearance.

    Raises:
        CollectionError: a field does not exist, comes twice, or has values that are not text.
    """
    values = _collect(documents)
    order = [name for name in _DEFAULT if name in values]
    order += [name for name in values if name not in _DEFAULT]
    if asked is not None:
        if not asked:
            raise CollectionError("fields: name at least one text field")
        if repeated := [name for name, times in Counter(asked).items() if times > 1]:
            raise CollectionError(f"fields: {repeated[0]!r} is given twice")
        for name in asked:
            _require_text("fields", name, values)
        rest = (name for name in order if name not in asked)
        return (
            *(FieldVerdict(name, True, "asked for") for name in asked),
            *(FieldVerdict(name, False, "not asked for") for name in rest),
        )
    uses = {} if schema is None else schema.uses
    if schema is not None:
        for name, is_text in uses.items():
            _require_text(str(schema.path), name, values, must_be_text=is_text)
    found = [
        FieldVerdict(name, uses[name], SCHEMA)
        if name in uses
        else _judge(name, values[name], documents)
        for name in order
    ]
    return _limited(found, values, uses)


def _collect(documents: Sequence[Document]) -> dict[str, _Values]:
    found: dict[str, _Values] = {}
    for row, document in enumerate(documents):
        for name, value in document.fields.items():
            values = found.get(name)
            if values is None:
                values = found[name] = _Values()
            if text_of(value) is not None:
                texts = [value] if isinstance(value, str) else value
                values.documents += bool(texts)
                values.texts += len(texts)
                for place, text in enumerate(texts):
                    values.first.setdefault(hashed(text, b"", 16), (row, place))
            elif value is not None:
                values.types.add(type(value))
                values.example = values.example or document.id
    return found


def _require_text(
    source: str, name: str, values: Mapping[str, _Values], *, must_be_text: bool = True
) -> None:
    if name not in values:
        near = get_close_matches(name, values, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(values)}"
        raise CollectionError(f"{source}: no document has a field {name!r}; {hint}")
    if must_be_text and values[name].types:
        raise CollectionError(
            f"{source}: field {name!r} cannot be read: document {values[name].example!r} has "
            f"{_describe(values[name])} there; only text can be searched"
        )


def _describe(values: _Values) -> str:
    return " and ".join(sorted({_TYPE_NAMES.get(kind, "objects") for kind in values.types}))


def _judge(name: str, values: _Values, documents: Sequence[Document]) -> FieldVerdict:
    if values.types:
        also = "text and " if values.texts else ""
        return FieldVerdict(name, False, also + _describe(values))
    if name in _DEFAULT:
        return FieldVerdict(name, True, "always read")
    places = list(values.first.values())
    if len(places) == 1 and values.documents == len(documents) > 1:
        return FieldVerdict(name, False, "the same in every document")
    sample = places[:: -(-len(places) // _SAMPLE)] if places else ()
    found = ((documents[row].fields[name], place) for row, place in sample)
    kinds = Counter(kind_of(v if isinstance(v, str) else v[place]) for v, place in found)
    kinds.pop(None, None)
    if not kinds:
        return FieldVerdict(name, False, "no words")
    total = kinds.total()
    if len(places) <= _MAX_DISTINCT_SHARE * values.texts:
        kinds[Kind.WORDS] += kinds.pop(Kind.LABELS, 0)
    if kinds[Kind.WORDS] >= _MIN_SHARE * total:
        return FieldVerdict(name, True, _share(kinds[Kind.WORDS], total, Kind.WORDS))
    del kinds[Kind.WORDS]
    kind, most = max(kinds.items(), key=lambda item: (item[1], item[0] or ""))
    return FieldVerdict(name, False, _share(most, total, kind or ""))


def _share(part: int, total: int, kind: str) -> str:
    """Return "words", or "90 % words" if some values are something else."""
    kind = "ids" if kind == Kind.LABELS else kind
    return kind if part == total else f"{100 * part // total} % {kind}"


def _limited(
    found: Sequence[FieldVerdict], values: Mapping[str, _Values], uses: Mapping[str, bool]
) -> tuple[FieldVerdict, ...]:
    """Keep at most MAX_FIELDS fields that the rule reads: those that the most documents have."""
    by_rule = [v.name for v in found if v.is_read and v.name not in uses and v.name not in _DEFAULT]
    by_rule.sort(key=lambda name: -values[name].documents)
    others = sum(v.is_read for v in found) - len(by_rule)
    dropped = set(by_rule[max(0, MAX_FIELDS - others) :])
    reason = f"beyond {MAX_FIELDS} text fields: name it to read it"
    return tuple(FieldVerdict(v.name, False, reason) if v.name in dropped else v for v in found)
