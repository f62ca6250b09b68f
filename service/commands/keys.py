"""``fullrank keys``: who may call the service."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fullrank.cli.output import Json, print_json

Bundles = Annotated[
    Path,
    typer.Option(metavar="BUNDLES", help="Folder of bundles.", envvar="FULLRANK_BUNDLES"),
]
File = Annotated[
    Path | None,
    typer.Option(help="File of the keys; else keys.json in BUNDLES.", envvar="FULLRANK_KEYS"),
]


def _path(bundles: Path, file: Path | None) -> Path:
    from service.auth.keys import FILE

    return bundles / FILE if file is None else file


def create(
    scope: Annotated[
        list[str], typer.Option(help="What it may do: search, ingest, events, admin; repeatable.")
    ],
    id: Annotated[
        str | None, typer.Option(help="Its name in lists and logs; else one is drawn.")
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(help="Good for so many days; else until revoked.", min=0.001, max=36_500),
    ] = None,
    bundles: Bundles = Path("bundles"),
    file: File = None,
    json: Json = False,
) -> None:
    """Make a key and print it, this once; running services take it within a second."""
    from service.auth.keys import create_key

    key, token = create_key(_path(bundles, file), scope, id, days)
    if json:
        print_json({"id": key.id, "scopes": sorted(key.scopes), "token": token})
        return
    typer.echo(f"key {key.id}; it cannot be shown again:", err=True)
    typer.echo(token)


def list_(bundles: Bundles = Path("bundles"), file: File = None, json: Json = False) -> None:
    """List the keys, never the tokens."""
    from service.auth.keys import read_keys

    keys = list((read_keys(_path(bundles, file)) or {}).values())
    rows = [
        {
            "id": key.id,
            "scopes": sorted(key.scopes),
            "created": key.created,
            "expires": None
            if key.expires is None
            else datetime.fromtimestamp(key.expires, UTC).isoformat(),
            "expired": key.ended(),
        }
        for key in keys
    ]
    if json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "scopes", "created", "expires"):
        table.add_column(heading, overflow="fold")
    for row, key in zip(rows, keys, strict=True):
        expires = f"{row['expires'] or 'never'}{' (over)' if row['expired'] else ''}"
        table.add_row(key.id, ", ".join(sorted(key.scopes)), key.created, expires)
    Console().print(table)


def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of the key, as `list` shows it.")],
    bundles: Bundles = Path("bundles"),
    file: File = None,
) -> None:
    """Take a key away; running services refuse it within a second."""
    from service.auth.keys import revoke_key

    revoke_key(_path(bundles, file), id)
