"""``fullrank keys``: create, derive, list and revoke the API keys of the service."""

from __future__ import annotations

import math
from json import dumps
from pathlib import Path
from time import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fullrank.cli.arguments import BundlesOption, Json
from fullrank.cli.output import print_json
from fullrank.errors import needs
from fullrank.storage.strict_json import JsonError, parse

File = Annotated[
    Path | None,
    typer.Option(help="File of the keys; default: keys.json in BUNDLES.", envvar="FULLRANK_KEYS"),
]


Collections = Annotated[
    list[str] | None,
    typer.Option(
        "--collection", metavar="NAME", help="Limit it to this collection; may be repeated."
    ),
]
Filter = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Limit it to documents that match this filter."),
]


app = typer.Typer(
    help="Create, derive, list or revoke the API keys of the service.", no_args_is_help=True
)


def _path(bundles: Path, file: Path | None) -> Path:
    with needs("service"):
        from fullrank_service.http.keys import FILE

    return bundles / FILE if file is None else file


def _checked_days(days: float | None) -> float | None:
    if days is not None and math.isnan(days):
        raise typer.BadParameter("nan is not a number of days", param_hint="'--days'")
    return days


def _filter_of(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = parse(text)
    except JsonError as error:
        raise typer.BadParameter(str(error), param_hint="'--filter'") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("must be a JSON object", param_hint="'--filter'")
    return found


Days = Annotated[
    float | None,
    typer.Option(
        help="Days until it expires; default: never.",
        min=0.001,
        max=36_500,
        callback=_checked_days,
    ),
]


@app.command()
def create(
    scope: Annotated[
        list[str],
        typer.Option(help="Scope of the key: search, ingest, events or admin; may be repeated."),
    ],
    id: Annotated[
        str | None, typer.Option(help="Name of the key in lists and logs; default: a random one.")
    ] = None,
    days: Days = None,
    collection: Collections = None,
    filter: Filter = None,
    bundles: BundlesOption = Path("bundles"),
    file: File = None,
    json: Json = False,
) -> None:
    """Create a key and print it. It cannot be shown again.

    Running services accept it within a second.
    """
    with needs("service"):
        from fullrank_service.http.keys import create_key, read_keys

    path = _path(bundles, file)
    is_first = read_keys(path) is None
    key, token = create_key(
        path, scope, id, days, collections=collection or (), filter=_filter_of(filter)
    )
    if is_first:
        typer.echo(
            "this is the first key: a service without FULLRANK_ANONYMOUS now refuses callers without a key; to keep "
            "searches open, start it with FULLRANK_ANONYMOUS=search",
            err=True,
        )
    if json:
        print_json({"id": key.id, "scopes": sorted(key.scopes), "token": token})
        return
    typer.echo(f"key {key.id}; its token cannot be shown again:", err=True)
    typer.echo(token)


@app.command()
def derive(
    key: Annotated[str, typer.Option(help="API key with the scope search.", envvar="FULLRANK_KEY")],
    collection: Collections = None,
    filter: Filter = None,
    days: Days = None,
) -> None:
    """Derive a tenant's token from a key, and print it. This needs neither the service nor its files.

    The token may search within its own bounds and those of the key, until it expires or the key is revoked.
    """
    with needs("service"):
        from fullrank_service.http.keys import derive_key

    expires = None if days is None else time() + days * 86_400
    condition = _filter_of(filter)
    typer.echo(derive_key(key, collections=collection or (), filter=condition, expires=expires))


@app.command("list")
def list_(bundles: BundlesOption = Path("bundles"), file: File = None, json: Json = False) -> None:
    """List the keys, without their secrets."""
    with needs("service"):
        from fullrank_service.http.keys import bounds_of, read_keys

    keys = list((read_keys(_path(bundles, file)) or {}).values())
    rows = [
        {
            "id": key.id,
            "scopes": sorted(key.scopes),
            "created": key.created,
            "expires": key.expires_at,
            "expired": key.is_expired(),
            **bounds_of(key),
        }
        for key in keys
    ]
    if json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "scopes", "created", "expires", "bound to"):
        table.add_column(heading, overflow="fold")
    for row, key in zip(rows, keys, strict=True):
        expires = f"{row['expires'] or 'never'}{' (expired)' if row['expired'] else ''}"
        bounds = dumps(bounds_of(key)) if bounds_of(key) else ""
        table.add_row(key.id, ", ".join(sorted(key.scopes)), key.created, expires, bounds)
    Console().print(table)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="ID of the key, as `list` shows it.")],
    bundles: BundlesOption = Path("bundles"),
    file: File = None,
) -> None:
    """Revoke a key; running services refuse it within a second."""
    with needs("service"):
        from fullrank_service.http.keys import revoke_key

    revoke_key(_path(bundles, file), id)
