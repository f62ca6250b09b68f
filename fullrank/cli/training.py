"""``fullrank train``, ``evaluate``, ``related``, ``recipes`` and ``demo``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank.cli.output import (
    BundlePath,
    CollectionPath,
    ExportedFrom,
    Json,
    needs,
    print_json,
    resolve,
)

if TYPE_CHECKING:
    from trainer.train import TrainResult

COMPARED = ("map", "mrr", "ndcg@10", "recall@100")
"""Measures of the table that train prints; --json and the model card have all."""


def train(
    collection: CollectionPath,
    out: Annotated[Path, typer.Option(help="Folder of bundles to write into.", metavar="BUNDLES")],
    name: Annotated[str, typer.Option(help="Name of the model.")],
    recipe: Annotated[str, typer.Option(help="Name or TOML file of a recipe.")] = "auto",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**63 - 1)] = 1,
    threads: Annotated[
        int | None, typer.Option(help="Threads to train on; default: all cores.", min=1)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run of the same name.")
    ] = False,
    exported_from: ExportedFrom = None,
    json: Json = False,
) -> None:
    """Train a model on a collection and write it as a bundle."""
    source = None if exported_from is None else resolve(exported_from)
    result = _train(collection, out, name, recipe, set_ or [], seed, threads, resume, source)
    if json:
        print_json(result.as_dict())
        return
    print_comparison(result)
    Console(highlight=False).print(
        f"{escape(str(result.path))} in {result.seconds:.0f} s", soft_wrap=True
    )


def _train(
    collection: Path,
    out: Path,
    name: str,
    recipe: str,
    overrides: Sequence[str],
    seed: int,
    threads: int | None,
    resume: bool,
    exported_from: Path | None = None,
) -> TrainResult:
    with needs("trainer"):
        from trainer.progress import Reporter
        from trainer.train import train as run_training

    return run_training(
        collection,
        out,
        name,
        recipe=recipe,
        overrides=overrides,
        seed=seed,
        threads=threads,
        resume=resume,
        exported_from=exported_from,
        reporter=Reporter(),
    )


def evaluate(
    bundle: BundlePath,
    collection: CollectionPath,
    split: Annotated[str, typer.Option(help="Split to measure.")] = "test",
    exclude_split: Annotated[
        list[str] | None,
        typer.Option(help="Split whose links are no candidates; may be given again."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rankings as a TREC run.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure a bundle on a split, all documents as candidates."""
    from fullrank.bundle.catalog import open_bundle

    with needs("trainer"):
        from trainer.collection import read_collection
        from trainer.evaluation.evaluate import evaluate as run_evaluation
        from trainer.progress import Reporter

    read = read_collection(collection)
    for remark in read.report.remarks():
        typer.echo(f"{collection}: {remark}", err=True)
    opened = open_bundle(resolve(bundle))
    with Reporter() as reporter:
        found = run_evaluation(opened, read, split, exclude_split or (), run, progress=reporter)
    if json:
        print_json({"bundle": opened.version, **found.as_dict()})
        return
    table = Table(title=f"{opened.version}, {split}: {found.queries:,} queries", title_style="")
    table.add_column("measure")
    table.add_column("mean", justify="right")
    table.add_column("± standard error", justify="right")
    for measure, value in found.measures.items():
        table.add_row(measure, f"{value.mean:.4f}", f"{value.standard_error:.4f}")
    Console().print(table)


class Context(StrEnum):
    """What words are near in."""

    DOCUMENT = "document"
    SENTENCE = "sentence"


def related(
    collection: CollectionPath,
    terms: Annotated[
        list[str], typer.Argument(metavar="WORD...", help="Words, and 2-grams in quotes.")
    ],
    top: Annotated[int, typer.Option(help="Neighbours of each.", min=1, max=1000)] = 5,
    frequent: Annotated[
        int, typer.Option(help="Among the so many most frequent words.", min=1)
    ] = 30_000,
    context: Annotated[Context, typer.Option(help="What words are near in.")] = Context.DOCUMENT,
    json: Json = False,
) -> None:
    """Show the frequent words nearest to a word or 2-gram, with their DICE coefficients."""
    with needs("trainer"):
        from trainer.collection import read_collection
        from trainer.features.related import related as find_related
        from trainer.progress import Reporter

    read = read_collection(collection)
    with Reporter() as report:
        found = find_related(
            read,
            terms,
            top=top,
            frequent_words=frequent,
            context=context.value,
            processes=len(os.sched_getaffinity(0)),
            report=report,
        )
    if json:
        print_json(
            {
                "collection": str(collection),
                "context": context.value,
                "frequent": frequent,
                "related": [line.as_dict() for line in found],
            }
        )
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("word or 2-gram", overflow="fold")
    table.add_column(f"{context.value}s", justify="right")
    table.add_column("nearest frequent words", overflow="fold")
    for line in found:
        near = ", ".join(f"{item.word} {item.dice:.2f}" for item in line.nearest)
        table.add_row(escape(line.term), f"{line.occurs:,}", escape(near))
    Console(highlight=False).print(table)


def recipes(json: Json = False) -> None:
    """List the recipes: what each is, and what its models can do."""
    with needs("trainer"):
        from trainer.systems import described

    found = described()
    if json:
        print_json(found)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("recipe", "system", "paper"):
        table.add_column(heading, overflow="fold")
    for heading in ("new queries", "new documents"):
        table.add_column(heading)
    for line in found:
        flags = ("yes" if line[key] else "no" for key in ("new_queries", "new_documents"))
        table.add_row(*(escape(line[key]) for key in ("recipe", "about", "paper")), *flags)
    Console().print(table)


def demo(
    port: Annotated[int, typer.Option(help="Port of the search page.", min=1, max=65535)] = 8000,
    out: Annotated[
        Path | None, typer.Option(help="Where to keep collection and bundles.", metavar="FOLDER")
    ] = None,
    seconds: Annotated[
        int, typer.Option(help="Time budget of the training, in seconds.", min=5)
    ] = 60,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Train only.")] = False,
) -> None:
    """Train on the docstrings of the installed numpy and scipy, then search them in a browser."""
    with needs("trainer"):
        from trainer.collection.demo import write_demo_collection

    note = Console(stderr=True, highlight=False).print
    folder = out if out is not None else _fresh_demo_folder()
    collection = write_demo_collection(folder / "collection")
    note(f"The docstrings of numpy and scipy are a collection in {escape(str(collection))}")
    bundles = folder / "bundles"
    _train(collection, bundles, "bm25", "bm25", [], 1, None, False)
    budget = [f"auto.seconds={seconds}"]
    learned = _train(collection, bundles, "demo", "auto", budget, 1, None, False)
    print_comparison(learned)
    if no_serve:
        typer.echo(str(bundles))
        return
    with needs("service"):
        from service.process.run import serve as run_service

    os.environ.setdefault("FULLRANK_DEFAULT_MODEL", "demo")
    note(f"Open http://127.0.0.1:{port}/ in a browser; Ctrl-C ends.")
    run_service(bundles, "127.0.0.1", port, 1)


def _fresh_demo_folder() -> Path:
    """The demo's own folder under the user's cache, emptied."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "fullrank" / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def print_comparison(result: TrainResult) -> None:
    """The model beside the baselines, on the split that chose it."""
    if not result.table:
        return
    first = result.table[0]
    title = f"{result.path.name} on {first.queries:,} queries of {first.split}"
    table = Table(title=escape(title), title_style="")
    table.add_column("system")
    for measure in COMPARED:
        table.add_column(measure, justify="right")
    for row in result.table:
        found = (row.measures[measure] for measure in COMPARED)
        table.add_row(
            escape(row.system), *(f"{item.mean:.3f} ± {item.standard_error:.3f}" for item in found)
        )
    Console().print(table)
