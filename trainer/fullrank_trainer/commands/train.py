"""``fullrank train``."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank.cli.arguments import CollectionPath, ExportedFrom, Json, Strict
from fullrank.cli.commands import FLEET, load
from fullrank.cli.output import print_json
from fullrank.errors import FullrankError, RecipeError, needs
from fullrank.progress import Reporter
from fullrank_trainer.threads import let_threads_sleep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullrank_trainer.train import TrainResult
    from fullrank_trainer.training.fitted import ResultRow


COMPARED = ("map", "mrr", "ndcg@10")
"""Measures of the table that train prints; --json and the model card have all."""
COLUMNS = {
    "known": "later clicks on queries of training",
    "new": "queries that this comparison did not learn",
    "cold": "queries that ask for documents of which this comparison learned no click or link",
    "typed": "titles, headings, descriptions, text and anchors of documents, as people type them; "
    "the other rows ask with whole documents, as similar and match do",
}
"""What the splits of the table are."""


def train(
    collection: CollectionPath,
    out: Annotated[
        Path, typer.Option("--out", metavar="BUNDLES", help="Folder of bundles to write into.")
    ],
    name: Annotated[str, typer.Option(help="Name of the model.")],
    recipe: Annotated[
        str | None,
        typer.Option(help="Name or TOML file of a recipe; default: auto, or that of --from."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="Time limit of the whole command, without compiling: 2m, 10m. Only fits are cut short; the rest "
            "takes about half a minute for 30,000 queries. Default: 150s for the fits; --set auto.seconds=0 removes "
            "that limit.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Memory limit: 500M, 4G. If it does not suffice, batches are smaller, or training is refused.",
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Start at these word vectors: .vec or .txt, plain or .gz, or model.safetensors.",
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="BUNDLE",
            help="Continue from the weights of this bundle, with its recipe, for a few epochs.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**63 - 1)] = 1,
    threads: Annotated[
        int | None, typer.Option(help="Threads to train on; default: all cores.", min=1)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run of the same name.")
    ] = False,
    fields: Annotated[
        str | None,
        typer.Option(
            "--fields",
            metavar="NAME,…",
            help="Text fields to search, in this order; the others are only stored.",
        ),
    ] = None,
    rerank: Annotated[
        bool | None,
        typer.Option(
            help="Also train a second stage that reorders the first 100 hits; default: if it may help.",
        ),
    ] = None,
    exported_from: ExportedFrom = None,
    strict: Strict = False,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Count words and train on this Ray cluster: auto, HOST:PORT, or local for one on this machine.",
        ),
    ] = None,
    slices: Annotated[
        int | None,
        typer.Option(
            "--slices",
            help="With --ray: slices of the training queries; default: 1. The model depends on their number, "
            "not on the machines.",
            min=1,
            max=4096,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", help="With --ray: rounds in each epoch; default: 1.", min=1, max=10_000
        ),
    ] = None,
    scratch: Annotated[
        str | None,
        typer.Option(
            "--scratch",
            metavar="ADDRESS",
            help="With --ray: folder that every node reads and writes, such as s3://…; default: in BUNDLES.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train a model on a collection and write it as a bundle."""
    let_threads_sleep()
    from fullrank.bundle.catalog import resolve

    with needs("trainer"):
        from fullrank_trainer.plan import parse_size
        from fullrank_trainer.train import train as train_model
        from fullrank_trainer.training.memory import map_large_blocks
    map_large_blocks()
    if rerank:
        with needs("rerank"):
            import fullrank_trainer.rerank.boosting  # noqa: F401

    if ray is not None:
        train_model = partial(
            load("train", FLEET),
            address=ray,
            slices=slices or 1,
            rounds=rounds,
            scratch=scratch,
        )
    elif (slices, rounds, scratch) != (None, None, None):
        raise FullrankError("--slices, --rounds and --scratch need --ray, for example --ray local")
    result = train_model(
        collection,
        out,
        name,
        recipe=recipe,
        overrides=[
            *(set_ or []),
            *([] if init is None else [f"train.vectors={init}"]),
        ],
        start=None if start is None else resolve(start),
        seed=seed,
        threads=threads,
        resume=resume,
        rerank=rerank,
        exported_from=None if exported_from is None else resolve(exported_from),
        strict=strict,
        fields=None if fields is None else [*filter(None, map(str.strip, fields.split(",")))],
        seconds=None if time is None else seconds_of(time),
        memory=None if memory is None else parse_size(memory),
        reporter=Reporter(as_json=json),
    )
    if json:
        print_json(result.as_dict())
        return
    print_comparison(result)
    Console(highlight=False).print(
        f"{escape(str(result.path))} in {result.seconds:.0f} s", soft_wrap=True
    )


def seconds_of(text: str) -> int:
    """Return the seconds of a time such as 30s, 2m or 1h.

    Raises:
        RecipeError: the text is no time above zero.

    Example:
        >>> seconds_of("2m")
        120
    """
    found = re.fullmatch(r"([0-9]{1,6})([smh]?)", text.strip())
    if found is None or not int(found[1]):
        raise RecipeError(f"--time {text!r} is no time; write 30s, 2m or 1h")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "": 1}[found[2]]


def print_comparison(result: TrainResult) -> None:
    """Print the measures of the model and the baselines on the split that chose the model."""
    if not result.table:
        return
    kinds = [row for row in result.table if row.split.startswith("typed ")]
    rows = [row for row in result.table if row not in kinds]
    counts = {row.split: row.queries for row in rows}
    splits = ", ".join(f"{count:,} queries of {split}" for split, count in counts.items())
    table = Table(title=escape(f"{result.path.name} on {splits}"), title_style="")
    table.add_column("system")
    table.add_column("split")
    for measure in COMPARED:
        table.add_column(measure, justify="right")
    for row in rows:
        found = (row.measures[measure] for measure in COMPARED)
        table.add_row(
            escape(row.system),
            escape(row.split),
            *(f"{item.mean:.3f} ± {item.error_text(3)}" for item in found),
        )
    Console().print(table)
    if kinds:
        _print_kinds(kinds)
    for split, meaning in COLUMNS.items():
        if split in counts:
            Console(highlight=False).print(f"{split}: {meaning}", soft_wrap=True)


def _print_kinds(rows: Sequence[ResultRow]) -> None:
    """Print the MRR of each kind of typed queries, a system a row."""
    table = Table(title="mrr of typed queries", title_style="")
    table.add_column("system")
    for kind, count in {row.split.removeprefix("typed "): row.queries for row in rows}.items():
        table.add_column(f"{kind} ({count:,})", justify="right")
    for system in dict.fromkeys(row.system for row in rows):
        found = (row.measures["mrr"].mean for row in rows if row.system == system)
        table.add_row(escape(system), *(f"{mean:.3f}" for mean in found))
    Console().print(table)
