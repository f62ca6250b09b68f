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
    """Count the votes of the experiment, and say what they decide."""
    with needs("service"):
        from service.experiments.status import read_status

    found = read_status(bundles, event_log(bundles, events))
    if json:
        print_json(None if found is None else found.as_dict())
        return
    if found is None:
        typer.echo("no experiment is running")
        return
    began = datetime.fromtimestamp(found.started, UTC).isoformat(sep=" ", timespec="minutes")
    typer.echo(f"{found.candidate} against {found.active}, since {began} UTC")
    typer.echo(
        f"{found.wins} votes for the candidate, {found.losses} against; e-value {found.e_value:.3g} of {LEVEL:g}: "
        f"{found.verdict}{' (expired)' if found.over else ''}"
    )


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
