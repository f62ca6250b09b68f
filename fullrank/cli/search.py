"""``fullrank search``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank.cli.arguments import Json
from fullrank.cli.output import print_json
from fullrank.errors import FilterError, needs


def search(
    asked: Annotated[
        list[str],
        typer.Argument(
            metavar="[BUNDLE] TEXT",
            help="What to search for; before it, unless --url is given, a version's folder, or BUNDLES/NAME for its "
            "newest version.",
        ),
    ],
    limit: Annotated[int, typer.Option(help="Number of hits.", min=1, max=1000)] = 10,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show the parts of each score, and the words that contributed."
        ),
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="JSON", help='Find only documents that match: {"section": "net"}.'
        ),
    ] = None,
    match: Annotated[
        Literal["all", "any", "auto"] | None,
        typer.Option(
            help="Which words of the query a hit must have: all, any, or auto (all, if a document has them all); "
            "default: the bundle decides."
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Ask a service in place of a bundle.", envvar="FULLRANK_URL")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="API key of the service.", envvar="FULLRANK_KEY")
    ] = None,
    json: Json = False,
) -> None:
    """Search a bundle, or a service with --url."""
    if len(asked) > 2 or (len(asked) == 1 and url is None):
        raise typer.BadParameter("expected BUNDLE TEXT, or --url URL TEXT")
    options: dict[str, Any] = {"limit": limit, "explain": explain, "match": match}
    if only is not None:
        options["filter"] = _filter(only)
    if url is not None and len(asked) == 1:
        answer = _answer_of_service(url, key, asked[0], options)
    else:
        answer = _answer_of_bundle(Path(asked[0]), asked[-1], options)
    if json:
        print_json(answer)
        return
    if not answer["hits"]:
        typer.echo("nothing found")
        return
    _print_hits(answer["hits"], explain)
    if answer["reordered"]:
        reordered = answer["reordered"]
        Console().print(f"A second stage reordered the first {reordered} by other features.")


def _answer_of_service(
    url: str, key: str | None, text: str, options: dict[str, Any]
) -> Mapping[str, Any]:
    with needs("client"):
        from fullrank.client import Client
    with Client(url, key=key) as client:
        return client.search(text, **options)


def _answer_of_bundle(bundle: Path, text: str, options: dict[str, Any]) -> Mapping[str, Any]:
    from fullrank.bundle import open_bundle

    opened = open_bundle(bundle, verify=False)
    started = time.perf_counter()
    found = opened.search(text, **options).as_dict()
    took_ms = round(1000 * (time.perf_counter() - started), 3)
    return {"bundle": opened.version, "query": text, **found, "took_ms": took_ms}


def _print_hits(hits: Sequence[Mapping[str, Any]], explain: bool) -> None:
    table = Table(box=None, pad_edge=False)
    numbers = ("score", *(("dense", "lexical", "bias") if explain else ()))
    for heading in numbers:
        table.add_column(heading, justify="right")
    titles = [str(hit["fields"].get("title", "")) for hit in hits]
    titled = any(title not in ("", hit["id"]) for title, hit in zip(titles, hits, strict=True))
    for heading, shown in (("id", True), ("title", titled), ("words", explain)):
        if shown:
            table.add_column(heading, overflow="fold")
    for title, hit in zip(titles, hits, strict=True):
        why: Mapping[str, Any] = hit["explanation"] or {}
        cells = [hit["id"]]
        if titled:
            cells.append(title)
        if explain:
            pulls = ((word["word"], word["dense"] + word["lexical"]) for word in why["words"])
            reasons = [f"{word} {pull:+.2f}" for word, pull in pulls]
            cells.append(", ".join(reasons + _clicked(why["clicks"])))
        parts = {**hit, **why}
        table.add_row(*(f"{parts[part]:.3f}" for part in numbers), *map(escape, cells))
    Console().print(table)


def _clicked(clicks: Mapping[str, float] | None) -> list[str]:
    found = []
    if clicks and clicks["after_query"]:
        found.append(f"clicked {_times(clicks['after_query'])} for this query")
    if clicks and clicks["in_all"]:
        found.append(f"clicked {_times(clicks['in_all'])} in all {clicks['bias']:+.2f}")
    return found


def _times(count: float) -> str:
    return "once" if count == 1 else f"{count:,.4g} times"


def _filter(text: str) -> Any:
    from fullrank.storage.strict_json import JsonError, parse

    try:
        condition = parse(text)
    except JsonError as error:
        raise FilterError(f"filter.{error.field}".rstrip("."), error.reason) from error
    if condition is None:  # which a search reads as "no filter"
        raise FilterError("filter", "is null; leave it out to search all documents")
    return condition
