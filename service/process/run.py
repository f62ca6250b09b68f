"""The process that serves: environment first, then uvicorn.

Settings reach the workers through the environment. Threads of OpenMP and OpenBLAS are bound there
too, before numpy is imported: omp_set_num_threads binds only the thread that calls it.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from fullrank.errors import FullrankError
from service.settings import PREFIX, Settings

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)

# A worker that was told to stop has so long for ending itself when all is answered.
_END_S = 5


def serve(
    bundles: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    workers: int | None = None,
) -> None:
    """Serve until told to stop. What is None comes from the environment, else from the defaults.

    When numpy is loaded already its thread pools are too, so the process replaces itself by a fresh
    one (same process id) instead of serving with pools it cannot bind. Raises FullrankError naming
    the settings that are not possible.
    """
    given = {"bundles": bundles, "host": host, "port": port, "workers": workers}
    os.environ |= {
        PREFIX + name.upper(): str(value) for name, value in given.items() if value is not None
    }
    settings = _settings()
    from service.edge.access import Access

    Access.of(settings).refuse_to_stand_open()
    bound = all(os.environ.get(name) == "1" for name in _THREADS)
    os.environ |= dict.fromkeys(_THREADS, "1")
    # What is started imports from where this process does: -m alone would look into the working directory first,
    # and a folder named service there would be taken for this one.
    os.environ |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    if "numpy" in sys.modules and not bound:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, "-m", "service.process.run"])
    with _shared_metrics(settings):
        run("service.app:create_app", settings)


@contextmanager
def _shared_metrics(settings: Settings) -> Iterator[None]:
    """A folder for what several workers count, there before the first of them starts."""
    given = settings.metrics_folder
    if given is None and settings.workers > 1:
        with tempfile.TemporaryDirectory(prefix="fullrank-metrics-") as folder:
            os.environ[PREFIX + "METRICS_FOLDER"] = folder
            yield
        return
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FullrankError(f"{PREFIX}METRICS_FOLDER: {given}: {error.strerror}") from error
    yield


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        reasons = [
            f"{PREFIX}{'.'.join(map(str, item['loc'])).upper()}: {item['msg']}"
            for item in error.errors(include_input=False)
        ]
        raise FullrankError("; ".join(reasons)) from None


def run(factory: str, settings: Settings) -> None:
    """Serve the app that ``factory``, "module:function", makes, until told to stop."""
    import uvicorn

    from service.process.configured import FINISH_S, configured
    from service.process.supervisor import NOT_STARTED, Supervisor
    from service.process.worker import start

    config = configured(factory, settings)
    _allow_connections()
    if settings.workers > 1:
        listening = config.bind_socket()
        # Else the second part of an answer waits 40 ms for the first to be acknowledged: asyncio sees to
        # it only for sockets that it opened itself. Connections inherit it.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.set_inheritable(False)
        grace_s = settings.drain_ms / 1000 + FINISH_S + _END_S
        code = Supervisor(
            partial(start, factory, listening), settings.workers, grace_s=grace_s
        ).run()
        if code:
            sys.exit(code)
        return
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(NOT_STARTED)


def _allow_connections() -> None:
    """As many open files as this process may have: connections are files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    try:
        serve()
    except FullrankError as error:
        sys.exit(f"fullrank: {error}")
