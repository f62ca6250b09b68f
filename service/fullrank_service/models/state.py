"""Read and write the files next to the bundles: the active version and the proposed one.

active.json      the committed state: every worker serves its version, also after a restart. It is replaced atomically
                 and synced, so a reader sees the old or the new state, also after a power cut.
proposed.json    a swap in progress; ignored once the process that wrote it has died (livefile.py)
.active.lock     a process must lock it to change either; the kernel releases it when the process dies
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fullrank.bundle.catalog import ACTIVE
from fullrank.errors import FullrankError
from fullrank.storage.files import replace_file
from fullrank_service.base.experiment import Active, Experiment, name_of
from fullrank_service.base.settings import reasons
from fullrank_service.models.livefile import LiveFile, read_live

STATE = ACTIVE
PROPOSAL = "proposed.json"
LOCK = ".active.lock"


@dataclass(frozen=True, slots=True)
class ActiveState:
    """The committed state.

    generation       counts activations, and starts and ends of experiments
    version          the active version; None: none was activated, and the newest serves
    manifest_sha256  of the active version, so that no other bundle of this version serves
    loaded           further versions that every worker keeps loaded
    collections      the active versions of others than the default one, by bundle name
    """

    generation: int
    version: str | None = None
    manifest_sha256: str | None = None
    loaded: tuple[str, ...] = ()
    previous: str | None = None
    experiment: Experiment | None = None
    collections: Mapping[str, Active] = field(default_factory=dict)

    def of(self, collection: str | None) -> ActiveState:
        """Return the state with what it says of a collection in place of the default one."""
        if self._is_default(collection):
            return self
        own = self.collections.get(collection or "", Active())
        return replace(self, **{name: getattr(own, name) for name in _OF_COLLECTION})

    def within(self, collection: str | None, own: ActiveState) -> ActiveState:
        """Return the state after a change of what ``of`` returned."""
        if collection is None or self._is_default(collection):
            return own
        active = Active(*(getattr(own, name) for name in _OF_COLLECTION))
        kept = {name: getattr(self, name) for name in _OF_COLLECTION}
        return replace(own, **kept, collections={**self.collections, collection: active})

    def _is_default(self, collection: str | None) -> bool:
        is_own = self.version is not None and name_of(self.version) == collection
        return collection is None or is_own


_OF_COLLECTION = ("version", "manifest_sha256", "previous", "experiment")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A version that every worker should prepare; id is unique to the attempt, host is where its coordinator runs."""

    id: str
    version: str
    manifest_sha256: str
    host: str


_STATE, _PROPOSAL = TypeAdapter(ActiveState), TypeAdapter(Proposal)


class StateDamaged(FullrankError):
    """active.json exists and cannot be read; the message says why."""


def read_state(root: Path) -> ActiveState | None:
    """Return the committed state, or None if nothing was ever activated. Raises StateDamaged."""
    path = root / STATE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateDamaged(f"{path}: {type(error).__name__}: {error}") from error
    return parse_state(content, str(path))


def parse_state(content: bytes, name: str = STATE) -> ActiveState:
    """Parse the committed state; name is that of the file in errors. Raises StateDamaged."""
    try:
        return _STATE.validate_json(content, strict=True)
    except ValidationError as error:
        raise StateDamaged(f"{name}: {reasons(error)}") from None


def dump_state(state: ActiveState) -> str:
    """Format the committed state as JSON."""
    return json.dumps(asdict(state))


def write_state(root: Path, state: ActiveState) -> None:
    """Replace the committed state; when this returns it survives a power cut. Raises OSError."""
    replace_file(root / STATE, dump_state(state))


def propose(root: Path, proposal: Proposal) -> LiveFile:
    """Write a proposal, valid until the returned file is closed. Raises OSError."""
    file = LiveFile(root / PROPOSAL)
    file.write(json.dumps(asdict(proposal)).encode())
    return file


def read_proposal(root: Path) -> Proposal | None:
    """Return the proposal of a live coordinator, or None."""
    content = read_live(root / PROPOSAL)
    if content is None:
        return None
    try:
        return _PROPOSAL.validate_json(content, strict=True)
    except ValidationError:
        return None


def sweep(root: Path) -> None:
    """Remove the files of a dead coordinator. The caller must have locked the state."""
    for name in (STATE, PROPOSAL):
        for path in root.glob(f".{name}.*.tmp"):
            with suppress(OSError):
                path.unlink()
    with suppress(OSError):
        (root / PROPOSAL).unlink()


class Locked(Exception):
    """Another process has locked the state."""


@contextmanager
def lock(root: Path) -> Iterator[None]:
    """Lock the state against all other processes that share the folder; raise Locked instead of waiting."""
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Locked from error
        yield
    finally:
        os.close(descriptor)


# What operators change in the committed state: pure functions, for one machine and for a fleet.
#
# Each returns the state itself if nothing would change. generation is that of the next change.


def activated(
    state: ActiveState, version: str, sha256: str, generation: int, before: str | None
) -> ActiveState:
    """Make a version the default, in place of the one that serves (before); this ends an experiment."""
    if (state.version, state.manifest_sha256) == (version, sha256):
        return state
    previous = before if before != version else state.previous
    name, others = name_of(version), dict(state.collections)
    if before is not None and name_of(before) != name:
        # It stays active in its own collection.
        older = state.previous
        is_own = older is not None and name_of(older) == name_of(before)
        kept = Active(before, state.manifest_sha256, older if is_own else None)
        others[name_of(before)] = kept
    # The collection of the default version has no other active one.
    others.pop(name, None)
    return ActiveState(generation, version, sha256, state.loaded, previous, None, others)


def experimenting(
    state: ActiveState, active: str, sha256: str, generation: int, experiment: Experiment
) -> ActiveState:
    """Begin an experiment against the version that serves; this ends another one."""
    return replace(
        state, generation=generation, version=active, manifest_sha256=sha256, experiment=experiment
    )


def without_experiment(state: ActiveState, generation: int) -> ActiveState:
    """End the experiment; the active version stays."""
    if state.experiment is None:
        return state
    return replace(state, generation=generation, experiment=None)


def loading(state: ActiveState, version: str, loaded: Collection[str]) -> ActiveState:
    """Keep a version loaded; drop those that are loaded nowhere from the list, which would grow for ever."""
    # The last version of the list stays loaded longest.
    kept = tuple(own for own in state.loaded if own in loaded and own != version)
    return replace(state, loaded=(*kept, version))
