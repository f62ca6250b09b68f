"""Build the app of a router: the HTTP service of ``fullrank_service.app``, which answers from the shards of a set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fullrank_fleet.remote import BundleCache
from fullrank_fleet.serving.asking import Patience, Shards
from fullrank_fleet.serving.coordinator import MAX_LOADED
from fullrank_fleet.serving.documents import LogSource, SetDocuments
from fullrank_fleet.serving.engine import SetEngine
from fullrank_fleet.serving.following import SetModels
from fullrank_fleet.serving.head import HeadView
from fullrank_service.app import App, create_app
from fullrank_service.backend import Backend, click_counter
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.documents.live import LiveDocuments
from fullrank_service.documents.log import Caps
from fullrank_service.models.registry import Models

# Of the deadline of a request: shards that have not answered by then are missing, and an answer without them is in
# time.
_SHARE_OF_DEADLINE = 0.8


Router = TypeVar("Router", bound=Shards)


def create_router(
    settings: Settings,
    make_shards: Callable[[Metrics], Router],
    cache: BundleCache,
    make_models: Callable[[SetModels, Router, Metrics], Models],
) -> App:
    """Create the app of a router.

    Args:
        settings: Its folder of bundles holds what this router writes: rules, pages, events.
        make_shards: Makes what reaches the shards of a set.
        make_models: Makes what adds sets and switches to one, when the app starts and later.
    """

    def make_backend(settings: Settings, metrics: Metrics) -> Backend:
        shards = make_shards(metrics)
        deadline_s = _SHARE_OF_DEADLINE * settings.deadline_ms / 1000
        patience = Patience(deadline_s, settings.min_seq_wait_ms / 1000)
        documents = SetDocuments(shards, patience, _live(settings, metrics))
        sets = SetModels(cache, metrics, documents, MAX_LOADED)
        models = make_models(sets, shards, metrics)
        clicks = click_counter(settings, documents, metrics)
        engine = SetEngine(shards, patience, settings.rank_threads, clicks)
        return Backend(models, documents, engine)

    return create_app(settings, make_backend)


def _live(settings: Settings, metrics: Metrics) -> LiveDocuments | None:
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
