"""``fullrank bundles activate`` and ``rollback``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlesFolder, Json, resolve
from fullrank.cli.commands import FLEET, load, needs
from fullrank.cli.output import print_json
from fullrank.errors import BundleNotFound

Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", help="Longest wait until every worker is prepared.", min=0.1
    ),
]


def activate(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="A version's folder, or BUNDLES/NAME for its newest version."
        ),
    ],
    timeout: Timeout = 120,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Serve a sharded bundle from the fleet of this Ray cluster: auto, or HOST:PORT.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Serve a bundle in every running worker and in those that start later.

    If no worker runs, the bundle is verified and recorded as the active one.
    """
    if ray is not None:
        on_ray = load("bundles.activate", FLEET)
        found = on_ray(bundle, address=ray)
        facts = {"generation": found.generation, "version": found.version}
        if json:
            print_json(facts)
        else:
            typer.echo(f"generation {found.generation} serves {found.version} from the fleet")
        return
    path = resolve(Path(bundle))
    _activate(path.parent.parent, path.name, timeout, json)


def rollback(
    bundles: BundlesFolder,
    timeout: Timeout = 120,
    json: Json = False,
) -> None:
    """Serve the previous version again."""
    with needs("service"):
        from service.models.state import read_state

    state = read_state(bundles)
    if state is None or state.previous is None:
        raise BundleNotFound(f"{bundles}: no previous version was served before this one")
    _activate(bundles, state.previous, timeout, json)


def _activate(bundles: Path, version: str, timeout: float, json: bool) -> None:
    with needs("service"):
        from service.models.swap import Swap

    swapped = Swap(bundles, timeout_s=timeout).activate(version)
    if json:
        print_json(asdict(swapped))
        return
    workers = f"{swapped.workers} worker{'s' * (swapped.workers != 1)}"
    typer.echo(f"generation {swapped.generation} serves {swapped.version} in {workers}")
    if not swapped.converged:
        typer.echo("not every worker has confirmed the switch yet", err=True)
