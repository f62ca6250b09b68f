"""The process that serves: it sets the environment, opens the port, then starts workers and keeps them running.

Settings reach workers through the environment. So do the thread counts of OpenMP and OpenBLAS, before numpy is
imported: omp_set_num_threads affects only the thread that calls it.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from contextlib import suppress
from functools import partial
from logging import getLogger
from pathlib import Path

from pydantic import ValidationError

from fullrank.errors import FullrankError
from fullrank_service.base.settings import PREFIX, Settings, misspelled_variables, reasons
from fullrank_service.base.sharing import FOLDER, leave, metrics_folder, restart_counter
from fullrank_service.process.supervisor import Supervisor, import_to_share
from fullrank_service.process.worker import FINISH_S, QUEUE_LENGTH, configured, start

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

# Makes the app of a folder of bundles.
APP = "fullrank_service.app:create_app"
# How long a stopping worker may take to end after its last answer, seconds.
_EXIT_S = 5
_log = getLogger("fullrank_service.process.run")


def serve(
    bundles: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    workers: int | None = None,
    factory: str = APP,
) -> None:
    """Serve until a signal stops the process. An argument of None is read from the environment, else the default.

    ``factory`` is the "module:function" that makes the app in each worker.

    If numpy is loaded already, so are its thread pools. Then the process replaces itself by a fresh one (same process
    id), because it could not limit these pools.

    Raises:
        FullrankError: a setting is misspelled or invalid, the folder of bundles is missing, or the port is in use.
    """
    given = {"bundles": bundles, "host": host, "port": port, "workers": workers}
    os.environ |= {
        PREFIX + name.upper(): str(value) for name, value in given.items() if value is not None
    }
    misspelled = misspelled_variables(os.environ)
    if misspelled:
        raise FullrankError(
            "; ".join(
                f"{name}: not a setting; did you mean {near}?" for name, near in misspelled.items()
            )
        )
    settings = read_settings()
    if not settings.bundles.is_dir():
        raise FullrankError(
            f"{settings.bundles}: no such folder of bundles; train one, or name another with --bundles"
        )
    from fullrank_service.http.access import Access

    Access.from_settings(settings).require_protection()
    limited = all(os.environ.get(name) == "1" for name in _THREADS)
    os.environ |= dict.fromkeys(_THREADS, "1")
    # Child processes import from where this process does. With -m alone they would look into the working directory
    # first, and take a folder named service there for this package.
    os.environ |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    if "numpy" in sys.modules and not limited:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, "-m", "fullrank_service.process.run", factory])
    run(factory, settings)


def read_settings() -> Settings:
    """Read the settings of the environment. Raises FullrankError."""
    try:
        return Settings()
    except ValidationError as error:
        raise FullrankError(reasons(error, lambda path: PREFIX + path.upper())) from None


def run(factory: str, settings: Settings) -> None:
    """Serve an app until a signal stops the process. The factory is the "module:function" that makes it.

    Raises:
        FullrankError: the port or the folder of metrics cannot be used.
        SystemExit: the app could not be started; its code is NOT_STARTED.
    """
    configured(factory, settings)
    _raise_open_file_limit()
    with _bind(settings) as listening, metrics_folder(settings.metrics_folder) as folder:
        _log.info("listening on http://%s:%d", settings.host, listening.getsockname()[1])
        # Before the folder of metrics is named: prometheus-client, which is imported here, would keep metrics in files
        # of this process.
        import_to_share(factory.partition(":")[0])
        os.environ[FOLDER] = str(folder)
        count = restart_counter(folder)

        def ended(number: int, reason: str) -> None:
            leave(folder, str(number))
            count(reason)

        code = Supervisor(
            partial(start, factory, listening),
            settings.workers,
            ended=ended,
            stopping=listening.close,
            grace_s=settings.drain_ms / 1000 + FINISH_S + _EXIT_S,
        ).run()
    if code:
        sys.exit(code)


def _bind(settings: Settings) -> socket.socket:
    """Listen on the address. Connections wait in the queue until the app has started."""
    host, port = settings.host, settings.port
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Without it the second part of an answer waits 40 ms for the first to be acknowledged. asyncio sets it only on
        # sockets that it opened itself; connections inherit it.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel drops a client that stops reading: uvicorn's close() waits for it without end.
        timeout_ms = round(settings.response_timeout_s * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
        listening.bind((host, port))
        # Two services may both bind; only one may listen.
        listening.listen(QUEUE_LENGTH)
    except OSError as error:
        listening.close()
        raise FullrankError(
            f"{host}:{port}: {error.strerror}; choose another address with --host and --port"
        ) from error
    return listening


def _raise_open_file_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    try:
        serve(factory=sys.argv[1] if sys.argv[1:] else APP)
    except FullrankError as error:
        sys.exit(f"fullrank: {error}")
