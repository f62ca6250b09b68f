"""``fullrank search``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank import open_bundle
from fullrank.cli.arguments import Json
from fullrank.cli.commands import needs
from fullrank.cli.output import print_json
from fullrank.errors import FilterError

if TYPE_CHECKING:
    from fullrank import Hit
    from fullrank.retrieval import Match


def search(
    asked: Annotated[
        list[str],
        typer.Argument(
            metavar="[BUNDLE] TEXT",
            help="A version's folder, or BUNDLES/NAME for its newest version, unless --url is given; "
            "then what to look for.",
        ),
    ],
    limit: Annotated[int, typer.Option(help="Number of hits.", min=1, max=1000)] = 10,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the words that pulled each hit up.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="JSON", help='Which documents may be found: {"section": "net"}.'
        ),
    ] = None,
    match: Annotated[
        Literal["all", "any", "auto"] | None,
        typer.Option(
            help="Which words a hit must have: all, any, or auto, which is all while that leaves a document; "
            "default: as the bundle requires."
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
    condition = None if only is None else _filter(only)
    text = asked[-1]
    if len(asked) == 1:
        assert url is not None
        answer = _answer_of_service(url, key, text, limit, condition, explain, match)
    else:
        answer = _answer_of_bundle(Path(asked[0]), text, limit, condition, explain, match)
    if json:
        print_json(answer)
        return
    _print_hits(answer["hits"], explain)
    if answer["reordered"]:
        reordered = answer["reordered"]
        Console().print(f"A second stage reordered the first {reordered} by other features.")


def _answer_of_service(
    url: str,
    key: str | None,
    text: str,
    limit: int,
    condition: Any,
    explain: bool,
    match: Match | None,
) -> dict[str, Any]:
    with needs("client"):
        from fullrank.client import Client
    with Client(url, key=key) as client:
        found = client.search(text, limit=limit, filter=condition, explain=explain, match=match)
    answer: dict[str, Any] = dict(found)
    for hit in answer["hits"]:
        hit |= hit.pop("explanation") or {}
    return answer


def _answer_of_bundle(
    bundle: Path, text: str, limit: int, condition: Any, explain: bool, match: Match | None
) -> dict[str, Any]:
    opened = open_bundle(bundle, verify=False)
    started = time.perf_counter()
    found = opened.search(text, limit, filter=condition, explain=explain, match=match)
    return {
        "bundle": opened.version,
        "query": text,
        "certified": found.certified,
        "total": found.total if found.is_total else None,
        "total_at_least": None if found.is_total else found.total,
        "reordered": found.reordered,
        "hits": [_hit(hit) for hit in found],
        "took_ms": round(1000 * (time.perf_counter() - started), 3),
    }


def _print_hits(hits: Sequence[Mapping[str, Any]], explain: bool) -> None:
    table = Table(box=None, pad_edge=False)
    # A service splits scores only where it explains them.
    parts = ("score", "dense", "lexical", "bias")
    numbers = [part for part in parts if all(part in hit for hit in hits)]
    for heading in numbers:
        table.add_column(heading, justify="right")
    titles = [str(hit["fields"].get("title", "")) for hit in hits]
    titled = any(title not in ("", hit["id"]) for title, hit in zip(titles, hits, strict=True))
    for heading, shown in (("id", True), ("title", titled), ("words", explain)):
        if shown:
            table.add_column(heading, overflow="fold")
    for title, hit in zip(titles, hits, strict=True):
        cells = [hit["id"]]
        if titled:
            cells.append(title)
        if explain:
            pulls = ((word["word"], word["dense"] + word["lexical"]) for word in hit["words"])
            reasons = [f"{word} {pull:+.2f}" for word, pull in pulls]
            cells.append(", ".join(reasons + _clicked(hit.get("clicks"))))
        table.add_row(*(f"{hit[part]:.3f}" for part in numbers), *map(escape, cells))
    Console().print(table)


def _clicked(clicks: Mapping[str, float] | None) -> list[str]:
    found = []
    if clicks and clicks["after_query"]:
        found.append(f"clicked {clicks['after_query']:,.4g} times for this query")
    if clicks and clicks["in_all"]:
        found.append(f"clicked {clicks['in_all']:,.4g} times in all {clicks['bias']:+.2f}")
    return found


def _filter(text: str) -> Any:
    from fullrank.filters.query import parse_filter
    from fullrank.storage.strict_json import JsonError, parse

    try:
        condition = parse(text)
    except JsonError as error:
        raise FilterError(f"filter.{error.field}".rstrip("."), error.reason) from error
    # Bundle.search reads None as "no filter"; here null is a mistake.
    parse_filter(condition)
    return condition


def _hit(hit: Hit) -> dict[str, Any]:
    """Return a hit as JSON values; "words" and "second_stage" only if requested."""
    names = ("id", "score", "dense", "lexical", "bias", "fields")
    found = {name: getattr(hit, name) for name in names}
    if hit.words is not None:
        found["words"] = [word._asdict() for word in hit.words]
    if hit.clicks is not None:
        found["clicks"] = hit.clicks._asdict()
    if hit.second_stage is not None:
        features = [feature._asdict() for feature in hit.second_stage.features]
        found["second_stage"] = {
            "score": hit.second_stage.score,
            "base": hit.second_stage.base,
            "features": features,
        }
    return found
