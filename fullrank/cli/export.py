"""``fullrank bundles export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlePath, Json, resolve
from fullrank.cli.output import print_json
from fullrank.errors import FullrankError
from fullrank.progress import Reporter
from fullrank.storage.files import replacing

_ROWS_PER_STEP = 1024


def export(
    bundle: BundlePath,
    corpus: Annotated[
        Path, typer.Argument(metavar="FILE", help="The corpus.jsonl to write; it must not exist.")
    ],
    json: Json = False,
) -> None:
    """Write the documents of a bundle as a corpus, to train or index again with --exported-from."""
    from fullrank.bundle import open_bundle

    opened = open_bundle(resolve(bundle), verify=False)
    if corpus.exists():
        raise FullrankError(f"{corpus}: exists already; choose another file or delete it")
    if not corpus.parent.is_dir():
        raise FullrankError(f"{corpus.parent}: no such folder")
    store = opened.documents
    with (
        replacing(corpus) as file,
        Reporter() as report,
        report.stage("export", len(store)) as stage,
    ):
        for start in range(0, len(store), _ROWS_PER_STEP):
            rows = range(start, min(start + _ROWS_PER_STEP, len(store)))
            file.writelines(map(store.corpus_line, rows))
            stage.advance(len(rows))
    if json:
        print_json({"bundle": opened.version, "corpus": corpus, "documents": len(store)})
        return
    typer.echo(f"{corpus}: {len(store)} documents of {opened.version}")
