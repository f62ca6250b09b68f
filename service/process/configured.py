"""How uvicorn serves an app, alone or in each of several workers."""

from __future__ import annotations

import uvicorn

from service.settings import Settings
from service.telemetry import logs

# A worker that was told to stop has so long for the answers under way.
FINISH_S = 10


def configured(factory: str, settings: Settings) -> uvicorn.Config:
    """For the app that ``factory``, "module:function", makes. Logging is set up on the way."""
    return uvicorn.Config(
        factory,
        factory=True,
        host=settings.host,
        port=settings.port,
        log_config=logs.configuration(settings.log_level, settings.log_format),
        access_log=False,
        server_header=False,
        http="service.edge.protocol:Protocol",
        ws="none",
        timeout_graceful_shutdown=FINISH_S,
    )
