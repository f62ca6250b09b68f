"""``fullrank bundles compact``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import Json, absolute, resolve
from fullrank.cli.commands import FLEET, load, needs
from fullrank.cli.output import print_json
from fullrank.errors import FullrankError
from fullrank.progress import Reporter
from fullrank_service.commands.documents import DocumentsOption
from fullrank_service.commands.prune import KeepOption, prune_after
from fullrank_service.commands.sharded import is_sharded


def compact(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE",
            help="A version's folder, or BUNDLES/NAME; of a sharded bundle also an address, such as s3://bundles/NAME.",
        ),
    ],
    documents: DocumentsOption = None,
    activate: Annotated[
        bool, typer.Option(help="Serve the new version if its parent is served.")
    ] = True,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="Longest wait for the workers.", min=0.1),
    ] = 120,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Compact a sharded bundle on this Ray cluster, and serve it from its fleet: auto, HOST:PORT or local. "
            "Without it this process compacts, and serves nothing.",
        ),
    ] = None,
    keep: KeepOption = None,
    json: Json = False,
) -> None:
    """Write a bundle's live documents into a new version of it, and serve that version.

    A name means the version that is served, else the newest. Operations that every version on disk contains are removed
    from the log.
    """
    if ray is not None or is_sharded(bundle):
        if documents is not None:
            raise FullrankError(
                "--documents: the live documents of a sharded bundle are in the log of FULLRANK_DOCUMENTS_URL"
            )
        if keep is not None:
            raise FullrankError("--keep: versions of sharded bundles are not removed")
        _compact_set(bundle, ray, activate, json)
        return
    with needs("service"):
        from fullrank_service.documents.compact import compact as write
        from fullrank_service.documents.compact import trim
        from fullrank_service.documents.logplace import LogPlace, place_of
        from fullrank_service.models.swap import Swap, serving_version
        from fullrank_service.settings import Settings

    path = resolve(Path(bundle))
    root, name = path.parent.parent, path.parent.name
    serving = serving_version(root)
    if absolute(Path(bundle)) != path and serving is not None and (root / name / serving).is_dir():
        path = root / name / serving
    log = LogPlace.of_file(documents) if documents else place_of(Settings(), root)
    with Reporter(as_json=json) as report, report.callback() as progress:
        made = write(path, log, progress)
    swapped = None
    # Another version that was activated meanwhile stays active; workers that start later load the newest.
    serving = serving_version(root)
    if activate and serving is not None:
        swap = Swap(root, timeout_s=timeout)
        swapped = (swap.activate if serving == made.parent else swap.load)(made.path.name)
    prune_after(root, name, keep)
    removed = trim(root, name, log)
    if json:
        generation = None if swapped is None else swapped.generation
        print_json({**made.as_dict(), "generation": generation, "removed": removed})
        return
    typer.echo(f"{made.path}: {made.documents} documents (was {made.before})")
    if swapped is not None:
        typer.echo(f"generation {swapped.generation} serves {swapped.version}")


def _compact_set(bundle: str, ray: str | None, activate: bool, json: bool) -> None:
    made = load("bundles.compact", FLEET)(bundle, address=ray, activate=activate)
    if json:
        print_json(made)
        return
    typer.echo(f"{made['path']}: {made['documents']} documents (was {made['before']})")
    if made["generation"] is not None:
        typer.echo(f"generation {made['generation']} serves {made['version']} from the fleet")
    else:
        typer.echo("no fleet serves it yet: fullrank bundles activate --ray", err=True)
