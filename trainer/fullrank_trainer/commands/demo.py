"""``fullrank demo``."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack
from importlib import import_module
from logging import ERROR, getLogger
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fullrank.cli.commands import load
from fullrank.errors import BundleError, FullrankError
from fullrank.progress import Reporter
from fullrank.storage.files import locked
from fullrank_trainer.commands.train import print_comparison
from fullrank_trainer.threads import let_threads_sleep
from fullrank_trainer.workers import Worker

if TYPE_CHECKING:
    from fullrank_trainer.recipes.recipe import Recipe

_HOST = "127.0.0.1"
_BASELINE, _LEARNED = "bm25", "demo"

# Each of two processes compiles its half of the kernels, and loads the other half from disk.
_FIRST_KERNELS = ("records", "words", "tokens", "joined", "encode")
_OTHER_KERNELS = ("fast", "scoring")


def demo(
    port: Annotated[int, typer.Option(help="Port of the search page.", min=1, max=65535)] = 8000,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Where to keep collection and bundles."),
    ] = None,
    seconds: Annotated[
        int, typer.Option(help="Time budget of the training, in seconds.", min=5)
    ] = 60,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Train only.")] = False,
) -> None:
    """Train on the docstrings of the installed numpy and scipy, then search them in a browser.

    Models that an earlier demo trained on the same docstrings are used again.
    """
    let_threads_sleep()
    if not no_serve:
        # First of all: when the port is taken, nothing has been trained or written yet.
        _require_free_port(port)
        serve = load("serve")
    folder = _cache_folder() if out is None else out
    bundles = folder / "bundles"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):  # one demo at a time; another waits here
        _train_missing(folder / "collection", bundles, seconds)
    if no_serve:
        typer.echo(str(bundles))
        return
    os.environ.setdefault("FULLRANK_DEFAULT_MODEL", "demo")
    _note(f"Open http://{_HOST}:{port}/ in a browser; Ctrl-C ends.")
    serve(bundles, _HOST, port, 1)


def _train_missing(collection: Path, bundles: Path, seconds: int) -> None:
    """Write the collection, and train each model that has no intact bundle of it yet.

    The first demo trains the baseline in a process of its own.
    """
    with ExitStack() as stack:
        beside: Worker | None = None
        if not (bundles / _BASELINE).exists():
            beside = stack.enter_context(Worker(f"{__name__}:train_baseline", "trains bm25"))
        for module in _FIRST_KERNELS:
            import_module(f"fullrank.kernels.{module}")
        from fullrank_trainer.collection.demo import write_demo_collection

        write_demo_collection(collection)
        _note(f"The docstrings of numpy and scipy are a collection in {escape(str(collection))}")
        if beside is not None:
            beside.send((collection, bundles))
        _train(_LEARNED, "auto", [f"auto.seconds={seconds}"], collection, bundles, Reporter())
        if beside is not None:
            beside.receive()
        else:
            _train(_BASELINE, _BASELINE, [], collection, bundles, Reporter())


def train_baseline(starter: Connection) -> None:
    """Train the baseline in a worker process, on the collection and into the bundles that the starter sends."""
    getLogger("fullrank").setLevel(ERROR)  # the starter says that kernels are compiled
    for module in _OTHER_KERNELS:
        import_module(f"fullrank.kernels.{module}")
    collection, bundles = starter.recv()
    try:
        _train(_BASELINE, _BASELINE, [], collection, bundles, Reporter(quiet=True), threads=1)
    except FullrankError as error:
        starter.send(error)
    else:
        starter.send(None)


def _train(
    name: str,
    recipe: str,
    overrides: list[str],
    collection: Path,
    bundles: Path,
    reporter: Reporter,
    threads: int | None = None,
) -> None:
    """Train a model, unless it has an intact bundle of the collection."""
    from fullrank_trainer.recipes.recipe import load_recipe
    from fullrank_trainer.train import train

    if _is_trained(bundles, name, collection, load_recipe(recipe).override(overrides)):
        _note(f"{name}: trained before on the same collection; used again")
        return
    result = train(
        collection,
        bundles,
        name,
        recipe=recipe,
        overrides=overrides,
        threads=threads,
        reporter=reporter,
    )
    if name == _LEARNED:
        print_comparison(result)


def _is_trained(bundles: Path, name: str, collection: Path, recipe: Recipe) -> bool:
    """Check whether the newest bundle of a name is intact and comes from this collection and recipe."""
    from fullrank.bundle import find_bundle, read_manifest, verify_bundle
    from fullrank_trainer.collection import read_collection

    try:
        path = find_bundle(bundles, name)
        card = read_manifest(path).card
        made, asked = card["recipe"], json.loads(json.dumps(recipe.as_dict()))
        # The other sections hold what the best trial of a search chose.
        same = all(made[key] == asked[key] for key in ("name", "system", "auto"))
        read = card["collection"]["fingerprint"]
        if not same or read != read_collection(collection).fingerprint:
            return False
        verify_bundle(path)
    except (BundleError, KeyError, TypeError):
        return False
    return True


def _note(text: str) -> None:
    Console(stderr=True, highlight=False).print(text)


def _require_free_port(port: int) -> None:
    with socket.socket() as probe:
        # As servers do: a port whose last connections are still closing counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
            probe.listen()
        except OSError as error:
            raise FullrankError(
                f"port {port}: {error.strerror}; stop what listens there or choose another with --port"
            ) from error


def _cache_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fullrank" / "demo"
