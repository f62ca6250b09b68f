"""``fullrank bundles list``, ``verify``, ``show`` and ``export``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank.cli.arguments import BundlePath, BundlesRoot, Json
from fullrank.cli.output import as_json, print_json
from fullrank.errors import BundleError, FullrankError
from fullrank.progress import Reporter


def list_(root: BundlesRoot, json: Json = False) -> None:
    """List the bundles of a folder, newest first."""
    from fullrank.bundle import list_bundles

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
    from fullrank.bundle import verify_bundle
    from fullrank.bundle.catalog import bundle_folders

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
    """Show the model card of a bundle, and what `fullrank loop` decided about it."""
    from fullrank.bundle import read_manifest
    from fullrank.bundle.catalog import resolve
    from fullrank.events.decisions import decisions_about, moment, one_line

    path = resolve(bundle)
    manifest = read_manifest(path)
    decisions = decisions_about(path.parent.parent, manifest.version)
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
        print_json(shown | {"decisions": decisions})
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat(shown):
        table.add_row(escape(key), escape(value))
    for made in decisions:
        table.add_row("decision", f"{moment(made['at'])}  {escape(one_line(made))}")
    Console().print(table)


def _flat(item: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as ("card.metrics.mrr", text)."""
    for key, value in item.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, str) else as_json(value)


def export(
    bundle: BundlePath,
    corpus: Annotated[
        Path, typer.Argument(metavar="FILE", help="The corpus.jsonl to write; it must not exist.")
    ],
    json: Json = False,
) -> None:
    """Write the documents of a bundle as a corpus, to train or index again with --exported-from.

    (For Qdrant, PostgreSQL, OpenSearch or Vespa: fullrank export.)
    """
    from fullrank.bundle import open_bundle
    from fullrank.bundle.bundle import write_corpus

    opened = open_bundle(bundle, verify=False)
    if corpus.exists():
        raise FullrankError(f"{corpus}: exists already; choose another file or delete it")
    if not corpus.parent.is_dir():
        raise FullrankError(f"{corpus.parent}: no such folder")
    with Reporter(as_json=json) as report:
        documents = write_corpus(opened, corpus, report)
    if json:
        print_json({"bundle": opened.version, "corpus": corpus, "documents": documents})
        return
    typer.echo(f"{corpus}: {documents} documents of {opened.version}")
