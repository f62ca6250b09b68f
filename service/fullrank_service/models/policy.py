"""What a worker should do next, given the committed state, the models it has loaded, and the bundles on disk.

These are pure functions over plain values, tested as a table. The follower carries out their decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fullrank_service.models.state import ActiveState


@dataclass(frozen=True, slots=True)
class Available:
    """One bundle on disk."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Holding:
    """What a worker serves now: its generation, its active version (None: none) and all versions it has loaded."""

    generation: int
    active: str | None
    loaded: Collection[str]


@dataclass(frozen=True, slots=True)
class Step:
    """Load these versions, then, if ``activate`` is set, serve that version as that generation."""

    load: tuple[str, ...] = ()
    activate: str | None = None
    generation: int = 0


def pinned(state: ActiveState | None, max_loaded: int | None = None) -> tuple[str, ...]:
    """Return the versions that stay loaded in addition to the active one.

    These are the candidates of experiments, the active versions of other collections and, of the other versions in the
    state, the last ones requested, as many as max_loaded allows besides the active and the previous one, and at least
    one. A version that does not fit is dropped and not retried: loading it again at the next change of the state would
    drop the next one, and so on.
    """
    if state is None:
        return ()
    first = [version for version in state.loaded if version in (state.version, state.previous)]
    first += [own.version for own in state.collections.values() if own.version is not None]
    for experiment in (state.experiment, *(own.experiment for own in state.collections.values())):
        if experiment is not None:
            first.append(experiment.candidate)
    others = [version for version in state.loaded if version not in first]
    kept = others if max_loaded is None else others[-max(1, max_loaded - 2) :]
    return (*first, *kept)


def next_step(
    state: ActiveState | None,
    holding: Holding,
    available: Sequence[Available],
    default_model: str | None = None,
    *,
    preload: bool = False,
    max_loaded: int | None = None,
    served_elsewhere: Collection[str] = (),
) -> Step:
    """Decide what to do now; Step() means nothing.

    The committed state decides, even when its generation is lower than the worker's: the worker would follow it after a
    restart. While the state names no version, the worker serves what other workers serve, else the newest bundle of
    default_model, and keeps serving it when a newer one is published.

    Args:
        available: bundles on disk, newest first.
        default_model: a bundle name; None: any.
        preload: load the newest version of every bundle name too, the newest first.
        max_loaded: preload only until this many models are loaded; None: no limit.
        served_elsewhere: the versions that other workers serve.
    """
    activate, generation = None, holding.generation
    if state is not None and state.version is not None:
        if (state.generation, state.version) != (holding.generation, holding.active):
            activate, generation = state.version, state.generation
    elif holding.active is None:
        candidates = [b for b in available if default_model in (None, b.name)]
        joined = [b for b in candidates if b.version in served_elsewhere]
        if candidates:
            first = (joined or candidates)[0]
            activate, generation = first.version, max(1, holding.generation)

    on_disk = {bundle.version for bundle in available}
    wanted = [*pinned(state, max_loaded)]
    if preload:
        if state is not None and state.previous is not None:
            wanted.append(state.previous)
        newest: dict[str, str] = {}
        for bundle in available:
            newest.setdefault(bundle.name, bundle.version)
        kept = {*holding.loaded, *on_disk.intersection([*wanted, activate])}
        more = [version for version in newest.values() if version not in kept]
        wanted += more if max_loaded is None else more[: max(0, max_loaded - len(kept))]
    load = tuple(
        version
        for version in dict.fromkeys(wanted)
        if version in on_disk and version not in holding.loaded and version != activate
    )
    return Step(load, activate, generation)


def to_drop(
    loaded: Sequence[str], keep: Collection[str | None], max_loaded: int
) -> tuple[str, ...]:
    """Return the models to drop beyond max_loaded, the oldest load first, never one of ``keep``."""
    excess = len(loaded) - max_loaded
    return tuple([version for version in loaded if version not in keep][: max(0, excess)])
