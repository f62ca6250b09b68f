"""``fullrank experiment``: start, show or stop the comparison of a candidate with the active version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlesFolder, BundlesOption, EventsOption, Json, event_log
from fullrank.cli.commands import FLEET, load
from fullrank.cli.output import print_json
from fullrank.errors import needs
from fullrank.events.decisions import LEVEL, MAX_DAYS, SHARE, moment, one_line, read_decisions
from fullrank_service.commands.bundles import InCollection, KeepOption, OfCollection, prune_after

Share = Annotated[float, typer.Option(help="Share of the searches.", min=0.001, max=1)]
MaxDays = Annotated[
    float, typer.Option(help="Days after which it ends undecided.", min=0.01, max=365)
]

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="For sharded bundles: the Ray cluster of their fleet: auto, or HOST:PORT.",
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
    collection: InCollection = False,
    ray: Ray = None,
    json: Json = False,
) -> None:
    """Interleave a bundle with the active version in every running worker, or in the routers of a fleet."""
    if ray is not None:
        on_ray = load("experiment.start", FLEET)
        found = on_ray(candidate, share, max_days, collection, address=ray)
        active, name, generation = found.version, found.experiment.candidate, found.generation
    else:
        from fullrank.bundle.catalog import resolve

        with needs("service"):
            from fullrank_service.models.swap import Swap

        path = resolve(Path(candidate))
        own = path.parent.name if collection else None
        started = Swap(path.parent.parent).start_experiment(path.name, share, max_days, own)
        active, name, generation = started.version, path.name, started.generation
    if json:
        print_json({"active": active, "candidate": name, "generation": generation})
        return
    typer.echo(f"generation {generation}: {name} against {active}")


@app.command()
def status(
    bundles: BundlesFolder,
    events: EventsOption = None,
    collection: OfCollection = None,
    json: Json = False,
) -> None:
    """Count the votes of the experiment, and say what they decide and what `fullrank loop` decided before."""
    with needs("service"):
        from fullrank_service.experiments.status import read_status

    found = read_status(bundles, event_log(bundles, events), collection)
    decisions = [one for one in read_decisions(bundles) if collection in (None, one["name"])]
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
    collection: OfCollection = None,
    ray: Ray = None,
    json: Json = False,
) -> None:
    """End the experiment; the active version stays."""
    if ray is not None:
        stopped = load("experiment.stop", FLEET)(bundles, collection, address=ray)
    else:
        with needs("service"):
            from fullrank_service.models.swap import Swap

        stopped = Swap(Path(bundles)).stop_experiment(collection)
    if json:
        print_json({"active": stopped.version, "generation": stopped.generation})
        return
    typer.echo(f"generation {stopped.generation}: {stopped.version} serves alone")


# ``fullrank loop``.


def loop(
    name: Annotated[str, typer.Argument(help="Name of the model.")],
    bundles: BundlesOption = Path("bundles"),
    events: EventsOption = None,
    share: Annotated[
        float, typer.Option(help="Share of the searches in an experiment.", min=0.001, max=1)
    ] = SHARE,
    max_days: Annotated[
        float, typer.Option(help="Longest experiment.", min=0.01, max=365)
    ] = MAX_DAYS,
    every_days: Annotated[
        float, typer.Option(help="Days between two trainings.", min=0, max=365)
    ] = 1,
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
        typer.Option(help="Name or TOML file of a recipe; default: as for `fullrank retrain`."),
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="Time limit of a training.")
    ] = None,
    keep: KeepOption = None,
    json: Json = False,
) -> None:
    """Follow the current experiment; or, if it is time, train a candidate and begin an experiment.

    Call it every ten minutes, from cron. It may be killed at any moment.
    """
    with needs("service"):
        from fullrank_service.experiments.loop import Loop, Options

    further = [
        *([] if judged is None else ["--with", str(judged)]),
        *([] if recipe is None else ["--recipe", recipe]),
        *([] if time is None else ["--time", time]),
    ]
    options = Options(share, max_days, every_days, further)
    done = Loop(bundles, name, event_log(bundles, events), options).step()
    if json:
        print_json(done)
    else:
        typer.echo(f"{done['did']}: {done['because']}" if "because" in done else one_line(done))
    prune_after(bundles, name, keep)
