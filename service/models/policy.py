"""What a worker should do next, decided from what is noted, what it holds and what is on disk.

Deciding is apart from doing: these are pure functions over plain values, tested as a table; the
follower does what they say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from service.models.state import ActiveState


@dataclass(frozen=True, slots=True)
class Available:
    """One bundle on disk."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Holding:
    """What a worker serves now: its generation, active version (None: none) and all it loaded."""

    generation: int
    active: str | None
    loaded: Collection[str]


@dataclass(frozen=True, slots=True)
class Step:
    """Load these, then (activate is set) let that version serve as that generation."""

    load: tuple[str, ...] = ()
    activate: str | None = None
    generation: int = 0


def besides(state: ActiveState | None, room: int | None = None) -> tuple[str, ...]:
    """Which of the versions noted to be held are.

    Those asked for last, as many as there is room for beside what serves and what served before, and one at least. What
    does not fit is let go for good: loading it again would let go of the next, with every note anew.
    """
    if state is None:
        return ()
    first = [version for version in state.loaded if version in (state.version, state.previous)]
    others = [version for version in state.loaded if version not in first]
    return (*first, *(others if room is None else others[-max(1, room - 2) :]))


def next_step(
    state: ActiveState | None,
    holding: Holding,
    available: Sequence[Available],
    default_model: str | None = None,
    *,
    preload: bool = False,
    room: int | None = None,
    elsewhere: Collection[str] = (),
) -> Step:
    """What to do now; Step() is nothing.

    available is newest first; elsewhere is what other workers serve. The note on disk is the truth: a worker follows
    it also when its generation is lower than its own, for the note is what it would come up on after a restart. Where
    nothing is noted a worker joins the others, so that a bundle published meanwhile does not part them.
    While no version is noted the newest bundle of default_model (of all, when None) serves, and
    what serves is not exchanged unasked. preload adds the newest version of every bundle name, the newest first, as far
    as there is room: for so many models in all, those that serve or are held besides among them (None: for any number).
    """
    activate, generation = None, holding.generation
    if state is not None and state.version is not None:
        if (state.generation, state.version) != (holding.generation, holding.active):
            activate, generation = state.version, state.generation
    elif holding.active is None:
        candidates = [b for b in available if default_model in (None, b.name)]
        joined = [b for b in candidates if b.version in elsewhere]
        if candidates:
            first = (joined or candidates)[0]
            activate, generation = first.version, max(1, holding.generation)

    on_disk = {bundle.version for bundle in available}
    wanted = [*besides(state, room)]
    if preload:
        if state is not None and state.previous is not None:
            wanted.append(state.previous)
        newest: dict[str, str] = {}
        for bundle in available:
            newest.setdefault(bundle.name, bundle.version)
        kept = {*holding.loaded, *on_disk.intersection([*wanted, activate])}
        more = [version for version in newest.values() if version not in kept]
        wanted += more if room is None else more[: max(0, room - len(kept))]
    load = tuple(
        version
        for version in dict.fromkeys(wanted)
        if version in on_disk and version not in holding.loaded and version != activate
    )
    return Step(load, activate, generation)


def to_drop(
    loaded: Sequence[str], keep: Collection[str | None], max_loaded: int
) -> tuple[str, ...]:
    """Which models to let go beyond max_loaded: oldest load first, never one of keep."""
    excess = len(loaded) - max_loaded
    return tuple([version for version in loaded if version not in keep][: max(0, excess)])
