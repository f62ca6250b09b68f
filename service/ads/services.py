"""What a worker has for ads, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fullrank.ads import Taxonomy
from fullrank.events.places import places
from service.ads.counts import FILE as COUNTS
from service.ads.events import AdEvents
from service.ads.pages import FILE as PAGES
from service.ads.pages import Pages
from service.settings import Settings
from service.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class AdServices:
    """The operator's taxonomy, texts of pages, and events of ads, which are None if events are off."""

    taxonomy: Taxonomy | None
    pages: Pages
    events: AdEvents | None

    @classmethod
    def from_settings(cls, settings: Settings, documents: Path, metrics: Metrics) -> AdServices:
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
        return cls(taxonomy, pages, AdEvents(documents.with_name(COUNTS), key, metrics))

    async def close(self) -> None:
        """Write what waits."""
        await self.pages.close()
        if self.events is not None:
            await self.events.close()
