"""A view as of an earlier operation, made of a later view and of what was written between the two."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fullrank.live.ids import hashes_of
from fullrank.live.segments import build_segment
from fullrank.live.view import View
from fullrank.storage.lexicon import Names


@dataclass(frozen=True, slots=True)
class Earlier:
    """What documents were at an operation, of all that were written after it.

    Attributes:
        seq: The operation.
        of_bundle: Ids that no operation had written since the bundle was made; the bundle may have them or not.
        added: Fields by id of those that were added or replaced by then.
        absent: Ids of those that were deleted by then.
    """

    seq: int
    of_bundle: Collection[str]
    added: Mapping[str, Mapping[str, Any]]
    absent: Collection[str]


def view_before(view: View, earlier: Earlier) -> View:
    """Return the view as of an earlier operation, which ranks with the same scores as a view had then.

    Args:
        view: A later view of the bundle.
        earlier: Names every document that was written between the two, and perhaps others written later.

    Example:
        >>> now = view.apply([Operation(1, "ls", {"text": "List files"})])
        >>> view_before(now, Earlier(0, ["ls"], {}, [])).fields("ls") == view.fields("ls")
        True
    """
    of_bundle = [*earlier.of_bundle]
    written = Names([*of_bundle, *earlier.added, *earlier.absent])
    hashes = hashes_of(written)
    base, *added = [part.remove(part.live_rows(written, hashes)) for part in view.parts]
    assert base.ids is not None
    base = base.restore(base.ids.rows(of_bundle, hashes_of(of_bundle)))
    added = [part for part in added if part.n_live]
    if earlier.added:
        stage = view.bundle.second_stage
        added.append(build_segment(view.encoder, earlier.added, [base, *added], stage))
    return replace(view, seq=earlier.seq, base=base, added=tuple(added))
