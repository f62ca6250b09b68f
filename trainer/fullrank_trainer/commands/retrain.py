"""``fullrank retrain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fullrank.cli.arguments import BundlesOption, EventsOption, Json, event_log
from fullrank.cli.output import print_json
from fullrank.errors import needs
from fullrank_trainer.threads import let_threads_sleep

if TYPE_CHECKING:
    from fullrank_trainer.promotion.retrain import Retrained

_BUSY = 75  # an exit code, EX_TEMPFAIL of sysexits.h: try again later


def retrain(
    name: Annotated[str, typer.Argument(help="Name of the model, or the version to improve.")],
    bundles: BundlesOption = Path("bundles"),
    events: EventsOption = None,
    judged: Annotated[
        Path | None,
        typer.Option(
            "--with",
            metavar="COLLECTION",
            help="Collection whose judgements or imported clicks are added to those of the log.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Name or TOML file of a recipe; default: that of the active version, or auto if it learned nothing."
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="TIME", help="Time limit of each of three trainings: 30s, 2m, 10m."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 1,
    json: Json = False,
) -> None:
    """Train from the log of events, and publish the new version if it is not worse.

    Two candidates are trained: one counts clicks, the other weighs them by how likely a document answers its query.
    The newest clicks of half of the people choose between them, and those of the other half compare the chosen one with
    the active version. If it is not worse, it is trained again with these clicks, and published. It does not serve yet:
    start an experiment, and people decide. The exit code is 1 if nothing was published, and 75 if another training of
    this model is running.
    """
    let_threads_sleep()
    with needs("trainer"):
        from fullrank_trainer.commands.train import seconds_of
        from fullrank_trainer.promotion.retrain import RetrainRuns
        from fullrank_trainer.promotion.retrain import retrain as run
        from fullrank_trainer.training.memory import map_large_blocks
    map_large_blocks()

    from fullrank.bundle.catalog import active_version, find_bundle

    path = find_bundle(bundles, name)
    serving = active_version(bundles)
    if serving is not None and path.name != name and (path.parent / serving).is_dir():
        path = path.parent / serving
    try:
        found = run(
            bundles,
            path,
            event_log(bundles, events),
            judged=judged,
            recipe=recipe,
            seconds=None if time is None else seconds_of(time),
            seed=seed,
        )
    except RetrainRuns as error:
        typer.echo(f"fullrank: {error}", err=True)
        raise typer.Exit(_BUSY) from None
    if json:
        print_json(found.as_dict())
    else:
        _show(found)
    raise typer.Exit(found.published is None)


def _show(found: Retrained) -> None:
    table = Table(title=f"candidate against {found.active}", title_style="")
    for heading in ("gate", "", "what was measured"):
        table.add_column(heading)
    for gate in found.gates:
        table.add_row(gate.name, "passed" if gate.passed else "FAILED", gate.reason)
    Console(highlight=False).print(table)
    if found.published is None:
        typer.echo("nothing was published")
    else:
        typer.echo(f"{found.published}: trained on {found.clicks} clicks, weights: {found.rule}")
        model = found.published.parent
        typer.echo(
            f"Nothing serves it yet: `fullrank experiment start {model}` lets people decide, "
            f"`fullrank bundles activate {model}` serves it"
        )
