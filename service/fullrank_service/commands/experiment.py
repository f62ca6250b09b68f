"""``fullrank experiment``: start, show or stop the comparison of a candidate with the active version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlesFolder, EventsOption, Json, event_log, resolve
from fullrank.cli.commands import FLEET, load, needs
from fullrank.cli.output import print_json
from fullrank.experiment.decisions import LEVEL, MAX_DAYS, SHARE, moment, one_line, read_decisions

Share = Annotated[float, typer.Option(help="Share of the searches.", min=0.001, max=1)]
MaxDays = Annotated[
    float, typer.Option(help="Days after which it ends undecided.", min=0.01, max=365)
]

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Of sharded bundles: the Ray cluster of the fleet that serves them: auto, or HOST:PORT.",
    ),
]

_SHOWN = 10
"""Decisions in the text form."""

app = typer.Typer(
    help="Let people decide between a candidate and the active version.", no_args_is_help=True
)


@app.command()
def start(
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="A version's folder, or BUNDLES/NAME for its newest version."
        ),
    ],
    share: Share = SHARE,
    max_days: MaxDays = MAX_DAYS,
    ray: Ray = None,
    json: Json = False,
) -> None:
    """Interleave a bundle with the active version in every running worker, or in the routers of a fleet."""
    if ray is not None:
        on_ray = load("experiment.start", FLEET)
        found = on_ray(candidate, share, max_days, address=ray)
        active, name, generation = found.version, found.experiment.candidate, found.generation
    else:
        with needs("service"):
            from fullrank_service.models.swap import Swap

        path = resolve(Path(candidate))
        started = Swap(path.parent.parent).start_experiment(path.name, share, max_days)
        active, name, generation = started.version, path.name, started.generation
    if json:
        print_json({"active": active, "candidate": name, "generation": generation})
        return
    typer.echo(f"generation {generation}: {name} against {active}")


@app.command()
def status(bundles: BundlesFolder, events: EventsOption = None, json: Json = False) -> None:
    """Count the votes of the experiment, and say what they decide and what `fullrank loop` decided before."""
    with needs("service"):
        from fullrank_service.experiments.status import read_status

    found = read_status(bundles, event_log(bundles, events))
    decisions = read_decisions(bundles)
    if json:
        print_json(({} if found is None else found.as_dict()) | {"decisions": decisions})
        return
    for made in decisions[-_SHOWN:]:
        typer.echo(f"{moment(made['at'])}  {made['name']}: {one_line(made)}")
    if found is None:
        typer.echo("no experiment is running")
        return
    typer.echo(f"{found.candidate} against {found.active}, since {moment(found.started)}")
    typer.echo(
        f"{found.wins} votes for the candidate, {found.losses} against; e-value {found.e_value:.3g} of {LEVEL:g}: "
        f"{found.verdict}{' (expired)' if found.expired else ''}"
    )


@app.command()
def stop(
    bundles: Annotated[str, typer.Argument(metavar="BUNDLES", help="Folder of bundles.")],
    ray: Ray = None,
    json: Json = False,
) -> None:
    """End the experiment; the active version stays."""
    if ray is not None:
        stopped = load("experiment.stop", FLEET)(bundles, address=ray)
    else:
        with needs("service"):
            from fullrank_service.models.swap import Swap

        stopped = Swap(Path(bundles)).stop_experiment()
    if json:
        print_json({"active": stopped.version, "generation": stopped.generation})
        return
    typer.echo(f"generation {stopped.generation}: {stopped.version} serves alone")
