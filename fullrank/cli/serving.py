"""``fullrank search``, ``serve`` and ``fullrank bundles``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank.cli.output import (
    BundlePath,
    BundlesRoot,
    Json,
    bundle_folders,
    flat,
    needs,
    print_json,
    resolve,
)
from fullrank.errors import BundleError, FilterError

if TYPE_CHECKING:
    from fullrank.bundle.catalog import Bundle
    from fullrank.filters.columns.table import Mask


def search(
    bundle: BundlePath,
    text: Annotated[str, typer.Argument(help="What to look for.")],
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
    json: Json = False,
) -> None:
    """Search a bundle from the command line."""
    from fullrank.bundle.catalog import open_bundle

    opened = open_bundle(resolve(bundle), verify=False)
    started = time.perf_counter()
    answer = _search(
        opened, text, limit, explain, None if only is None else _filtered(opened, only)
    )
    answer["took_ms"] = round(1000 * (time.perf_counter() - started), 3)
    if json:
        print_json(answer)
        return
    _print_hits(answer["hits"], explain)


def _print_hits(hits: Sequence[Mapping[str, Any]], explain: bool) -> None:
    table = Table(box=None, pad_edge=False)
    numbers = ("score", "learned", "exact", "bias")
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
            pulls = ((word["word"], word["learned"] + word["exact"]) for word in hit["words"])
            cells.append(", ".join(f"{word} {pull:+.2f}" for word, pull in pulls))
        table.add_row(*(f"{hit[part]:.3f}" for part in numbers), *map(escape, cells))
    Console().print(table)


def _filtered(bundle: Bundle, text: str) -> Mask:
    """What a filter lets through."""
    from fullrank.filters.query import matching, parse_filter

    try:
        asked = loads(text)
    except (ValueError, RecursionError) as error:
        raise FilterError("filter", f"is not JSON: {error}") from error
    return matching(parse_filter(asked), bundle.columns)


def _search(
    bundle: Bundle, text: str, limit: int, explain: bool, matching: Mask | None
) -> dict[str, Any]:
    """The answer to one query, as JSON values."""
    from fullrank.explain import explain as explain_hit

    query = bundle.model.encode_queries([text])
    deleted = None if matching is None else ~matching
    ranking = bundle.retriever.search(query, limit, deleted=deleted)[0]
    terms = bundle.model.query_terms(text) if explain else []
    hits = []
    for place, row in enumerate(ranking.rows.tolist()):
        hit = {
            "id": bundle.documents.ids[row],
            "score": float(ranking.scores[place]),
            "learned": float(ranking.learned[place]),
            "exact": float(ranking.exact[place]),
            "bias": float(ranking.bias[place]),
            "fields": bundle.documents.fields(row),
        }
        if explain:
            found = explain_hit(terms, bundle.retriever, query, row)
            hit["words"] = [
                {"word": word.word, "learned": float(word.learned), "exact": float(word.exact)}
                for word in found.words
            ]
        hits.append(hit)
    return {
        "bundle": bundle.version,
        "query": text,
        "certified": bool(ranking.certified),
        "total": int(ranking.total),
        "hits": hits,
    }


def serve(
    bundles: Annotated[
        Path | None,
        typer.Option(metavar="BUNDLES", help="Folder of bundles; else FULLRANK_BUNDLES."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address; else FULLRANK_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; else FULLRANK_PORT.", min=0, max=65535)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; else FULLRANK_WORKERS.", min=1)
    ] = None,
) -> None:
    """Serve bundles over HTTP, with a search page at /."""
    with needs("service"):
        from service.process.run import serve as run_service

    run_service(bundles, host, port, workers)


def list_(root: BundlesRoot, json: Json = False) -> None:
    """List the bundles of a folder, newest first."""
    from fullrank.bundle.catalog import list_bundles

    found = list_bundles(root)
    rows = [
        {
            "name": info.name,
            "version": info.version,
            "created": info.created,
            "bytes": info.bytes,
            "path": str(info.path),
        }
        for info in found
    ]
    if json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "version", "created"):
        table.add_column(heading, overflow="fold")
    table.add_column("MB", justify="right")
    for info in found:
        table.add_row(info.name, info.version, info.created, f"{info.bytes / 1e6:.1f}")
    Console().print(table)


def verify(root: BundlesRoot, json: Json = False) -> None:
    """Verify every bundle of a folder, or one: hashes, shapes, numbers, golden queries."""
    from fullrank.bundle.catalog import verify_bundle

    verdicts: list[dict[str, Any]] = []
    for path in bundle_folders(root):
        try:
            verify_bundle(path)
        except BundleError as error:
            verdicts.append({"path": str(path), "ok": False, "error": str(error)})
        else:
            verdicts.append({"path": str(path), "ok": True, "error": None})
        if not json:
            typer.echo(f"{path}: {verdicts[-1]['error'] or 'ok'}")
    if json:
        print_json(verdicts)
    failed = sum(not verdict["ok"] for verdict in verdicts)
    if failed:
        raise BundleError(f"{failed} of {len(verdicts)} bundles failed verification")


def show(bundle: BundlePath, json: Json = False) -> None:
    """Show the model card of a bundle."""
    from fullrank.bundle.catalog import read_manifest

    path = resolve(bundle)
    manifest = read_manifest(path)
    shown = {
        "name": manifest.name,
        "version": manifest.version,
        "bundle_id": manifest.bundle_id,
        "created": manifest.created,
        "bytes": manifest.total_bytes,
        "path": str(path),
        "model": manifest.model,
        "card": manifest.card,
    }
    if json:
        print_json(shown)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in flat(shown):
        table.add_row(escape(key), escape(value))
    Console().print(table)
