"""``fullrank import``."""

from __future__ import annotations

import json as json_module
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fullrank.cli.arguments import Json
from fullrank.cli.output import print_json
from fullrank.errors import FullrankError
from fullrank.progress import Reporter
from fullrank.storage.files import temporary_name

_SHOWN = 3


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="CSV, TSV or JSON lines, or a folder of Markdown or HTML."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="COLLECTION", help="Folder to write.")],
    id: Annotated[str | None, typer.Option(help="Column of the id; default: id, sku, ….")] = None,
    title: Annotated[
        str | None, typer.Option(help="Column of the title; default: title, name, ….")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the text; default: text, description, ….")
    ] = None,
    clicks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Log of clicks, as `fullrank events import` reads it."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Address of pages, with {path} for the path without its ending: https://docs.example/{path}.html",
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of a table; default: UTF-8, or UTF-16 with its mark."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Write bad rows to skipped.jsonl and go on.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read, and write nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a collection to train on from a table of documents or a folder of pages.

    Links between pages, or clicks, become training pairs.
    """
    from fullrank_trainer.clicks.export import require_new
    from fullrank_trainer.importing.pages import Pages
    from fullrank_trainer.importing.rows import Checked
    from fullrank_trainer.importing.tables import ENDINGS, open_table

    require_new(out)
    found: dict[str, Any] = {}
    pages = None
    if source.is_dir():
        if any((id, title, text, encoding)):
            raise FullrankError(f"{source}: --id, --title, --text and --encoding are for tables")
        pages = Pages(source, url)
        if not pages.files:
            raise FullrankError(f"{source}: no Markdown or HTML page in this folder")
        rows, total = pages.rows(), len(pages.files)
    elif source.name.removesuffix(".gz").endswith(ENDINGS):
        if url is not None:
            raise FullrankError(f"{source}: --url is for a folder of pages")
        table = open_table(source, encoding, {"_id": id, "title": title, "text": text})
        found["columns"] = {
            name: table.fields.get(name, table.kinds.get(name)) for name in table.columns
        }
        rows, total = table.rows(), None
    else:
        raise FullrankError(
            f"{source}: neither a folder nor one of {', '.join(ENDINGS)}, plain or .gz"
        )
    checked = Checked(skip_bad)
    with _new_folder(out, dry_run) as folder, Reporter() as report:
        count, first = 0, []
        with (
            (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
            report.stage("import", total) as stage,
        ):
            for row in checked.good(rows):
                corpus.write(json_module.dumps(row.fields, ensure_ascii=False) + "\n")
                first += [row.fields] if count < _SHOWN else []
                count += 1
                stage.advance()
        if not count:
            raise FullrankError(f"{source}: no documents")
        checked.write(folder)
        if pages is not None:
            found["links"] = _write_links(folder, pages.links, are_judgements=clicks is None)
        if clicks is not None:
            found["clicks"] = _write_clicks(folder, clicks, report)
    found |= {"documents": count, "skipped": len(checked.skipped)}
    if dry_run:
        found["first"] = first
    if json:
        print_json(found)
        return
    for name, value in found.items():
        lines = value if isinstance(value, list) else [value]
        for line in lines:
            shown = (
                json_module.dumps(line, ensure_ascii=False)
                if isinstance(line, dict)
                else f"{line:,}"
            )
            typer.echo(f"{name:10} {shown[:300]}")
    if not dry_run:
        typer.echo(f"next: fullrank train {out} --out bundles --name {out.name}")


@contextmanager
def _new_folder(out: Path, dry_run: bool) -> Iterator[Path]:
    """A folder that becomes `out` when the block has ended well."""
    folder = temporary_name(out)
    folder.mkdir(parents=True)
    try:
        yield folder
        if not dry_run:
            folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_links(
    folder: Path, links: dict[str, list[tuple[str, str]]], *, are_judgements: bool
) -> int:
    """Write the texts of links and, as judgements, which pages link each other; return the number of such pairs."""
    # A page that could not be read is no document.
    known = [(page, to, text) for page, found in links.items() for to, text in found if to in links]
    pairs = sorted({(page, to) for page, to, _ in known})
    if pairs and are_judgements:
        (folder / "qrels").mkdir()
        lines = [f"{page}\t{to}\t1" for page, to in pairs]
        head = "query-id\tcorpus-id\tscore"
        (folder / "qrels" / "train.tsv").write_text("\n".join([head, *lines, ""]), "utf-8")
    if known:
        lines = [f"{text}\t{to}" for _, to, text in known]
        (folder / "anchors.tsv").write_text("\n".join(["anchor\tcorpus-id", *lines, ""]), "utf-8")
    return len(pairs)


def _write_clicks(folder: Path, clicks: Path, report: Reporter) -> dict[str, int]:
    """Write the queries of a log of clicks, and how often people clicked what; return the numbers of pairs."""
    from fullrank.events.records import ServedList
    from fullrank_trainer.clicks import fit_propensities, join, rank_by_text, write_collection
    from fullrank_trainer.clicks.imports import format_of, read_records

    refused: Counter[str] = Counter()
    records = [*read_records(clicks, format_of(clicks), time.time(), refused)]
    lists = [record for record in records if isinstance(record, ServedList)]
    events = [record for record in records if not isinstance(record, ServedList)]
    votes = join(lists, events)
    propensities = fit_propensities(votes.coins)
    votes = rank_by_text(votes, propensities, folder, folder.parent, report)
    made = folder.with_name(f"{folder.name}-clicks")
    try:
        counts = write_collection(votes, propensities, folder, made, final=True)
        for path in made.iterdir():
            if path.name != "corpus.jsonl":
                path.rename(folder / path.name)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return {**counts, **({"refused": sum(refused.values())} if refused else {})}
