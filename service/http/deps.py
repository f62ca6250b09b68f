"""What a route needs arrives as one of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Request
from starlette.types import Scope

from service.documents.live import LiveDocuments
from service.documents.reading import ID
from service.edge.access import Access
from service.edge.admission import SLOT, Admission, Rates
from service.errors import Invalid
from service.http.schemas import DocumentId
from service.models.registry import Registry
from service.models.serving import TAKEN, Taken
from service.search.ranker import Ranker
from service.settings import Settings
from service.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one app, built by create_app."""

    settings: Settings
    metrics: Metrics
    registry: Registry
    ranker: Ranker
    access: Access
    admission: Admission
    rates: Rates
    live: LiveDocuments


async def _services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]


def take(scope: Scope, services: Services) -> Taken:
    """What serves now, taken once for a request: everything in its answer comes from this one generation.

    It is left in the scope for the headers of whatever the answer will be.
    """
    taken = scope[TAKEN] = Taken(services.registry.serving, scope.get(SLOT))
    return taken


async def _serving(request: Request, services: ServicesDep) -> Taken:
    return take(request.scope, services)


ServingDep = Annotated[Taken, Depends(_serving)]


async def _path_id(id: DocumentId, request: Request) -> str:
    """The id in the path. What is no UTF-8 has come out of it as U+FFFD: many such paths would be one document."""
    try:
        unquote_to_bytes(request.scope.get("raw_path", b"")).decode()
    except UnicodeDecodeError:
        raise Invalid(errors=[{"field": ID, "reason": "is not UTF-8"}]) from None
    return id


PathId = Annotated[str, Depends(_path_id)]
