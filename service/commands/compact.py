"""``fullrank bundles compact``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlePath, Json, absolute, resolve
from fullrank.cli.commands import needs
from fullrank.cli.output import print_json
from fullrank.progress import Reporter


def compact(
    bundle: BundlePath,
    documents: Annotated[
        Path | None,
        typer.Option(
            "--documents",
            metavar="FILE",
            help="Log of live documents; default: FULLRANK_DOCUMENTS_URL, FULLRANK_DOCUMENTS, else documents.sqlite "
            "in BUNDLES.",
        ),
    ] = None,
    activate: Annotated[
        bool, typer.Option(help="Serve the new version if its parent is served.")
    ] = True,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="Longest wait for the workers.", min=0.1),
    ] = 120,
    json: Json = False,
) -> None:
    """Write a bundle's live documents into a new version of it, and serve that version.

    A name means the version that is served, else the newest. Operations that every version on disk contains are removed
    from the log.
    """
    with needs("service"):
        from service.documents.compact import compact as write
        from service.documents.compact import trim
        from service.documents.logplace import LogPlace, place_of
        from service.models.swap import Swap, serving_version
        from service.settings import Settings

    path = resolve(bundle)
    root, name = path.parent.parent, path.parent.name
    serving = serving_version(root)
    if absolute(bundle) != path and serving is not None and (root / name / serving).is_dir():
        path = root / name / serving
    log = LogPlace.of_file(documents) if documents else place_of(Settings(), root)
    with Reporter() as report, report.callback() as progress:
        made = write(path, log, progress)
    swapped = None
    # Another version that was activated meanwhile stays active; workers that start later load the newest.
    serving = serving_version(root)
    if activate and serving is not None:
        swap = Swap(root, timeout_s=timeout)
        swapped = (swap.activate if serving == made.parent else swap.load)(made.path.name)
    removed = trim(root, name, log)
    if json:
        generation = None if swapped is None else swapped.generation
        print_json({**made.as_dict(), "generation": generation, "removed": removed})
        return
    typer.echo(f"{made.path}: {made.documents} documents (was {made.before})")
    if swapped is not None:
        typer.echo(f"generation {swapped.generation} serves {swapped.version}")
