"""Commands that ask the coordinator of a joined cluster: activate, roll back, and experiments."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fullrank.errors import BundleNotFound, FullrankError
from fullrank_fleet.cluster import joined
from fullrank_fleet.remote import Folder, absolute
from fullrank_fleet.serving.actors import answer_of, running_coordinator
from fullrank_fleet.serving.coordinator import CHANGE_S, Snapshot
from fullrank_fleet.serving.tracking import START_S
from fullrank_fleet.serving.waiting import NoAnswer, answered
from fullrank_fleet.sets.manifest import SET, find_set

# Check that the fleet of a cluster is the one that a command means; there is one fleet in a cluster.

_LOCAL = ("file://", "local://")


def serves(served: Snapshot, root: str) -> bool:
    return _place(served.root) == _place(root)


def _place(root: str) -> str:
    """Return one text for all addresses of a folder: with and without file://, a last slash and symbolic links."""
    for start in _LOCAL:
        root = root.removeprefix(start)
    return root.rstrip("/") if "://" in root else os.path.realpath(root)


def check_root(served: Snapshot, root: str) -> None:
    """Check that a fleet serves the sharded bundles of a folder. Raises FullrankError."""
    if not serves(served, root):
        raise FullrankError(
            f"{root}: the fleet of this cluster does not serve this folder, but {served.root}"
        )


def check_replicas(served: Snapshot, replicas: int) -> None:
    """Check that a fleet has so many replicas of each shard. Raises FullrankError."""
    if served.per_shard != replicas:
        raise FullrankError(
            f"--replicas {replicas}: the fleet of this cluster was started with {served.per_shard} replicas of each "
            f"shard; join it with --replicas {served.per_shard}"
        )


def bundle_of(served: Snapshot, address: str) -> tuple[str, str]:
    """Return the name of a bundle at an address in the folder of the fleet, and its version, or the name again.

    Raises:
        FullrankError: The fleet serves another folder.
    """
    found = absolute(address.rstrip("/"))
    parent, _, last = found.rpartition("/")
    if serves(served, parent):
        return last, last
    root, _, name = parent.rpartition("/")
    check_root(served, root)
    return name, last


# Ask the coordinator of the joined cluster.


# Pause before a coordinator that has died is asked again.
_PAUSE_S = 0.2
# By method, the change of which the caller cannot know whether it was made when the coordinator dies.
_CHANGES = {
    "activate": "swap",
    "start_experiment": "change",
    "stop_experiment": "change",
    "scale": "change",
}


def ask(coordinator: Any, method: str, *arguments: Any, is_starting: bool = False) -> Any:
    """Call a method of the coordinator, and wait for the answer for as long as it answers pings.

    A change is asked for once, because the coordinator may have made it before it died. Its process may have to start
    first (``is_starting``).

    Raises:
        FullrankError: As the coordinator raises it; or it has died, or does not answer.
    """
    silent_s = START_S if is_starting else None

    async def wait() -> Any:
        return await answered(
            answer_of(getattr(coordinator, method).remote(*arguments)),
            lambda: answer_of(coordinator.ping.remote()),
            limit_s=CHANGE_S,
            silent_s=silent_s,
        )

    try:
        return asyncio.run(wait() if method in _CHANGES else _alive(wait))
    except NoAnswer as error:
        raise FullrankError(
            f"the coordinator of the fleet does not answer: {error}; what it was asked for it may still do"
        ) from error
    except ConnectionError as error:
        raise FullrankError(
            f"the coordinator died{_doubt(method)}; run the command again"
        ) from error


async def _alive(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until the coordinator is there: Ray refuses calls while it starts one again that has died."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return await ask()
        except NoAnswer:
            raise
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE_S)


def _doubt(method: str) -> str:
    change = _CHANGES.get(method)
    return "" if change is None else f" during the {change}, which is done or has changed nothing"


def activate(bundle: str, is_collection: bool = False, *, address: str) -> Snapshot:
    """Serve a sharded bundle, <root>/<name>/<version>, or <root>/<name> for the newest, from the fleet of a cluster.

    Args:
        is_collection: Whether it serves in its collection alone, whose snapshot is returned then.

    Raises:
        FullrankError: No cluster answers, its fleet serves another folder, or the version cannot serve; nothing was
            changed then. Or the coordinator died meanwhile, or does not answer: then it may still make the change.
    """
    with joined(address):
        name, version = bundle_of(served(), bundle)
        return _changed_in(name if is_collection else None, "activate", version)


def rollback(bundles: str, collection: str | None = None, *, address: str) -> Snapshot:
    """Serve the version before the present one again. Raises as ``activate``, or if there was none."""
    with fleet_of(bundles, address) as found:
        previous = found.of(collection).previous
        if previous is None:
            raise BundleNotFound(f"{bundles}: no previous version was served before this one")
        return _changed_in(collection, "activate", previous)


def _changed_in(collection: str | None, change: str, *arguments: Any) -> Snapshot:
    """Change what serves in a collection, None: by default, and return its snapshot."""
    more = () if collection is None else (collection,)
    return changed(change, *arguments, *more).of(collection)


def served(coordinator: Any = None, *, is_starting: bool = False) -> Snapshot:
    asked = coordinator or running_coordinator()
    found: Snapshot = ask(asked, "follow", None, 0, 0.0, is_starting=is_starting)
    return found


def changed(change: str, *arguments: Any) -> Snapshot:
    """Let the coordinator of the joined cluster change what it serves."""
    found: Snapshot = ask(running_coordinator(), change, *arguments)
    return found


@contextmanager
def fleet_of(bundles: str, address: str) -> Iterator[Snapshot]:
    """Join a cluster while the block runs, and check that its fleet serves a folder. Raises FullrankError."""
    with joined(address):
        found = served()
        check_root(found, absolute(bundles.rstrip("/")))
        yield found


def start(
    bundle: str, share: float, max_days: float, is_collection: bool = False, *, address: str
) -> Snapshot:
    """Interleave a sharded bundle with the one that a fleet serves. Arguments and errors are those of ``activate``."""
    found = absolute(bundle.rstrip("/"))
    if not Folder(found).has(SET):
        parent, _, name = found.rpartition("/")
        found = find_set(Folder(parent), name).address
    root, name, version = found.rsplit("/", 2)
    with fleet_of(root, address):
        collection = name if is_collection else None
        return _changed_in(collection, "start_experiment", version, share, max_days)


def stop(bundles: str, collection: str | None = None, *, address: str) -> Snapshot:
    """End the experiment of the fleet that serves a folder. Raises as ``activate``."""
    with fleet_of(bundles, address):
        return _changed_in(collection, "stop_experiment")
