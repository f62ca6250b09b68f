"""Build the app of a router: the HTTP service of ``fullrank_service.app``, which answers from the shards of a set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fullrank_fleet.remote import BundleCache
from fullrank_fleet.serving.asking import Patience
from fullrank_fleet.serving.coordinator import Coordinator
from fullrank_fleet.serving.documents import LogSource, SetDocuments
from fullrank_fleet.serving.engine import SetEngine
from fullrank_fleet.serving.fanout import ReplicatedShards
from fullrank_fleet.serving.following import Following
from fullrank_fleet.serving.head import HeadView
from fullrank_service.app import App, create_app
from fullrank_service.backend import Backend, click_counter
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.documents.live import LiveDocuments
from fullrank_service.documents.log import Caps

# Of the deadline of a request: shards that have not answered by then are missing, and an answer without them is in
# time.
_SHARE_OF_DEADLINE = 0.8


def create_router(
    settings: Settings,
    cache: BundleCache,
    coordinator: Coordinator,
    *,
    make_shards: Callable[[Metrics], ReplicatedShards] = ReplicatedShards,
    rejoining: Callable[[ReplicatedShards], Callable[[], Awaitable[None]]] | None = None,
) -> App:
    """Create the app of a router.

    Args:
        settings: Its folder of bundles holds what this router writes: pages and events; rules too where
            there is no PostgreSQL log.
        coordinator: Or what has its methods and reaches it in another process.
        rejoining: Returns ``rejoin`` of ``Following``.
    """

    def make_backend(settings: Settings, metrics: Metrics) -> Backend:
        shards, log = make_shards(metrics), LogSource.of(settings)
        visible_s = settings.min_seq_wait_ms / 1000
        patience = Patience(_SHARE_OF_DEADLINE * settings.deadline_ms / 1000, visible_s)
        live = None
        if log is not None:
            caps = Caps(settings.max_live_documents, settings.max_live_mb << 20)
            live = LiveDocuments(
                log.place(), caps, metrics,
                poll_s=log.poll_s, wait_s=visible_s, view_of=HeadView.of,
            )  # fmt: skip
        documents = SetDocuments(shards, patience, live)
        rejoin = None if rejoining is None else rejoining(shards)
        models = Following(coordinator, shards, documents, cache, metrics, log, rejoin)
        clicks = click_counter(settings, documents, metrics)
        engine = SetEngine(shards, patience, settings.rank_threads, clicks)
        return Backend(models, documents, engine)

    return create_app(settings, make_backend)
