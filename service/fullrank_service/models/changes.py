"""What operators change in the committed state: pure functions, for one machine and for a fleet.

Each returns the state itself if nothing would change. generation is that of the next change.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fullrank_service.models.state import ActiveState, Experiment


def activated(
    state: ActiveState, version: str, sha256: str, generation: int, before: str | None
) -> ActiveState:
    """Make a version the default, which ends an experiment.

    Args:
        state: The committed state.
        version: The new one.
        sha256: Of its manifest.
        generation: The next one.
        before: The version that serves.
    """
    if (state.version, state.manifest_sha256) == (version, sha256):
        return state
    previous = before if before != version else state.previous
    return ActiveState(generation, version, sha256, state.loaded, previous)


def experimenting(
    state: ActiveState, active: str, sha256: str, generation: int, experiment: Experiment
) -> ActiveState:
    """Begin an experiment, which ends another one.

    Args:
        state: The committed state.
        active: The version that serves.
        sha256: Of its manifest.
        generation: The next one.
        experiment: Against the active version.
    """
    return replace(
        state,
        generation=generation,
        version=active,
        manifest_sha256=sha256,
        experiment=experiment,
    )


def without_experiment(state: ActiveState, generation: int) -> ActiveState:
    """End the experiment; the active version stays."""
    if state.experiment is None:
        return state
    return replace(state, generation=generation, experiment=None)


def loading(state: ActiveState, version: str, loaded: Collection[str]) -> ActiveState:
    """Keep a version loaded.

    Args:
        state: The committed state.
        version: The further one.
        loaded: Versions that are loaded somewhere. Others are dropped from the list, which would grow for ever.
    """
    # The last version of the list stays loaded longest.
    kept = tuple(own for own in state.loaded if own in loaded and own != version)
    return replace(state, loaded=(*kept, version))
