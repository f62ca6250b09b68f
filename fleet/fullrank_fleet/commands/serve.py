"""``fullrank serve --ray``."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from logging import getLogger
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fullrank.errors import BundleNotFound, FullrankError
from fullrank_fleet.cluster import LOCAL, joined
from fullrank_fleet.commands.models import (
    ask,
    changed,
    check_replicas,
    check_root,
    fleet_of,
    served,
)
from fullrank_fleet.remote import Folder, absolute
from fullrank_fleet.serving.actors import coordinator_of, stop_fleet
from fullrank_fleet.serving.coordinator import Snapshot, SwapUnderWay
from fullrank_fleet.serving.documents import LogSource, check_same
from fullrank_fleet.serving.ray_app import VARIABLE, FleetSettings
from fullrank_fleet.sets.manifest import newest_set
from fullrank_service.process.run import read_settings
from fullrank_service.process.run import serve as serve_app

_log = getLogger(__name__)


def serve(
    bundles: str,
    state: Path,
    host: str | None,
    port: int | None,
    workers: int | None,
    *,
    address: str,
    replicas: int,
    cache: Path | None,
) -> None:
    """Serve the sharded bundles of a folder from a cluster; start the fleet if it does not run.

    Args:
        state: Folder of what this router writes: pages and events; rules too where there is no PostgreSQL log. It
            is created.
        cache: Folder of downloaded bundles.

    Raises:
        FullrankError: No cluster answers, the newest set is refused, a setting is invalid, the fleet runs with another
            folder of bundles, number of replicas or log of live documents, or its coordinator does not answer.
    """
    own = FleetSettings(
        address, absolute(bundles), replicas, None if cache is None else str(cache.resolve())
    )
    if address == LOCAL:
        raise FullrankError(
            "--ray local: a fleet needs a cluster that lasts: run `ray start --head` first"
        )
    log = LogSource.of(read_settings())
    if log is not None:
        log.place()
    # Workers are forked from this process, and could not join a cluster that it had joined before.
    with ProcessPoolExecutor(1, get_context("fork")) as one:
        one.submit(_start_fleet, own, log).result()
    state.mkdir(parents=True, exist_ok=True)
    os.environ[VARIABLE] = own.as_json()
    serve_app(state, host, port, workers, factory="fullrank_fleet.serving.ray_app:create")


def _start_fleet(own: FleetSettings, log: LogSource | None) -> None:
    with joined(own.ray):
        coordinator = coordinator_of(own.bundles, own.replicas, own.cache, log)
        found = served(coordinator, is_starting=True)
        check_root(found, own.bundles)
        check_replicas(found, own.replicas)
        check_same(log, found.log)
        if found.version is None:
            _serve_newest(coordinator, own.bundles)


def _serve_newest(coordinator: Any, bundles: str) -> None:
    try:
        newest = newest_set(Folder(bundles))
    except BundleNotFound as error:
        _log.warning("%s; the router waits for it", error)
        return
    # Another router, or the coordinator, may be activating it.
    with suppress(SwapUnderWay):
        ask(coordinator, "activate", newest.address.rpartition("/")[2])


# ``fullrank fleet scale`` and ``stop``.


def scale(bundles: str, replicas: int, *, address: str) -> Snapshot:
    """Change how many replicas each shard of a fleet has; return once new ones have loaded what serves.

    Raises:
        FullrankError: No cluster answers, its fleet serves another folder, or a swap is in progress; nothing was
            changed then. Or the coordinator died meanwhile, or does not answer: then it may still make the change.
    """
    with fleet_of(bundles, address):
        return changed("scale", replicas)


def stop(bundles: str, *, address: str) -> None:
    """Stop the coordinator and all replicas of the fleet that serves a folder. Raises as ``scale``."""
    with fleet_of(bundles, address):
        stop_fleet()
