"""What an app answers from: models, documents, and an engine that ranks. Bundles of this machine are one kind of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fullrank.events.log import places
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.documents.live import Documents, LiveDocuments
from fullrank_service.documents.log import Caps
from fullrank_service.documents.sqlitelog import place_of
from fullrank_service.models.registry import Models, Registry
from fullrank_service.search.clicks import REFRESH_S, ClickCounter
from fullrank_service.search.ranking import Engine, LocalEngine, SearchModePolicy
from fullrank_service.search.restricting import Bitmaps


@dataclass(frozen=True, slots=True)
class Backend:
    """What an app answers from."""

    models: Models
    documents: Documents
    engine: Engine


MakeBackend = Callable[[Settings, Metrics], Backend]


def local_backend(settings: Settings, metrics: Metrics) -> Backend:
    """Return the bundles of a folder of this machine, with the documents that were written since."""
    live = LiveDocuments(
        place_of(settings, settings.bundles),
        Caps(settings.max_live_documents, settings.max_live_mb << 20),
        metrics,
        poll_s=settings.documents_poll_ms / 1000,
        wait_s=settings.min_seq_wait_ms / 1000,
    )
    registry = Registry(
        settings.bundles,
        metrics,
        default_model=settings.default_model,
        preload=settings.preload,
        max_loaded=settings.max_loaded,
        poll_s=settings.poll_ms / 1000,
        timeout_s=settings.swap_timeout_s,
        prepare=live.prepare,
        release=live.release,
    )
    engine = LocalEngine(
        Bitmaps(settings.filter_cache_mb << 20),
        SearchModePolicy(settings.exact_budget_ms / 1000, settings.inline_ms / 1000),
        settings.rank_threads,
        click_counter(settings, live, metrics),
    )
    return Backend(registry, live, engine)


def click_counter(
    settings: Settings, documents: Documents, metrics: Metrics
) -> ClickCounter | None:
    """Return what counts new clicks for the loaded models, started; None if the settings turn it off."""
    if not (settings.events and settings.live_clicks):
        return None
    folder, _ = places(settings.bundles, settings.documents, settings.events_folder)
    counter = ClickCounter(
        lambda: [followed.view for followed in documents.views()],
        folder,
        metrics,
        min(REFRESH_S, settings.usage_refresh_s),
    )
    counter.start()
    return counter
