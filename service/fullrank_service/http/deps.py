"""The parts of the app that routes use, and FastAPI dependencies that provide them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Request
from starlette.types import Scope

from fullrank_service.ads.matching import AdServices
from fullrank_service.base.errors import Invalid
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.completion.usage import Usage
from fullrank_service.documents.live import Documents
from fullrank_service.documents.reading import ID
from fullrank_service.events.recorder import Recorder
from fullrank_service.experiments.status import Reports
from fullrank_service.http.access import Access
from fullrank_service.http.admission import Admission, RateLimiter
from fullrank_service.http.drain import Drain
from fullrank_service.http.schemas import DocumentId
from fullrank_service.models.registry import Models
from fullrank_service.models.serving import REQUEST_MODEL, RequestModel
from fullrank_service.rules.rules import Rules
from fullrank_service.search.paging import Cursors
from fullrank_service.search.ranker import Ranker
from fullrank_service.search.trying import Trying

SLOT = "fullrank.slot"
"""Key of the admission slot in the ASGI scope of a ranking request."""


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one app, built by create_app; `events` and `reports` are None if events are off."""

    settings: Settings
    metrics: Metrics
    registry: Models
    ranker: Ranker
    access: Access
    admission: Admission
    rates: RateLimiter
    live: Documents
    drain: Drain
    events: Recorder | None
    trying: Trying
    cursors: Cursors
    reports: Reports | None
    rules: Rules
    usage: Usage
    ads: AdServices

    @property
    def draining(self) -> bool:
        """Whether the worker is stopping: it finishes open requests and sends clients elsewhere."""
        return self.drain.started


async def _services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]


def serving_of(scope: Scope, services: Services) -> RequestModel:
    """Fix the model generation that answers a request, and note it for the response headers."""
    serving = scope[REQUEST_MODEL] = RequestModel(
        services.registry.serving, scope.get(SLOT), scope["headers"]
    )
    return serving


async def _serving(request: Request) -> RequestModel:
    return serving_of(request.scope, request.app.state.services)


ServingDep = Annotated[RequestModel, Depends(_serving)]


async def _path_id(id: DocumentId, request: Request) -> str:
    check_path(request.scope)
    return id


def check_path(scope: Scope) -> None:
    """Check the document id in a path. Decoding turns bytes that are not UTF-8 into U+FFFD: many paths, one id."""
    try:
        unquote_to_bytes(scope.get("raw_path", b"")).decode()
    except UnicodeDecodeError:
        raise Invalid(errors=[{"field": ID, "reason": "is not UTF-8"}]) from None


PathId = Annotated[str, Depends(_path_id)]
