"""The root of the command line: the app, the commands that need only fullrank, and main().

Results go to stdout, diagnostics to stderr. Exit codes: 0 done, 1 a FullrankError or an OSError (one line
names the problem; the notes of an error follow, a line each), 2 wrong usage, 130 interrupted.

trainer and service bring their own commands as entry points of the group "fullrank.commands". This package
never imports them, and starting it imports no numerical library: a command imports its packages when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from fullrank.cli import bundles, commands, search
from fullrank.errors import INTERRUPTED, FullrankError


def build_app() -> typer.Typer:
    """Make the root app with every command: fullrank's own and those of installed entry points."""
    app = typer.Typer(
        name="fullrank",
        help="Learned and exact matching in one score: train a ranker, measure it, serve it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=app.info.help)(_root)
    bundles_app = typer.Typer(
        help="List, verify, show, export, activate, roll back, compact or prune bundles.",
        no_args_is_help=True,
    )
    app.add_typer(bundles_app, name="bundles")
    app.command()(search.search)
    bundles_app.command("list")(bundles.list_)
    bundles_app.command()(bundles.verify)
    bundles_app.command()(bundles.show)
    bundles_app.command()(bundles.export)
    commands.add_installed(app, {"bundles": bundles_app})
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fullrank {version('fullrank')}")
        raise typer.Exit


def _root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options before a command."""


def main() -> NoReturn:
    """Run the command that the arguments name, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A title that the terminal's encoding lacks is printed escaped instead of failing.
            stream.reconfigure(errors="backslashreplace")
    code = _run()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes stdout again at exit, which would print a traceback: write to /dev/null instead.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1 if isinstance(error, BrokenPipeError) else _fail(_reason(error))
    sys.exit(code)


def _run() -> int:
    try:
        build_app()()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except FullrankError as error:
        return _fail(str(error), error.exit_code, getattr(error, "__notes__", ()))
    except OSError as error:
        return _fail(_reason(error))
    except SystemError as error:
        # Numba raises it in place of a KeyboardInterrupt that comes while it packs what a kernel returns.
        if not _was_interrupted(error):
            raise
        return INTERRUPTED
    return 0


def _was_interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    # Of two names the second one is that of the file to write.
    name = error.filename2 or error.filename
    return f"{name}: {reason}" if name else reason


def _fail(message: str, code: int = 1, notes: Iterable[str] = ()) -> int:
    with suppress(OSError):
        typer.echo(f"fullrank: {' '.join(message.split())}", err=True)
        for note in notes:
            typer.echo(f"  {note}", err=True)
    return code
