"""``fullrank export``."""

from __future__ import annotations

from typing import Annotated

import typer

from fullrank.cli.arguments import BundlePath, Json
from fullrank.cli.output import print_json
from fullrank.progress import Reporter


def export(
    bundle: BundlePath,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="qdrant:///FOLDER, qdrant://HOST/NAME, postgresql://HOST/DB?table=NAME, "
            "opensearch-bulk:FILE or vespa-feed:FILE.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name in the engine; default: the name in TARGET, or that of the bundle."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Copy a bundle's documents and their vectors into Qdrant, PostgreSQL, OpenSearch or Vespa.

    (For a corpus.jsonl to train or index again: fullrank bundles export.)
    """
    from fullrank.bundle import open_bundle
    from fullrank.engines.target import export as export_to

    opened = open_bundle(bundle, verify=False)
    with Reporter(as_json=json) as report:
        done = export_to(opened, to, name, report)
    if json:
        print_json(
            {
                "bundle": opened.version,
                "name": done.name,
                "documents": done.documents,
                "is_new": done.is_new,
                "files": list(done.files),
            }
        )
        return
    where = f" in {', '.join(map(str, done.files))}" if done.files else ""
    state = "" if done.is_new else " (was complete)"
    typer.echo(f"{done.name}: {done.documents} documents of {opened.version}{where}{state}")
