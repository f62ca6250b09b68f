"""The command line: the one place that puts trainer and service together.

Results go to stdout, diagnostics to stderr. Exit codes: 0 done, 1 a FullrankError (one line says
what), 2 wrong usage, 130 interrupted. Trainer and service are imported by the commands that need
them, so that each works where only its own extra is installed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fullrank.errors import BundleError, BundleNotFound, FullrankError

if TYPE_CHECKING:
    from fullrank.bundle import Bundle
    from trainer.train import TrainResult

app = typer.Typer(
    name="fullrank",
    help="Learned and exact matching in one score: train a ranker, measure it, serve it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bundles_app = typer.Typer(help="List, verify or show bundles.", no_args_is_help=True)
app.add_typer(bundles_app, name="bundles")

COMPARED = ("map", "mrr", "ndcg@10", "recall@100")
"""Measures of the table that train prints; --json and the model card have all."""

CollectionPath = Annotated[
    Path, typer.Argument(metavar="COLLECTION", help="Folder with corpus.jsonl and qrels/.")
]
BundlePath = Annotated[
    Path,
    typer.Argument(
        metavar="BUNDLE", help="A version's folder, or BUNDLES/NAME for its newest version."
    ),
]
BundlesRoot = Annotated[
    Path, typer.Argument(metavar="BUNDLES", help="Folder of bundles, or one bundle.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def main() -> NoReturn:
    """The console script: runs the command and exits with a code that means something."""
    try:
        app()
    except FullrankError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    sys.exit(0)


def _fail(message: str) -> NoReturn:
    typer.echo(f"fullrank: {' '.join(message.split())}", err=True)
    sys.exit(1)


@contextmanager
def _needs(extra: str) -> Iterator[None]:
    """Turns a missing optional dependency into advice."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "fullrank":
            raise  # not an extra: this installation is broken
        message = f"needs {error.name}; install it with: pip install 'fullrank[{extra}]'"
        raise FullrankError(message) from error


@app.command()
def train(
    collection: CollectionPath,
    out: Annotated[Path, typer.Option(help="Folder of bundles to write into.", metavar="BUNDLES")],
    name: Annotated[str, typer.Option(help="Name of the model.")],
    recipe: Annotated[str, typer.Option(help="Name or TOML file of a recipe.")] = "auto",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 1,
    threads: Annotated[
        int | None, typer.Option(help="Threads to train on; default: all cores.", min=1)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run of the same name.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a model on a collection and write it as a bundle."""
    result = _train(collection, out, name, recipe, set_ or [], seed, threads, resume)
    if json:
        _print_json(result.as_dict())
        return
    _print_comparison(result)
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
) -> TrainResult:
    with _needs("trainer"):
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
        reporter=Reporter(),
    )


@app.command()
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
    from fullrank.bundle import open_bundle

    with _needs("trainer"):
        from trainer.collection import read_collection
        from trainer.evaluate import evaluate as run_evaluation
        from trainer.progress import Reporter

    read = read_collection(collection)
    for remark in read.report.remarks():
        typer.echo(f"{collection}: {remark}", err=True)
    opened = open_bundle(_resolve(bundle))
    with Reporter() as reporter:
        found = run_evaluation(opened, read, split, exclude_split or (), run, progress=reporter)
    if json:
        _print_json({"bundle": opened.version, **found.as_dict()})
        return
    table = Table(title=f"{opened.version}, {split}: {found.queries:,} queries", title_style="")
    table.add_column("measure")
    table.add_column("mean", justify="right")
    table.add_column("± standard error", justify="right")
    for measure, value in found.measures.items():
        table.add_row(measure, f"{value.mean:.4f}", f"{value.standard_error:.4f}")
    Console().print(table)


@app.command()
def search(
    bundle: BundlePath,
    text: Annotated[str, typer.Argument(help="What to look for.")],
    limit: Annotated[int, typer.Option(help="Number of hits.", min=1, max=1000)] = 10,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the words that pulled each hit up.")
    ] = False,
    json: Json = False,
) -> None:
    """Search a bundle from the command line."""
    from fullrank.bundle import open_bundle

    opened = open_bundle(_resolve(bundle), verify=False)
    started = time.perf_counter()
    answer = _search(opened, text, limit, explain)
    answer["took_ms"] = round(1000 * (time.perf_counter() - started), 3)
    if json:
        _print_json(answer)
        return
    _print_hits(answer["hits"], explain)


def _print_hits(hits: Sequence[Mapping[str, Any]], explain: bool) -> None:
    table = Table(box=None, pad_edge=False)
    numbers = ("score", "learned", "exact", "bias")
    for heading in numbers:
        table.add_column(heading, justify="right")
    titles = [str(hit["fields"].get("title", "")) for hit in hits]
    titled = any(title not in ("", hit["id"]) for title, hit in zip(titles, hits, strict=True))
    for heading, shown in (("id", True), ("title", titled), ("words", explain)):
        if shown:
            table.add_column(heading, overflow="fold")
    for title, hit in zip(titles, hits, strict=True):
        cells = [hit["id"]]
        if titled:
            cells.append(title)
        if explain:
            pulls = ((word["word"], word["learned"] + word["exact"]) for word in hit["words"])
            cells.append(", ".join(f"{word} {pull:+.2f}" for word, pull in pulls))
        table.add_row(*(f"{hit[part]:.3f}" for part in numbers), *map(escape, cells))
    Console().print(table)


def _search(bundle: Bundle, text: str, limit: int, explain: bool) -> dict[str, Any]:
    """The answer to one query, as JSON values."""
    from fullrank.explain import explain as explain_hit

    query = bundle.model.encode_queries([text])
    ranking = bundle.retriever.search(query, limit)[0]
    terms = bundle.model.query_terms(text) if explain else []
    hits = []
    for place, row in enumerate(ranking.rows.tolist()):
        hit = {
            "id": bundle.documents.ids[row],
            "score": float(ranking.scores[place]),
            "learned": float(ranking.learned[place]),
            "exact": float(ranking.exact[place]),
            "bias": float(ranking.bias[place]),
            "fields": bundle.documents.fields(row),
        }
        if explain:
            found = explain_hit(terms, bundle.retriever, query, row)
            hit["words"] = [
                {"word": word.word, "learned": float(word.learned), "exact": float(word.exact)}
                for word in found.words
            ]
        hits.append(hit)
    return {
        "bundle": bundle.version,
        "query": text,
        "certified": bool(ranking.certified),
        "total": int(ranking.total),
        "hits": hits,
    }


@bundles_app.command("list")
def list_(root: BundlesRoot, json: Json = False) -> None:
    """List the bundles of a folder, newest first."""
    from fullrank.bundle import list_bundles

    found = list_bundles(root)
    rows = [
        {
            "name": info.name,
            "version": info.version,
            "created": info.created,
            "bytes": info.bytes,
            "path": str(info.path),
        }
        for info in found
    ]
    if json:
        _print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "version", "created"):
        table.add_column(heading, overflow="fold")
    table.add_column("MB", justify="right")
    for info in found:
        table.add_row(info.name, info.version, info.created, f"{info.bytes / 1e6:.1f}")
    Console().print(table)


@bundles_app.command()
def verify(root: BundlesRoot, json: Json = False) -> None:
    """Verify every bundle of a folder, or one: hashes, shapes, numbers, golden queries."""
    from fullrank.bundle import verify_bundle

    verdicts: list[dict[str, Any]] = []
    for path in _bundle_folders(root):
        try:
            verify_bundle(path)
        except BundleError as error:
            verdicts.append({"path": str(path), "ok": False, "error": str(error)})
        else:
            verdicts.append({"path": str(path), "ok": True, "error": None})
        if not json:
            typer.echo(f"{path}: {verdicts[-1]['error'] or 'ok'}")
    if json:
        _print_json(verdicts)
    failed = sum(not verdict["ok"] for verdict in verdicts)
    if failed:
        raise BundleError(f"{failed} of {len(verdicts)} bundles failed verification")


@bundles_app.command()
def show(bundle: BundlePath, json: Json = False) -> None:
    """Show the model card of a bundle."""
    from fullrank.bundle import read_manifest

    path = _resolve(bundle)
    manifest = read_manifest(path)
    shown = {
        "name": manifest.name,
        "version": manifest.version,
        "bundle_id": manifest.bundle_id,
        "created": manifest.created,
        "bytes": manifest.total_bytes,
        "path": str(path),
        "model": manifest.model,
        "card": manifest.card,
    }
    if json:
        _print_json(shown)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat(shown):
        table.add_row(escape(key), escape(value))
    Console().print(table)


@app.command()
def serve(
    bundles: Annotated[
        Path | None,
        typer.Option(metavar="BUNDLES", help="Folder of bundles; else FULLRANK_BUNDLES."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address; else FULLRANK_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; else FULLRANK_PORT.", min=0, max=65535)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; else FULLRANK_WORKERS.", min=1)
    ] = None,
) -> None:
    """Serve bundles over HTTP, with a search page at /."""
    with _needs("service"):
        from service.run import serve as run_service

    run_service(bundles, host, port, workers)


@app.command()
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
    with _needs("trainer"):
        from trainer.demo_corpus import write_demo_collection

    note = Console(stderr=True, highlight=False).print
    folder = out if out is not None else _fresh_demo_folder()
    collection = write_demo_collection(folder / "collection")
    note(f"The docstrings of numpy and scipy are a collection in {escape(str(collection))}")
    bundles = folder / "bundles"
    _train(collection, bundles, "bm25", "bm25", [], 1, None, False)
    budget = [f"auto.seconds={seconds}"]
    learned = _train(collection, bundles, "demo", "auto", budget, 1, None, False)
    _print_comparison(learned)
    if no_serve:
        typer.echo(str(bundles))
        return
    with _needs("service"):
        from service.run import serve as run_service

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


def _resolve(path: Path) -> Path:
    """The bundle that a path means: a version's folder, or the newest version of a name.

    Raises BundleNotFound saying what was looked for.
    """
    from fullrank.bundle import find_bundle
    from fullrank.manifest import MANIFEST

    if (path / MANIFEST).is_file():
        return path
    path = path.resolve()
    if not path.is_dir() or any(path.glob(f"*/{MANIFEST}")):
        return find_bundle(path.parent, path.name)
    names = sorted({folder.parent.name for folder in _bundle_folders(path)})
    if len(names) == 1:
        return find_bundle(path, names[0])
    raise BundleNotFound(f"{path}: holds several models; add one of: {', '.join(names)}")


def _bundle_folders(path: Path) -> list[Path]:
    """The path where it is a bundle, else every version folder in it, damaged ones too."""
    from fullrank.manifest import MANIFEST

    if (path / MANIFEST).is_file():
        return [path]
    if not path.is_dir():
        raise BundleNotFound(f"{path}: no such folder")
    pattern = "*" if any(path.glob(f"*/{MANIFEST}")) else "*/*"
    folders = [
        folder
        for folder in sorted(path.glob(pattern))
        if folder.is_dir() and not folder.name.startswith(".")
    ]
    if not folders:
        raise BundleNotFound(f"{path}: no bundles")
    return folders


def _flat(item: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in item.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, str) else _json(value).decode()


def _print_comparison(result: TrainResult) -> None:
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


def _json(value: object) -> bytes:
    return orjson.dumps(value, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _print_json(value: object) -> None:
    sys.stdout.write(_json(value).decode() + "\n")
