"""Commands of other packages: found as entry points, loaded without this package importing them.

An entry point of the group "fullrank.commands" is named as the command is typed, with a dot for a subcommand
("train", "bundles.compact"). Its object is the command's function, or a Typer app for a group of commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from fullrank.errors import FullrankError, lacks, needs

GROUP = "fullrank.commands"
FLEET = "fullrank.fleet"
"""What a command runs in place of its own work when --ray names a cluster, under the command's name."""
_EXTRA_OF = {
    "fullrank_trainer": "trainer",
    "fullrank_service": "service",
    "fullrank_fleet": "ray",
}


def add_installed(app: typer.Typer, groups: Mapping[str, typer.Typer]) -> None:
    """Add every installed command to the app, or to the group that its name begins with.

    A command whose module cannot be imported is still listed; running it prints which package to install.
    """
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        group, _, name = point.name.rpartition(".")
        parent = groups.get(group, app)
        try:
            loaded = point.load()
        except ImportError as error:
            parent.command(
                name,
                help=f"Not available here: needs the extra '{_extra(point)}'.",
                context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
            )(_unavailable(error, _extra(point)))
            continue
        if isinstance(loaded, typer.Typer):
            parent.add_typer(loaded, name=name)
        else:
            parent.command(name)(loaded)


def load(name: str, group: str = GROUP) -> Callable[..., Any]:
    """Return the function of an installed command, so that one command can end in another.

    Raises:
        FullrankError: The command is not installed, or lacks an extra.
    """
    for point in entry_points(group=group, name=name):
        with needs(_extra(point)):
            function: Callable[..., Any] = point.load()
            return function
    raise FullrankError(f"no command {name!r} is installed; reinstall fullrank")


def _extra(point: EntryPoint) -> str:
    """A package's commands need one extra; other distributions name their package."""
    package = point.module.partition(".")[0]
    return _EXTRA_OF.get(package, package)


def _unavailable(error: ImportError, extra: str) -> Callable[[], None]:
    def answer() -> None:
        raise lacks(error, extra) from error

    return answer
