"""Build the app of a router: the HTTP service of ``service.app``, which answers from the shards of a set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fleet.remote import BundleCache
from fleet.serving.asking import Patience
from fleet.serving.documents import SetDocuments
from fleet.serving.engine import SetEngine
from fleet.serving.head import HeadView
from fleet.serving.log import LogSource
from fleet.serving.models import SetModels
from fleet.serving.transport import Shards
from fullrank.errors import FullrankError
from service.app import App, create_app
from service.backend import Backend
from service.documents.live import LiveDocuments
from service.documents.submission import Caps
from service.settings import Settings
from service.telemetry.metrics import Metrics

# Of the deadline of a request: shards that have not answered by then are missing, and an answer without them is in
# time.
_SHARE_OF_DEADLINE = 0.8
# Sets that a router has loaded, and so every replica: the active one, and the one before, which requests and the
# cursors of pages may name.
_LOADED = 2


Router = TypeVar("Router", bound=Shards)


def create_router(
    settings: Settings,
    make_shards: Callable[[Metrics], Router],
    cache: BundleCache,
    starting: Callable[[SetModels, Router], Awaitable[None]],
) -> App:
    """Create the app of a router.

    Args:
        settings: Of the service. Its folder of bundles holds what this router writes: rules, pages, events.
        make_shards: Called with the metrics of the app; makes what reaches the shards of a set.
        cache: Where bundles of object storage are downloaded to.
        starting: Called with the models of the app and its shards when it starts, and before it accepts a request: it
            adds sets and switches to one, and may keep the models to do so later.

    Raises:
        FullrankError: A setting asks for what a router does not do.
    """
    if settings.explore:
        raise FullrankError("FULLRANK_EXPLORE: a fleet does not explore; leave it at 0")

    def make_backend(settings: Settings, metrics: Metrics) -> Backend:
        shards = make_shards(metrics)
        deadline_s = _SHARE_OF_DEADLINE * settings.deadline_ms / 1000
        patience = Patience(deadline_s, settings.min_seq_wait_ms / 1000)
        documents = SetDocuments(shards, patience, _live(settings, metrics))
        models = SetModels(
            cache,
            metrics,
            documents,
            lambda models: starting(models, shards),
            _LOADED,
        )
        return Backend(models, documents, SetEngine(shards, patience, settings.rank_threads))

    return create_app(settings, make_backend)


def _live(settings: Settings, metrics: Metrics) -> LiveDocuments | None:
    """Return what writes and follows the log; None without one."""
    log = LogSource.of(settings)
    if log is None:
        return None
    return LiveDocuments(
        log.place(),
        Caps(settings.max_live_documents, settings.max_live_mb << 20),
        metrics,
        poll_s=log.poll_s,
        wait_s=settings.min_seq_wait_ms / 1000,
        view_of=HeadView.of,
    )
