"""Join a Ray cluster with the settings that Fullrank needs."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fullrank.errors import FullrankError

# Ray reads these when it is imported, and its nodes when they start.
_NODE = {
    # Ray reports its use over the network otherwise.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray counts mapped bundles as used memory and would kill the processes that share them.
    "RAY_memory_monitor_refresh_ms": "0",
    # For so many seconds a node outlives its head; Ray gives up after one minute.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
    # Without this Ray warns about accelerators, which Fullrank does not use.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# Bytes. Numpy goes through files, so the object store carries queries and answers only; by default it takes 30 % of
# the memory.
_OBJECT_STORE = 200 << 20
LOCAL = "local"
# Longest wait for a connection.
_CONNECT_S = 5.0
NAMESPACE = "fullrank"
HEAD = "node:__internal_head__"
"""A resource that the node of the head alone has."""


def node_environment() -> dict[str, str]:
    """Return the environment variables that a node of the cluster must be started with."""
    return dict(_NODE)


def worker_environment(threads: int = 1) -> dict[str, str]:
    """Return the environment variables of a task or an actor, with so many threads of each numerical library.

    Ray runs as many tasks as there are cores, so more than one would only compete.
    """
    return {**_NODE, **dict.fromkeys(_THREADS, str(threads))}


def prepare() -> None:
    """Set the environment variables that Ray reads when it is imported."""
    os.environ.update(_NODE)
    if _has_token():
        # Ray starts a head with tokens wherever it finds one, and a cluster without tokens accepts them too.
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def join(address: str) -> Any:
    """Join a cluster until this process ends; return the module ``ray``.

    Args:
        address: As ``ray.init`` takes it: "auto", "host:6379", or "local" for a new cluster on this machine, which ends
            with this process.

    Raises:
        FullrankError: No cluster answers at the address.
    """
    prepare()
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    own: dict[str, Any] = {"object_store_memory": _OBJECT_STORE} if address == LOCAL else {}
    try:
        _check(address)
        ray.init(
            address=address,
            namespace=NAMESPACE,
            runtime_env={"env_vars": worker_environment()},
            log_to_driver=False,
            configure_logging=False,
            include_dashboard=False if address == LOCAL else None,
            **own,
        )
    except (OSError, ValueError) as error:  # ConnectionError is an OSError
        raise FullrankError(f"--ray {address}: no cluster answers there: {error}") from error
    if callable(handler):
        restore_handler(handler)
    return ray


def restore_handler(handler: Callable[[int, FrameType | None], Any]) -> None:
    """Set the handler of SIGTERM, if this is the main thread: Ray's own ends the process at once."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _has_token() -> bool:
    """Return whether this user has a token of Ray: in the environment, or where Ray writes one for a local cluster."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return True
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return (Path(named) if named else Path.home() / ".ray" / "auth_token").is_file()


def _check(address: str) -> None:
    """Connect to HOST:PORT, because Ray tries for minutes where nothing listens. Raises OSError."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.removeprefix("ray://"), int(port)), _CONNECT_S).close()


def leave() -> None:
    """Leave the cluster; handles of actors are of no use any more."""
    import ray

    ray.shutdown()


def head_of(address: str) -> str | None:
    """Return the id of the head's node in the cluster that this process has joined; None: no head answers."""
    import ray

    nodes: Any = ray.nodes
    try:
        _check(address)
        heads = [node for node in nodes() if node["Alive"] and HEAD in node["Resources"]]
    except (OSError, ray.exceptions.RayError):
        return None
    return str(heads[-1]["NodeID"]) if heads else None


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """Join a cluster while the block runs; errors as of ``join``."""
    ray = join(address)
    try:
        yield ray
    finally:
        ray.shutdown()
