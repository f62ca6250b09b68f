"""``fullrank experiment``: start, show or stop the comparison of a candidate with the active version."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlePath, BundlesFolder, EventsOption, Json, event_log, resolve
from fullrank.cli.commands import needs
from fullrank.cli.output import print_json
from fullrank.experiment.evidence import LEVEL, MAX_DAYS, SHARE

Share = Annotated[float, typer.Option(help="Share of the searches.", min=0.001, max=1)]
MaxDays = Annotated[
    float, typer.Option(help="Days after which the active version stays.", min=0.01, max=365)
]

_SHOWN = 10
"""Decisions in the text form."""

app = typer.Typer(
    help="Let people decide between a candidate and the active version.", no_args_is_help=True
)


@app.command()
def start(
    candidate: BundlePath, share: Share = SHARE, max_days: MaxDays = MAX_DAYS, json: Json = False
) -> None:
    """Interleave a bundle with the active version in every running worker."""
    with needs("service"):
        from service.models.swap import Swap

    path = resolve(candidate)
    started = Swap(path.parent.parent).start_experiment(path.name, share, max_days)
    if json:
        print_json(
            {"active": started.version, "candidate": path.name, "generation": started.generation}
        )
        return
    typer.echo(f"generation {started.generation}: {path.name} against {started.version}")


@app.command()
def status(bundles: BundlesFolder, events: EventsOption = None, json: Json = False) -> None:
    """Count the votes of the experiment, and say what they decide and what `fullrank loop` decided before."""
    with needs("service"):
        from service.experiments.loop import read_decisions
        from service.experiments.status import read_status

    found = read_status(bundles, event_log(bundles, events))
    decisions = read_decisions(bundles)
    if json:
        print_json(({} if found is None else found.as_dict()) | {"decisions": decisions})
        return
    for made in decisions[-_SHOWN:]:
        votes = f", {made['wins']} votes to {made['losses']}" if "wins" in made else ""
        typer.echo(f"{_moment(made['at'])}  {made['name']}: {made['did']}{votes}")
    if found is None:
        typer.echo("no experiment is running")
        return
    typer.echo(f"{found.candidate} against {found.active}, since {_moment(found.started)}")
    typer.echo(
        f"{found.wins} votes for the candidate, {found.losses} against; e-value {found.e_value:.3g} of {LEVEL:g}: "
        f"{found.verdict}{' (expired)' if found.over else ''}"
    )


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


@app.command()
def stop(bundles: BundlesFolder, json: Json = False) -> None:
    """End the experiment; the active version stays."""
    with needs("service"):
        from service.models.swap import Swap

    stopped = Swap(bundles).stop_experiment()
    if json:
        print_json({"active": stopped.version, "generation": stopped.generation})
        return
    typer.echo(f"generation {stopped.generation}: {stopped.version} serves alone")
