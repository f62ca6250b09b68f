"""The command ``fullrank fleet``; Ray, which takes a second to import, is loaded when a subcommand runs."""

from __future__ import annotations

from typing import Annotated

import typer

from fullrank.cli.arguments import Json
from fullrank.cli.commands import FLEET, load
from fullrank.cli.output import print_json

Bundles = Annotated[
    str, typer.Argument(metavar="BUNDLES", help="Folder of sharded bundles that the fleet serves.")
]
Ray = Annotated[
    str, typer.Option("--ray", metavar="ADDRESS", help="Ray cluster: auto, or HOST:PORT.")
]

app = typer.Typer(help="Scale or stop the fleet of a Ray cluster.", no_args_is_help=True)


@app.command()
def scale(
    bundles: Bundles,
    replicas: Annotated[int, typer.Option("--replicas", help="Replicas of each shard.", min=1)],
    ray: Ray = "auto",
    json: Json = False,
) -> None:
    """Change the number of replicas of each shard while the fleet serves.

    Start routers with the same number from then on.
    """
    found = load("fleet.scale", FLEET)(bundles, replicas, address=ray)
    facts = {"replicas": found.per_shard, "running": sum(map(len, found.replicas))}
    if json:
        print_json(facts)
    else:
        typer.echo(f"{found.per_shard} replicas of each shard, {facts['running']} answer")


@app.command()
def stop(bundles: Bundles, ray: Ray = "auto") -> None:
    """Stop the coordinator and all replicas; stop the routers first, because they answer 503 without replicas."""
    load("fleet.stop", FLEET)(bundles, address=ray)
    typer.echo("the fleet has stopped")
