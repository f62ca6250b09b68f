"""``fullrank index``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fullrank.cli.arguments import ExportedFrom, Json
from fullrank.cli.commands import FLEET, load
from fullrank.cli.output import print_json
from fullrank.errors import FullrankError, needs
from fullrank.progress import Reporter

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run on this Ray cluster: auto, HOST:PORT, or local for one on this machine. "
        "BUNDLE, CORPUS and BUNDLES may then be addresses such as s3://….",
    ),
]


def index(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="A version's folder, or BUNDLES/NAME for its newest version."
        ),
    ],
    corpus: Annotated[
        str,
        typer.Argument(metavar="CORPUS", help="corpus.jsonl, plain or gzipped, or its folder."),
    ],
    out: Annotated[
        str, typer.Option("--out", metavar="BUNDLES", help="Folder of bundles to write into.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the model; default: that of BUNDLE.")
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries",
            metavar="FILE",
            help="queries.jsonl to tune the fast mode with; default: titles and other words.",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(help="Documents encoded in one step.", min=1, max=1_000_000)
    ] = 4096,
    processes: Annotated[
        int | None, typer.Option(help="Processes to use; default: all cores.", min=1)
    ] = None,
    exported_from: ExportedFrom = None,
    ray: Ray = None,
    shards: Annotated[
        int | None, typer.Option(help="With --ray: shards to write; default: 1.", min=1, max=4096)
    ] = None,
    json: Json = False,
) -> None:
    """Encode a corpus of any size with a trained model and write it as a new bundle."""
    from fullrank.bundle.catalog import resolve

    with needs("trainer"):
        from fullrank_trainer.indexing import index as run_index

    if ray is not None:
        if processes is not None or exported_from is not None:
            raise FullrankError("--processes and --exported-from cannot be used with --ray")
        on_ray = load("index", FLEET)
        source = bundle if "://" in bundle else str(resolve(Path(bundle)))
        result = on_ray(source, corpus, out, name, address=ray, shards=shards or 1, queries=queries)
    else:
        if shards is not None:
            raise FullrankError("--shards needs --ray, for example --ray local")
        try:
            result = run_index(
                resolve(Path(bundle)),
                Path(corpus),
                Path(out),
                name,
                queries=None if queries is None else Path(queries),
                batch=batch,
                processes=processes,
                exported_from=None if exported_from is None else resolve(exported_from),
                reporter=Reporter(as_json=json),
            )
        except (
            KeyboardInterrupt,
            SystemError,
        ) as stopped:  # numba may raise the second for the first
            for note in getattr(stopped, "__notes__", ()):
                typer.echo(note, err=True)
            raise
    if json:
        print_json(result.as_dict())
        return
    Console(highlight=False).print(
        f"{escape(str(result.as_dict()['bundle']))}: {result.documents:,} documents in {result.seconds:.0f} s",
        soft_wrap=True,
    )
