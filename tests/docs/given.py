"""What pages find in their folder before the first block: `<!-- given: NAME -->` names a function of this file."""

from __future__ import annotations

import csv
import fcntl
import random
import shutil
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

from tests.api.support import keys_beside
from tests.docs.pages import ROOT
from tests.docs.shell import Shell

# What a product is called on its page, and what people type.
KINDS = {
    "rain boots": ("Shoes > Boots", ["wellies", "gumboots", "waterproof footwear"]),
    "running shoes": ("Shoes > Running", ["trainers", "sneakers", "jogging footwear"]),
    "wool jumper": ("Clothing > Knitwear", ["pullover", "warm sweater", "knitwear"]),
    "rain jacket": ("Clothing > Jackets", ["anorak", "waterproof coat", "mac"]),
}
BRANDS = ["Acme", "Zenith", "Polar"]
COLOURS = ["red", "navy", "green"]


def shop(shell: Shell, made: Path) -> None:
    """products.csv, clicks.csv, the collection shop/ made of them, bundles/ with a bundle `shop`, and a service."""
    _copy_shop(shell, made)
    shell.run('export KEY="$SHOP_KEY" FULLRANK_ANONYMOUS=search,events FULLRANK_KEYS="$SHOP_KEYS"')
    shell.run("fullrank serve --bundles bundles")


def files(shell: Shell, made: Path) -> None:
    """Only the files of `shop`, without a service and without a key."""
    _copy_shop(shell, made)


def tables(shell: Shell, made: Path) -> None:
    """Only products.csv and clicks.csv."""
    for name in ("products.csv", "clicks.csv"):
        shutil.copy(made / name, shell.folder)


def repository(shell: Shell, made: Path) -> None:
    """Copies of the folders of the repository that a deployment needs."""
    for name in ("deploy", "docker", "examples", "requirements"):
        shutil.copytree(ROOT / name, shell.folder / name)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, shell.folder)


GIVEN: dict[str, Callable[[Shell, Path], None]] = {
    "shop": shop,
    "files": files,
    "tables": tables,
    "repository": repository,
}


def products() -> list[dict[str, str]]:
    """Return the rows of products.csv."""
    first = date(2026, 1, 5)
    return [
        {
            "sku": f"{kind.replace(' ', '-')}-{number + 1}",
            "name": f"{brand} {colour} {kind}",
            "description": f"{kind.capitalize()} in {colour} by {brand}, sizes {36 + number} to {42 + number}.",
            "brand": brand,
            "colour": colour,
            "category": category,
            "price": f"{19.9 + 13 * number + 5 * place:.2f}",
            "stars": f"{2 + (number * 3 + place) % 4}",
            "in_stock": "true" if (number + place) % 4 else "false",
            "added": str(first + timedelta(days=9 * (9 * place + number))),
        }
        for place, (kind, (category, _)) in enumerate(KINDS.items())
        for number, (brand, colour) in enumerate((b, c) for b in BRANDS for c in COLOURS)
    ]


def clicks(count: int = 900) -> list[dict[str, str]]:
    """Return the rows of clicks.csv: what people typed and clicked; most of them name no word of the product."""
    draw = random.Random(1)
    rows = []
    for _ in range(count):
        kind = draw.choice([*KINDS])
        brand, word = draw.choice(BRANDS), draw.choice(KINDS[kind][1])
        clicked = [p for p in products() if p["brand"] == brand and kind in p["name"]]
        query = draw.choice([word, f"{brand.lower()} {word}"])
        rows.append({"query": query, "sku": draw.choice(clicked)["sku"]})
    return rows


def make_shop(shell: Shell) -> None:
    """Import and train the shop in the folder of a shell; without a time limit, each run makes the same model."""
    for name, rows in (("products", products()), ("clicks", clicks())):
        with (shell.folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
    shell.run("fullrank import products.csv shop --clicks clicks.csv")
    shell.run("fullrank train shop --out bundles --name shop --recipe best --threads 1")


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Make a folder once for all workers of a test run."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            new = folder.with_suffix(".new")
            new.mkdir()
            make(new)
            new.rename(folder)
    return folder


def _copy_shop(shell: Shell, made: Path) -> None:
    shutil.copytree(made, shell.folder, dirs_exist_ok=True)
    shell.environment["SHOP_KEYS"] = str(keys_beside(shell.folder))
