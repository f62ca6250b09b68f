"""``fullrank bundles export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.output import BundlePath, Json, needs, print_json, resolve
from fullrank.errors import FullrankError
from fullrank.storage.files import replacing

_STEP = 1024


def export(
    bundle: BundlePath,
    corpus: Annotated[
        Path, typer.Argument(metavar="FILE", help="The corpus.jsonl to write; must not be there.")
    ],
    json: Json = False,
) -> None:
    """Write the documents of a bundle as a corpus, to train or index anew: see --exported-from."""
    from fullrank.bundle.catalog import open_bundle

    with needs("trainer"):
        from trainer.progress import Reporter

    opened = open_bundle(resolve(bundle), verify=False)
    if corpus.exists():
        raise FullrankError(f"{corpus}: is there already")
    if not corpus.parent.is_dir():
        raise FullrankError(f"{corpus.parent}: no such folder")
    store = opened.documents
    with (
        replacing(corpus) as file,
        Reporter() as report,
        report.stage("export", len(store)) as stage,
    ):
        for start in range(0, len(store), _STEP):
            rows = range(start, min(start + _STEP, len(store)))
            file.writelines(map(store.corpus_line, rows))
            stage.advance(len(rows))
    if json:
        print_json({"bundle": opened.version, "corpus": corpus, "documents": len(store)})
        return
    typer.echo(f"{corpus}: {len(store)} documents of {opened.version}")
