"""``fullrank recipes``."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank.cli.arguments import Json
from fullrank.cli.output import print_json
from fullrank.errors import needs


def recipes(json: Json = False) -> None:
    """List the recipes, a line each."""
    with needs("trainer"):
        from fullrank_trainer.recipes.recipe import load_recipe, recipe_names

    found = [
        {"recipe": r.name, "system": r.system, "paper": r.paper, "about": r.about}
        for r in map(load_recipe, recipe_names())
    ]
    if json:
        print_json(found)
        return
    table = Table(box=None, pad_edge=False)
    longest = max((len(line["recipe"]) for line in found), default=0)
    table.add_column("recipe", no_wrap=True, min_width=longest)
    table.add_column("about", no_wrap=True, overflow="ellipsis")
    for line in found:
        table.add_row(escape(line["recipe"]), escape(line["about"]))
    Console(highlight=False).print(table)
    typer.echo("With papers, in full: --json")
