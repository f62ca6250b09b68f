"""``fullrank bundles compact``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.output import BundlePath, Json, absolute, needs, print_json, resolve


def compact(
    bundle: BundlePath,
    documents: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The log of live documents; else FULLRANK_DOCUMENTS, else documents.sqlite among the bundles.",
        ),
    ] = None,
    activate: Annotated[
        bool, typer.Option(help="Let it serve, where its parent does; workers take part.")
    ] = True,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Longest wait for the workers.", min=0.1)
    ] = 120,
    json: Json = False,
) -> None:
    """Write a bundle's live documents into a new version of it, and let that serve.

    With a name, the version that serves is taken, else its newest. What every version on disk holds is removed from the
    log.
    """
    with needs("service"):
        from service.documents.compact import compact as write
        from service.documents.compact import trim
        from service.documents.log import FILE
        from service.models.swap import Swap, serving_version
        from service.settings import Settings
        from trainer.progress import Reporter

    path = resolve(bundle)
    root, name = path.parent.parent, path.parent.name
    serving = serving_version(root)
    if absolute(bundle) != path and serving is not None and (root / name / serving).is_dir():
        path = root / name / serving
    log = documents or Settings().documents or root / FILE
    with Reporter() as report, report.parts() as progress:
        made = write(path, log, progress)
    swapped = None
    # What others chose meanwhile, or for another name, is left as it is; who starts later finds the newest.
    serving = serving_version(root)
    if activate and serving is not None:
        swap = Swap(root, timeout_s=timeout)
        swapped = (swap.activate if serving == made.parent else swap.load)(made.path.name)
    removed = trim(root, name, log)
    if json:
        generation = None if swapped is None else swapped.generation
        print_json({**made.as_dict(), "generation": generation, "removed": removed})
        return
    typer.echo(f"{made.path}: {made.documents} documents, {made.before} before")
    if swapped is not None:
        typer.echo(f"generation {swapped.generation} serves {swapped.version}")
