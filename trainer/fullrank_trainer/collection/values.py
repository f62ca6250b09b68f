"""Tell what a field's value is: words that people search for, or a number, date, link, file name or code."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum

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
    """Tell what a value is.

    Args:
        value: text; only its first 400 characters are read.

    Returns:
        Its kind; None for a value without a letter or digit, and for placeholders such as "n/a".

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
    """Check for a letter of a script without capitals (Han, Kana, Arabic, Thai): codes contain none."""
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
    """Check for a code of letters: en, de-AT, USD, XL."""
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
    """Check for a word: letters without digits; in scripts without capitals, more letters than digits."""
    if any(map(_has_no_case, token)):
        return sum(map(str.isalpha, token)) > sum(map(str.isdigit, token))
    return len(token) > 1 and _WORD.fullmatch(token) is not None
