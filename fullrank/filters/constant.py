"""Filters that match every document, or none, whatever the documents hold."""

from __future__ import annotations

from fullrank.filters.columns.times import parse_time
from fullrank.filters.query import And, AnyOf, Exists, Filter, InRange, Not, Or


def constant(condition: Filter) -> bool | None:
    """Return whether a filter matches every document (True) or none (False); None: it depends on the document.

    Example:
        >>> constant(parse_filter({"or": []})), constant(parse_filter({})), constant(parse_filter({"year": 1999}))
        (False, True, None)
    """
    match condition:
        case And(parts):
            found = [constant(part) for part in parts]
            return False if False in found else (None if None in found else True)
        case Or(parts):
            found = [constant(part) for part in parts]
            return True if True in found else (None if None in found else False)
        case Not(part):
            inner = constant(part)
            return None if inner is None else not inner
        case AnyOf():
            return None if condition.values else False
        case InRange():
            return False if _is_empty(condition) else None
        case Exists():
            return None


def _is_empty(condition: InRange) -> bool:
    lower, upper = condition.lower, condition.upper
    if isinstance(lower, str) and isinstance(upper, str):
        begins, ends = parse_time(lower), parse_time(upper)
        if begins is None or ends is None:
            is_above, is_equal = lower > upper, lower == upper
        else:
            is_above, is_equal = begins > ends, begins == ends
    elif lower is not None and upper is not None:
        is_above, is_equal = float(lower) > float(upper), lower == upper
    else:
        return False
    return is_above or (is_equal and (condition.exclude_lower or condition.exclude_upper))
