"""``fullrank bundles activate`` and ``rollback``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import Json, resolve
from fullrank.cli.commands import FLEET, load, needs
from fullrank.cli.output import print_json
from fullrank.errors import BundleNotFound
from fullrank_service.commands.sharded import check_not_sharded

Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", help="Longest wait until every worker is prepared.", min=0.1
    ),
]

RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Serve a sharded bundle from the fleet of this Ray cluster: auto, or HOST:PORT.",
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
    ray: RayOption = None,
    json: Json = False,
) -> None:
    """Serve a bundle in every running worker and in those that start later.

    If no worker runs, the bundle is verified and recorded as the active one.
    """
    if ray is not None:
        _from_fleet("bundles.activate", bundle, ray, json)
        return
    check_not_sharded(bundle)
    path = resolve(Path(bundle))
    _activate(path.parent.parent, path.name, timeout, json)


def rollback(
    bundles: Annotated[
        str, typer.Argument(metavar="BUNDLES", help="Folder of bundles that is served.")
    ],
    timeout: Timeout = 120,
    ray: RayOption = None,
    json: Json = False,
) -> None:
    """Serve the previous version again."""
    if ray is not None:
        _from_fleet("bundles.rollback", bundles, ray, json)
        return
    with needs("service"):
        from fullrank_service.models.state import read_state

    root = Path(bundles)
    state = read_state(root)
    if state is None or state.previous is None:
        raise BundleNotFound(f"{bundles}: no previous version was served before this one")
    for path in root.glob(f"*/{state.previous}"):
        check_not_sharded(str(path))
    _activate(root, state.previous, timeout, json)


def _from_fleet(command: str, address: str, ray: str, json: bool) -> None:
    """Run a command on the fleet of a cluster, and print what it serves then."""
    found = load(command, FLEET)(address, address=ray)
    facts = {"generation": found.generation, "version": found.version}
    if json:
        print_json(facts)
    else:
        typer.echo(f"generation {found.generation} serves {found.version} from the fleet")


def _activate(bundles: Path, version: str, timeout: float, json: bool) -> None:
    with needs("service"):
        from fullrank_service.models.swap import Swap

    swapped = Swap(bundles, timeout_s=timeout).activate(version)
    if json:
        print_json(asdict(swapped))
        return
    workers = f"{swapped.workers} worker{'s' * (swapped.workers != 1)}"
    typer.echo(f"generation {swapped.generation} serves {swapped.version} in {workers}")
    if not swapped.converged:
        typer.echo("not every worker has confirmed the switch yet", err=True)
