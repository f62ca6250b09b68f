"""``fullrank index``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fullrank.cli.arguments import BundlePath, ExportedFrom, Json, resolve
from fullrank.cli.commands import needs
from fullrank.cli.output import print_json
from fullrank.progress import Reporter


def index(
    bundle: BundlePath,
    corpus: Annotated[
        Path,
        typer.Argument(metavar="CORPUS", help="corpus.jsonl, plain or gzipped, or its folder."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="BUNDLES", help="Folder of bundles to write into.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the model; default: as the bundle is named.")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            "--queries",
            metavar="FILE",
            help="queries.jsonl to tune the fast mode with; default: titles.",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(help="Documents encoded in one step.", min=1, max=1_000_000)
    ] = 4096,
    processes: Annotated[
        int | None, typer.Option(help="Processes to use; default: all cores.", min=1)
    ] = None,
    exported_from: ExportedFrom = None,
    json: Json = False,
) -> None:
    """Encode a corpus of any size with a trained model and write it as a new bundle."""
    with needs("trainer"):
        from trainer.indexing.index import index as run_index

    result = run_index(
        resolve(bundle),
        corpus,
        out,
        name,
        queries=queries,
        batch=batch,
        processes=processes,
        exported_from=None if exported_from is None else resolve(exported_from),
        reporter=Reporter(),
    )
    if json:
        print_json(result.as_dict())
        return
    Console(highlight=False).print(
        f"{escape(str(result.path))}: {result.documents:,} documents in {result.seconds:.0f} s",
        soft_wrap=True,
    )
