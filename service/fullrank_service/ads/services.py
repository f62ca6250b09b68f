"""What a worker has for ads, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fullrank.ads import Ad, Taxonomy
from fullrank.ads.ad import ad_of
from fullrank.errors import AdError
from fullrank.events.places import places
from fullrank_service.ads.counts import FILE as COUNTS
from fullrank_service.ads.events import AdEvents
from fullrank_service.ads.leases import Leases
from fullrank_service.ads.masks import RuleMasks
from fullrank_service.ads.pages import FILE as PAGES
from fullrank_service.ads.pages import Pages
from fullrank_service.ads.shared_caps import SharedCaps
from fullrank_service.documents.documents import Documents
from fullrank_service.settings import Settings
from fullrank_service.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class AdServices:
    """The operator's taxonomy, texts of pages, events of ads (None if events are off), and what rules forbid."""

    taxonomy: Taxonomy | None
    pages: Pages
    events: AdEvents | None
    masks: RuleMasks = field(default_factory=RuleMasks)

    @classmethod
    def from_settings(
        cls, settings: Settings, documents: Path, metrics: Metrics, live: Documents
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

        async def find(collection: str, id: str) -> Ad | None:
            for followed in live.views(collection):
                fields = (await live.stored(followed.view, id)).fields
                if fields is not None:
                    return ad_of(fields)
            return None

        leases = caps = None
        if settings.ad_shared_budgets:
            if settings.redis_url is None:
                raise AdError("FULLRANK_AD_SHARED_BUDGETS", "needs FULLRANK_REDIS_URL")
            url = settings.redis_url.get_secret_value()
            timeout_s = settings.redis_timeout_ms / 1000
            leases, caps = Leases(url, timeout_s), SharedCaps(url, timeout_s)
        path, days = documents.with_name(COUNTS), settings.events_days
        events = AdEvents(path, key, metrics, find, leases, caps, days)
        return cls(taxonomy, pages, events)

    def start(self) -> None:
        """Start what needs the event loop."""
        if self.events is not None:
            self.events.start()

    async def close(self) -> None:
        """Write what waits."""
        await self.pages.close()
        if self.events is not None:
            await self.events.close()
