"""What a route needs arrives as one of these."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from service.errors import Forbidden, Unauthorized
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


async def _services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]


async def _serving(services: ServicesDep) -> Serving:
    return services.registry.serving


# Taken once for a request: everything in its answer comes from this one generation.
ServingDep = Annotated[Serving, Depends(_serving)]

_bearer = HTTPBearer(auto_error=False, description="the key in FULLRANK_ADMIN_KEY")


async def _admin(
    services: ServicesDep,
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> None:
    key = services.settings.admin_key
    if key is None:
        raise Forbidden
    token = given.credentials if given is not None else ""
    if not hmac.compare_digest(
        token.encode("utf-8", "surrogatepass"), key.get_secret_value().encode()
    ):
        raise Unauthorized


AdminDep = Depends(_admin)
