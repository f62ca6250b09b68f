"""The fields of a set, so that every shard checks a request as the whole would.

A filter is valid if any shard has the field and the kind, and a text field is sorted by time if any shard has a time
in it. Each shard aligns its own columns with a table that has the kinds of all shards and no documents.
"""

from __future__ import annotations

from dataclasses import replace

from fleet.sets import SetManifest
from fullrank.bundle import Bundle
from fullrank.filters.columns import Column, Columns, aligned
from fullrank.live import View
from fullrank.live.part import Part


def columns_of_set(manifest: SetManifest) -> Columns:
    """Return the fields of a set as columns without documents."""
    columns, time_fields = manifest.columns, manifest.time_fields
    by_name = {
        name: Column(name, {}, 0, frozenset(kinds), name in time_fields)
        for name, kinds in columns.items()
        if not isinstance(kinds, dict)
    }
    refused = {name: kinds["refused"] for name, kinds in columns.items() if isinstance(kinds, dict)}
    return Columns(0, by_name, refused)


def view_in_set(bundle: Bundle, manifest: SetManifest) -> View:
    """Return the view of a shard's bundle whose fields are those of its set."""
    own = aligned([bundle.columns, columns_of_set(manifest)])[0]
    return View(bundle, 0, replace(Part.of(bundle), fields=own))
