"""The command line: the one place that puts trainer and service together.

Results go to stdout, diagnostics to stderr. Exit codes: 0 done, 1 a FullrankError (one line says
what), 2 wrong usage, 130 interrupted. Trainer and service are imported by the commands that need
them, so that each works where only its own extra is installed.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from fullrank.cli import export as exporting
from fullrank.cli import serving, training
from fullrank.errors import FullrankError
from service.commands import activate as swapping
from service.commands import compact as compacting
from service.commands import keys as access
from trainer.commands import index as indexing

app = typer.Typer(
    name="fullrank",
    help="Learned and exact matching in one score: train a ranker, measure it, serve it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bundles_app = typer.Typer(
    help="List, verify, show, activate, compact or export bundles.", no_args_is_help=True
)
app.add_typer(bundles_app, name="bundles")
keys_app = typer.Typer(help="Make, list or revoke the keys of the service.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
for _command in (
    training.train,
    indexing.index,
    training.evaluate,
    training.related,
    training.recipes,
    serving.search,
    serving.serve,
    training.demo,
):
    app.command()(_command)
bundles_app.command("list")(serving.list_)
bundles_app.command()(serving.verify)
bundles_app.command()(serving.show)
bundles_app.command()(swapping.activate)
bundles_app.command()(swapping.rollback)
bundles_app.command()(compacting.compact)
bundles_app.command()(exporting.export)
keys_app.command()(access.create)
keys_app.command("list")(access.list_)
keys_app.command()(access.revoke)


def main() -> NoReturn:
    """The console script: runs the command and exits with a code that means something."""
    try:
        app()
    except FullrankError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    sys.exit(0)


def _fail(message: str) -> NoReturn:
    typer.echo(f"fullrank: {' '.join(message.split())}", err=True)
    sys.exit(1)
