"""``fullrank import``."""

from __future__ import annotations

import json as json_module
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A table (CSV, TSV, JSON lines, Parquet), a dump of Elasticsearch, a database (postgresql://…), "
            "a folder of Markdown or HTML, a sitemap, or a folder of BEIR or TREC.",
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
        typer.Option(
            metavar="FILE", help="Log of clicks, in a format that `fullrank events import` reads."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Address of pages, with {path} for the path without its ending: https://docs.example/{path}.html",
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="SQL", help="SELECT statement for a database.")
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of the files; default: UTF-8, or UTF-16 if a file has a byte order mark."
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Write bad rows to skipped.jsonl and go on.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read, and write nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a collection to train on from documents in files or a database.

    Links between pages, judged queries, or clicks become training pairs.
    """
    from fullrank.errors import require_new
    from fullrank_trainer.importing import open_source
    from fullrank_trainer.importing.rows import SKIPPED, Checked

    require_new(out)
    mapping = {"_id": id, "title": title, "text": text}
    with Reporter() as report, report.stage("look through") as stage:
        documents = open_source(source, mapping, query, url, encoding, stage.advance)
    found: dict[str, Any] = {"columns": documents.columns} if documents.columns else {}
    with _new_folder(out, dry_run) as folder, Reporter() as report:
        checked = Checked(folder / SKIPPED if skip_bad else None)
        count, first = 0, []
        with (
            (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
            report.stage("import", documents.total) as stage,
        ):
            for row in checked.good(documents.rows()):
                corpus.write(json_module.dumps(row.fields, ensure_ascii=False) + "\n")
                first += [row.fields] if count < _SHOWN else []
                count += 1
                stage.advance(not row.is_part)
        if not count:
            reason = f"; the first bad row: {checked.first_skipped}" if checked.skipped else ""
            raise FullrankError(f"{source}: no documents{reason}")
        found |= documents.write(folder, are_judged=clicks is not None)
        if clicks is not None:
            ids = next(
                (name for name, use in documents.columns.items() if use == "_id"), "document"
            )
            found["clicks"] = _write_clicks(folder, clicks, encoding, ids, checked.has, report)
    found |= {"documents": count, "skipped": checked.skipped}
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
    new_parents = [parent for parent in out.parents if not parent.exists()]
    folder.mkdir(parents=True)
    try:
        yield folder
        if not dry_run:
            folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in new_parents:
            with suppress(OSError):  # it is not empty
                parent.rmdir()


def _write_clicks(
    folder: Path,
    clicks: Path,
    encoding: str | None,
    ids: str,
    is_known: Callable[[str], bool],
    report: Reporter,
) -> dict[str, Any]:
    """Write the queries of a log of clicks, and how often people clicked what; return the numbers of pairs."""
    from fullrank.events.records import ServedList
    from fullrank_trainer.clicks import fit_propensities, join, rank_by_text, write_collection
    from fullrank_trainer.clicks.imports import format_of, read_records

    refused: Counter[str] = Counter()
    read = read_records(clicks, format_of(clicks), time.time(), refused, 1, encoding, ids)
    records = [*read]
    lists = [record for record in records if isinstance(record, ServedList)]
    events = [record for record in records if not isinstance(record, ServedList)]
    votes = join(lists, events)
    clicked = {votes.documents[number] for number in votes.document[votes.clicked].tolist()}
    unknown = sorted(id for id in clicked if not is_known(id))
    if len(unknown) == len(clicked):
        example = f"; one is on {unknown[0]!r}" if unknown else ""
        error = FullrankError(f"{clicks}: no click is on one of the documents{example}")
        for reason, count in refused.items():
            error.add_note(f"refused rows: {count:,} ({reason})")
        raise error
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
    more = {"unknown documents": len(unknown), "refused": dict(refused)}
    return {**counts, **{name: value for name, value in more.items() if value}}
