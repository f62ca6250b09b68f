"""What a route needs arrives as one of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from service.access import Access
from service.metrics import Metrics
from service.ranking import Ranker
from service.registry import Registry, Serving
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one app, built by create_app."""

    settings: Settings
    metrics: Metrics
    registry: Registry
    ranker: Ranker
    access: Access


async def _services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]


async def _serving(services: ServicesDep) -> Serving:
    return services.registry.serving


# Taken once for a request: everything in its answer comes from this one generation.
ServingDep = Annotated[Serving, Depends(_serving)]
