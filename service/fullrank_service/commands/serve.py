"""``fullrank serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.commands import FLEET, load
from fullrank.errors import FullrankError, needs


def serve(
    bundles: Annotated[
        str | None,
        typer.Option(
            "--bundles", metavar="BUNDLES", help="Folder of bundles; default: FULLRANK_BUNDLES."
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default: FULLRANK_HOST.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; default: FULLRANK_PORT.", min=0, max=65535)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; default: FULLRANK_WORKERS.", min=1)
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Serve sharded bundles from this Ray cluster: auto, or HOST:PORT. BUNDLES may then be an address "
            "such as s3://….",
        ),
    ] = None,
    replicas: Annotated[
        int, typer.Option(help="With --ray: processes that hold each shard.", min=1, max=16)
    ] = 2,
    state: Annotated[
        Path,
        typer.Option(
            help="With --ray: folder for events and pages on this machine, and for rules without a PostgreSQL log.",
            metavar="FOLDER",
        ),
    ] = Path("fleet-state"),
    cache: Annotated[
        Path | None,
        typer.Option(help="With --ray: folder of downloaded bundles.", metavar="FOLDER"),
    ] = None,
) -> None:
    """Serve bundles over HTTP, with a search page at / and a console at /console."""
    with needs("service"):
        from fullrank_service.process.run import serve as run_service

    if ray is None:
        run_service(None if bundles is None else Path(bundles), host, port, workers)
        return
    if bundles is None:
        raise FullrankError("--ray needs --bundles, the address of a folder of sharded bundles")
    on_ray = load("serve", FLEET)
    on_ray(bundles, state, host, port, workers, address=ray, replicas=replicas, cache=cache)
