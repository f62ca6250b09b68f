"""``fullrank serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.commands import needs


def serve(
    bundles: Annotated[
        Path | None,
        typer.Option(
            "--bundles", metavar="BUNDLES", help="Folder of bundles; else FULLRANK_BUNDLES."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address; else FULLRANK_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; else FULLRANK_PORT.", min=0, max=65535)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; else FULLRANK_WORKERS.", min=1)
    ] = None,
) -> None:
    """Serve bundles over HTTP, with a search page at /."""
    with needs("service"):
        from service.process.run import serve as run_service

    run_service(bundles, host, port, workers)
