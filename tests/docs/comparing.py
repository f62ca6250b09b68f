"""Compare what a page shows with what its commands print."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from difflib import ndiff
from typing import Any

REST = "…"
"""In place of the other keys of an object, items of a list, lines of a text, or words of a line."""
_JSON = json.JSONDecoder()
VARYING = frozenset(
    {"query_id", "model", "version", "previous", "request_id", "took_ms", "seq", "started", "score"}
    | {"dense", "lexical", "bias", "word", "value", "cursor", "generation", "sha256", "created"}
)
"""Keys whose values depend on the run."""

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?"
_VERSION = r"\d{8}t\d{6}z-[0-9a-f]{8}"
_ID = rf"{_TIME}|{_VERSION}|\b(?=[0-9a-f-]*\d)[0-9a-f]{{8}}[0-9a-f-]*\b"
_NUMBER = r"\d+(?:[.,:]\d+)*"


def differences(
    shown: Any, real: Any, place: str = "reply", varying: Collection[str] = VARYING
) -> Iterator[str]:
    """Yield where a real reply differs from the shown one: in keys, kinds, and values that do not vary."""
    if isinstance(shown, dict) and isinstance(real, dict):
        for name in shown.keys() - real.keys() - {REST}:
            yield f"{place}.{name} is not in the reply"
        if REST not in shown:
            for name in real.keys() - shown.keys():
                yield f"{place}.{name} is not on the page"
        for name in shown.keys() & real.keys():
            yield from differences(shown[name], real[name], f"{place}.{name}", varying)
    elif isinstance(shown, list) and isinstance(real, list):
        items = [item for item in shown if item != REST]
        if bool(items) != bool(real) and REST not in shown:
            yield f"{place} has {len(real)} items, not {len(items)}"
        # If a page shows a whole list, the last item also stands for all that follow.
        most = len(items) if REST in shown else len(real)
        for number, item in enumerate(real[:most] if items else []):
            yield from differences(items[min(number, len(items) - 1)], item, f"{place}.{number}", varying)  # fmt: skip
    elif _kind(shown) != _kind(real) or (
        not _is_equal(shown, real) and not _is_varying(place, varying)
    ):
        yield f"{place} is {real!r}, not {shown!r}"


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(type(value))
    return "number" if isinstance(value, int | float) else str(type(value))


def _is_equal(shown: Any, real: Any) -> bool:
    """Compare values; not fractions, and of texts not what names a moment, a version or an id, or is "…"."""
    if isinstance(shown, float) or isinstance(real, float):
        return True
    if not isinstance(shown, str) or not isinstance(real, str):
        return bool(shown == real)
    shown, real = (re.sub(_ID, "#", text) for text in (shown, real))
    return re.fullmatch(re.escape(shown).replace(REST, ".*"), real, re.DOTALL) is not None


def _is_varying(place: str, varying: Collection[str]) -> bool:
    name = place.rpartition(".")[2]
    return name in varying or name.isdigit()


def read_json(text: str) -> list[Any]:
    """Return the JSON values that a text is made of. Raises ValueError for any other text."""
    text = re.sub(r"([\[,]\s*)…(?=\s*\])", rf'\1"{REST}"', text)
    text = re.sub(r"([{,]\s*)…(?=\s*\})", rf'\1"{REST}": null', text).strip()
    found, place = [], 0
    while place < len(text):
        value, place = _JSON.raw_decode(text, place)
        found.append(value)
        place += len(text[place:]) - len(text[place:].lstrip())
    return found


def json_differences(shown: str, printed: str) -> Iterator[str]:
    """Yield where printed JSON values differ from those of a page."""
    try:
        ours, theirs = read_json(shown), read_json(printed)
    except ValueError as error:
        yield f"not JSON ({error}); shown:\n{shown}\nprinted:\n{printed}"
        return
    if len(ours) != len(theirs):
        yield f"{len(theirs)} JSON values are printed, {len(ours)} are shown; printed:\n{printed}"
    for mine, real in zip(ours, theirs, strict=False):
        yield from differences(mine, real)


def text_differences(shown: str, printed: str) -> Iterator[str]:
    """Yield one difference if a printed text is not the shown one, but for numbers, ids, spaces and empty lines."""
    lines = [_plain(line) for line in shown.splitlines() if line.strip()]
    real = [_plain(line) for line in printed.splitlines() if line.strip()]
    pattern = "".join(
        r"(?:.*\n)*?" if line == REST else re.escape(line).replace(REST, ".*") + r"\n"
        for line in lines
    )
    if not re.fullmatch(pattern, "".join(f"{line}\n" for line in real)):
        yield "shown (-), printed (+):\n" + "\n".join(ndiff(lines, real))


def _plain(line: str) -> str:
    line = re.sub(rf"{_ID}|{_NUMBER}", "#", line)
    line = re.sub(r"([━─═-])\1+", r"\1", line)
    return re.sub(r"\s+", " ", line).strip()
