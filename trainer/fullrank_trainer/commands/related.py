"""``fullrank related``."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank.cli.arguments import CollectionPath, Json
from fullrank.cli.commands import needs
from fullrank.cli.output import print_json
from fullrank.progress import Reporter


class Context(StrEnum):
    """Where two words must occur to count as near."""

    DOCUMENT = "document"
    SENTENCE = "sentence"


def related(
    collection: CollectionPath,
    terms: Annotated[
        list[str], typer.Argument(metavar="WORD...", help="Words, and 2-grams in quotes.")
    ],
    top: Annotated[int, typer.Option(help="Neighbours of each.", min=1, max=1000)] = 5,
    frequent: Annotated[
        int, typer.Option(help="Search only so many of the most frequent words.", min=1)
    ] = 30_000,
    context: Annotated[
        Context, typer.Option(help="Count words as near in the same document, or sentence.")
    ] = Context.DOCUMENT,
    json: Json = False,
) -> None:
    """Show the frequent words nearest to a word or 2-gram, with their DICE coefficients."""
    with needs("trainer"):
        from fullrank_trainer.collection import read_collection
        from fullrank_trainer.features.related import related as find_related

    read = read_collection(collection)
    with Reporter(as_json=json) as reporter:
        found = find_related(
            read,
            terms,
            top=top,
            frequent_words=frequent,
            context=context.value,
            processes=len(os.sched_getaffinity(0)),
            reporter=reporter,
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
