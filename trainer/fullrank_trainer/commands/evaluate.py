"""``fullrank evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fullrank.cli.arguments import BundlePath, CollectionPath, Json, Strict
from fullrank.cli.output import print_json
from fullrank.errors import needs
from fullrank.progress import Reporter


def evaluate(
    bundle: BundlePath,
    collection: CollectionPath,
    split: Annotated[str, typer.Option(help="Split to measure.")] = "test",
    exclude_split: Annotated[
        list[str] | None,
        typer.Option(help="Split whose links are no candidates; may be given again."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="FILE", help="Write the rankings as a TREC run.")
    ] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Measure how well a bundle ranks the answers of a split among all documents.

    A split with weights has clicks: its table shows them one by one, by whether training knew the query and the
    document, beside BM25 and BM25 with popularity.
    """
    from fullrank.bundle import open_bundle

    with needs("trainer"):
        from fullrank_trainer.collection import read_collection
        from fullrank_trainer.columns import measure_columns
        from fullrank_trainer.evaluation.evaluate import evaluate as run_evaluation
        from fullrank_trainer.training.warm import knows_valid

    read = read_collection(collection, strict=strict)
    for remark in read.report.remarks():
        typer.echo(f"{collection}: {remark}", err=True)
    opened = open_bundle(bundle)
    if split == "valid" and knows_valid(opened, read):
        typer.echo(
            f"{opened.version} has learned the clicks of valid, so these figures are too high; "
            "`fullrank bundles show` prints those from before it learned them",
            err=True,
        )
    with Reporter(as_json=json) as reporter:
        found = run_evaluation(opened, read, split, exclude_split or (), run, progress=reporter)
        columns = measure_columns(opened, read, split, exclude_split or (), reporter)
    if json:
        columns_of = {"columns": [column.as_dict() for column in columns]} if columns else {}
        print_json({"bundle": opened.version, **found.as_dict(), **columns_of})
        return
    if columns and exclude_split:
        typer.echo(
            f"{split} has clicks, and --exclude-split takes away what people chose before for the same query",
            err=True,
        )
    table = Table(
        title=f"{opened.version}, {split}: {found.queries:,} queries, each counts once",
        title_style="",
    )
    table.add_column("measure")
    table.add_column("mean", justify="right")
    table.add_column("± standard error", justify="right")
    for measure, value in found.measures.items():
        table.add_row(measure, f"{value.mean:.4f}", value.error_text(4))
    Console().print(table)
    if columns:
        clicks = Table(title="MRR of single clicks, each alone", title_style="")
        for heading in ("kind", "clicks", *columns[0].mrr):
            clicks.add_column(heading, justify="right" if heading != "kind" else "left")
        for column in columns:
            values = (f"{v.mean:.3f} ± {v.error_text(3)}" for v in column.mrr.values())
            clicks.add_row(column.name, f"{column.clicks:,.0f}", *values)
        Console().print(clicks)
