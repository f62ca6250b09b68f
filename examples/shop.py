"""A small shop that the examples share: products, and a log of what people clicked after a search."""

from __future__ import annotations

import csv
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from fullrank.progress import Reporter
from fullrank_trainer.train import train

# What a product is called on its page, and what people type.
KINDS = {
    "rain boots": ["wellies", "waterproof footwear", "gumboots"],
    "running shoes": ["trainers", "sneakers", "jogging footwear"],
    "wool jumper": ["warm sweater", "pullover", "knitwear"],
    "rain jacket": ["waterproof coat", "anorak", "mac"],
}
BRANDS = ["acme", "zenith", "polar"]


def products() -> list[dict[str, Any]]:
    """Return 60 products as lines of corpus.jsonl."""
    return [
        {"_id": f"{kind.replace(' ', '-')}-{i}", "title": f"{brand} {kind} {i}",
         "text": f"A {kind} in size {36 + i}.", "brand": brand, "price": 20 + 7 * i}
        for kind in KINDS for i, brand in enumerate(BRANDS * 5)
    ]  # fmt: skip


def write_click_log(path: Path, clicks: int = 2000) -> None:
    """Write a CSV of clicks: the query and the id of the product."""
    draw = random.Random(1)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["query", "product"])
        for _ in range(clicks):
            kind = draw.choice(list(KINDS))
            brand = draw.choice(BRANDS)
            clicked = [p for p in products() if p["brand"] == brand and kind in p["title"]]
            query = draw.choice([draw.choice(KINDS[kind]), f"{brand} {draw.choice(KINDS[kind])}"])
            writer.writerow([query, draw.choice(clicked)["_id"]])


def train_bm25(folder: Path, name: str = "shop") -> Path:
    """Write the corpus and a bundle that needs no clicks; return the folder of the version."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(product) + "\n" for product in products())
    (folder / "corpus.jsonl").write_text("".join(lines), "utf-8")
    quiet = Reporter(quiet=True)
    return train(folder, folder / "bundles", name, recipe="bm25", reporter=quiet).path


@contextmanager
def serving(bundles: Path, **settings: str) -> Iterator[httpx.Client]:
    """Run ``fullrank serve`` on a free port until the block ends; give a client for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "fullrank", "serve", "--bundles", str(bundles)]
    variables = {f"FULLRANK_{name.upper()}": value for name, value in settings.items()}
    quiet = {"FULLRANK_LOG_LEVEL": "warning", **variables}
    server = subprocess.Popen([*command, "--port", str(port)], env=os.environ | quiet)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            while not _is_ready(client):
                if server.poll() is not None:
                    raise RuntimeError(f"fullrank serve exited with {server.returncode}")
                time.sleep(0.1)
            yield client
    finally:
        server.terminate()
        server.wait(30)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
