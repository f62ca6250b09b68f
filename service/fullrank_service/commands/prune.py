"""``fullrank bundles prune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlesFolder, Json
from fullrank.cli.commands import needs
from fullrank.cli.output import print_json

KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep",
        metavar="N",
        help="Then remove old versions, as `fullrank bundles prune` does; default: remove none.",
        min=1,
    ),
]


def prune(
    bundles: BundlesFolder,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only versions of this name.")
    ] = None,
    keep: Annotated[
        int, typer.Option(metavar="N", help="Newest versions of each name to keep.", min=1)
    ] = 5,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing.")] = False,
    json: Json = False,
) -> None:
    """Remove old versions of bundles, and unfinished ones that killed commands left.

    The active version, the one before it, the candidate of an experiment and versions that a running service has loaded
    are always kept.
    """
    with needs("service"):
        from fullrank_service.models import retention

    removed = retention.prune(bundles, name, keep=keep, dry_run=dry_run)
    total = sum(one.bytes for one in removed)
    if json:
        rows = [{"path": str(one.path), "bytes": one.bytes} for one in removed]
        print_json({"dry_run": dry_run, "bytes": total, "removed": rows})
        return
    did = "would remove" if dry_run else "removed"
    for one in removed:
        typer.echo(f"{did} {one.path}  {one.bytes / 1e6:.1f} MB")
    typer.echo(f"{did} {len(removed)} folders, {total / 1e6:.1f} MB")


def prune_after(bundles: Path, name: str, keep: int | None) -> None:
    """Do what the option --keep of another command asks for; stderr names what was removed."""
    if keep is None:
        return
    from fullrank_service.models import retention

    for one in retention.prune(bundles, name, keep=keep):
        typer.echo(f"removed {one.path}  {one.bytes / 1e6:.1f} MB", err=True)
