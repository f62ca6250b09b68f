"""The fields of a set, so that every shard checks a request as the whole would.

A filter is valid if any shard has the field and the kind, and a text field is sorted by time if any shard has a time
in it. Each shard aligns its own columns with a table that has the kinds of all shards and no documents. Live documents
may have other fields; a router knows all of these, and sends with a request what set.json lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fullrank.filters.columns import Column, Columns, Kind, aligned
from fullrank.filters.columns.table import scale_of
from fullrank.live import View
from fullrank_fleet.sets import SetManifest
from fullrank_service.search.request import RankRequest


@dataclass(frozen=True, slots=True)
class NewFields:
    """What live documents have added to the fields of a set.

    Attributes:
        kinds: All kinds of each field that has new ones.
        refused: Why a field cannot be filtered by any more.
        times: Text fields that have times now.
    """

    kinds: tuple[tuple[str, frozenset[Kind]], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    times: frozenset[str] = frozenset()

    @classmethod
    def of(cls, view: View, request: RankRequest) -> NewFields:
        """Return what a search must know, given the view of a router."""
        if not view.added:
            return NONE_NEW
        before, now = view.base.columns, view.columns[0]
        kinds = tuple(
            (name, column.kinds)
            for name, column in now.by_name.items()
            if name not in before or before[name].kinds != column.kinds
        )
        refused = tuple((n, why) for n, why in now.refused.items() if n not in before.refused)
        times = frozenset(
            name
            for name in request.compared
            if name in now and not (name in before and before[name].has_times_elsewhere)
            if scale_of([columns[name] for columns in view.columns]) == "time"
        )
        return cls(kinds, refused, times)


NONE_NEW = NewFields()


def columns_of_set(manifest: SetManifest, new: NewFields = NONE_NEW) -> Columns:
    """Return the fields of a set as columns without documents."""
    refused = {
        n: kinds["refused"] for n, kinds in manifest.columns.items() if isinstance(kinds, dict)
    }
    refused |= dict(new.refused)
    kinds = {**manifest.columns, **dict(new.kinds)}
    times = manifest.time_fields | new.times
    by_name = {
        name: Column(name, {}, 0, frozenset(found), name in times)
        for name, found in kinds.items()
        if name not in refused
    }
    return Columns(0, by_name, refused)


def view_in_set(view: View, manifest: SetManifest, new: NewFields) -> View:
    """Return the view of a shard with the fields of its set."""
    own = aligned([view.base.columns, columns_of_set(manifest, new)])[0]
    return replace(view, base=replace(view.base, fields=own))
