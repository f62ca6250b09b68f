"""The fields of a set, so that every shard checks a request as the whole would.

A filter is valid if any shard has the field and the kind, and a text field is sorted by time if any shard has a time
in it. Each shard aligns its own columns with a table that has the kinds of all shards and no documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fullrank.bundle import Bundle
from fullrank.filters.columns import Column, Columns, aligned
from fullrank.filters.columns.times import parse_time
from fullrank.live import View
from fullrank.live.part import Part


def columns_of_set(columns: Mapping[str, Any], time_fields: frozenset[str]) -> Columns:
    """Return the fields of a set as columns without documents.

    Args:
        columns: Of set.json.
        time_fields: Text fields with a time among their values, in any shard.
    """
    by_name = {
        name: Column(name, {}, 0, frozenset(kinds), name in time_fields)
        for name, kinds in columns.items()
        if not isinstance(kinds, dict)
    }
    refused = {name: kinds["refused"] for name, kinds in columns.items() if isinstance(kinds, dict)}
    return Columns(0, by_name, refused)


def times_of_bundle(bundle: Bundle) -> frozenset[str]:
    """Return the text fields of a bundle that have a time among their values."""
    return frozenset(
        name
        for name, column in bundle.columns.by_name.items()
        if "keyword" in column.parts
        and any(parse_time(text) is not None for text in column.parts["keyword"].values)
    )


def view_in_set(bundle: Bundle, columns: Mapping[str, Any], time_fields: frozenset[str]) -> View:
    """Return the view of a shard's bundle whose fields are those of its set; arguments as of ``columns_of_set``."""
    whole = columns_of_set(columns, time_fields)
    own = aligned([bundle.columns, whole])[0]
    return View(bundle, 0, replace(Part.of(bundle), fields=own))
