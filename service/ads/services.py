"""What a worker has for ads, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fullrank.ads import Ad, Taxonomy
from fullrank.events.places import places
from service.ads.counts import FILE as COUNTS
from service.ads.events import AdEvents
from service.ads.pages import FILE as PAGES
from service.ads.pages import Pages
from service.documents.live import LiveDocuments
from service.settings import Settings
from service.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class AdServices:
    """The operator's taxonomy, texts of pages, and events of ads, which are None if events are off."""

    taxonomy: Taxonomy | None
    pages: Pages
    events: AdEvents | None

    @classmethod
    def from_settings(
        cls, settings: Settings, documents: Path, metrics: Metrics, live: LiveDocuments
    ) -> AdServices:
        """Open what the settings describe; documents: the file of live documents. Raises AdError."""
        taxonomy = None
        if settings.ad_taxonomy is not None:
            taxonomy = Taxonomy.read(settings.ad_taxonomy, settings.ad_taxonomy_number)
        pages = Pages(documents.with_name(PAGES), settings.pages_mb << 20)
        if not settings.events:
            return cls(taxonomy, pages, None)
        _, key = places(
            settings.bundles, settings.documents, settings.events_folder, settings.events_key
        )

        def find(collection: str, id: str) -> Ad | None:
            for followed in live.views(collection):
                try:
                    part, row = followed.view.find(id)
                except KeyError:
                    continue
                return None if part.ads is None else part.ads.ad(row)
            return None

        events = AdEvents(documents.with_name(COUNTS), key, metrics, find)
        return cls(taxonomy, pages, events)

    async def close(self) -> None:
        """Write what waits."""
        await self.pages.close()
        if self.events is not None:
            await self.events.close()
