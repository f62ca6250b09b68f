"""``fullrank bundles export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlePath, Json, resolve
from fullrank.cli.output import print_json
from fullrank.errors import FullrankError
from fullrank.progress import Reporter


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
    from fullrank.bundle.corpus import write_corpus

    opened = open_bundle(resolve(bundle), verify=False)
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
