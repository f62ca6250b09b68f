"""``fullrank loop``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlesOption, EventsOption, Json, event_log
from fullrank.cli.commands import needs
from fullrank.cli.output import print_json
from fullrank.experiment.decisions import MAX_DAYS, SHARE, one_line
from fullrank_service.commands.prune import KeepOption, prune_after


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
            "--with", metavar="COLLECTION", help="Judgements that are added to the clicks."
        ),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Name or TOML file of a recipe; default: as of retrain.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="Time limit of a training.")
    ] = None,
    keep: KeepOption = None,
    json: Json = False,
) -> None:
    """Do what is due: follow the experiment, or train a candidate and begin one.

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
