"""``fullrank events``: the log of what people were shown and clicked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fullrank.cli.arguments import Json, log_places
from fullrank.cli.output import print_json
from fullrank.errors import FullrankError
from fullrank.events.log import DAYS, MEGABYTES, SHRINK_TO
from fullrank.progress import Reporter, Stage

if TYPE_CHECKING:
    from fullrank.events.log import EventLog
    from fullrank_trainer.clicks import Votes

T = TypeVar("T")

app = typer.Typer(
    help="Look at the log of clicks, learn from it, fill it, and keep it small.",
    no_args_is_help=True,
)

LogFolder = Annotated[
    Path,
    typer.Argument(
        metavar="LOG", help="Folder of the log of events, or the folder of bundles it lies in."
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        help="Key of the pseudonyms; default: that of the service, .events.key beside the log.",
        envvar="FULLRANK_EVENTS_KEY",
    ),
]
Megabytes = Annotated[
    int,
    typer.Option(
        "--mb",
        help="Most megabytes of the log; the oldest records beyond them are removed.",
        min=1,
        envvar="FULLRANK_EVENTS_MB",
    ),
]


class RuleName(StrEnum):
    """How clicks become weights."""

    MIXTURE = "mixture"
    NAIVE = "naive"


class Form(StrEnum):
    """Formats of click logs."""

    AUTO = "auto"
    UBI = "ubi"
    ALGOLIA = "algolia"
    TABLE = "table"


@app.command()
def status(log: LogFolder, json: Json = False) -> None:
    """Show what is in the log, what could be learned from it, and why clicks were left out."""
    from fullrank.events.log import EVENTS, LISTS
    from fullrank.events.segments import list_segments, size_of
    from fullrank_trainer.clicks import fit_propensities

    folder = _existing(log)
    votes, found = _join(folder)
    segments = sum(len(list_segments(folder, kind)) for kind in (LISTS, EVENTS))
    shown: dict[str, Any] = {
        "log": folder,
        "bytes": size_of(folder),
        "segments": segments,
        **found,
        "people": len(set(votes.person.tolist())),
        "queries": len(set(votes.query.tolist())),
        **votes.counts,
        **fit_propensities(votes.coins).as_dict(),
    }
    _print(shown, json)


@app.command("export")
def export_(
    log: LogFolder,
    corpus: Annotated[
        Path,
        typer.Argument(metavar="CORPUS", help="Folder with the corpus.jsonl of the documents."),
    ],
    collection: Annotated[
        Path,
        typer.Argument(metavar="COLLECTION", help="Folder to write; it must not exist."),
    ],
    weights: Annotated[
        RuleName, typer.Option("--weights", help="How clicks become weights.")
    ] = RuleName.MIXTURE,
    recent: Annotated[
        float,
        typer.Option(
            "--recent",
            help="Share of the clicks, the newest, that become the split `recent`.",
            min=0,
            max=1,
        ),
    ] = 0.2,
    position_1: Annotated[
        bool,
        typer.Option(
            "--position-1", help="Learn from clicks on the first place only, as for advertisements."
        ),
    ] = False,
    dwell: Annotated[
        bool,
        typer.Option(
            "--dwell",
            help="Count a click of less than 30 s in proportion to the time that people stayed.",
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Use only answers of this model.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a collection from what people clicked, to train on."""
    from fullrank.errors import require_new
    from fullrank_trainer.clicks import fit_propensities, rank_by_text, write_collection
    from fullrank_trainer.clicks.export import split_votes

    votes, _ = _join(_existing(log), model)
    propensities = fit_propensities(votes.coins)
    if weights is not RuleName.NAIVE:
        require_new(collection)
        learned = votes.take(~split_votes(votes, recent)["recent"])
        with Reporter() as report:
            votes = rank_by_text(
                votes, propensities, corpus, collection.parent, report, learned=learned
            )
    counts = write_collection(
        votes,
        propensities,
        corpus,
        collection,
        rule=weights.value,
        recent_share=recent,
        position_1=position_1,
        dwell=dwell,
    )
    _print({"collection": collection, **counts, **propensities.as_dict()}, json)


@app.command("import")
def import_(
    log: LogFolder,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Click logs.")],
    form: Annotated[
        Form, typer.Option("--format", help="Format of the files; auto: by their content.")
    ] = Form.AUTO,
    first_position: Annotated[
        int, typer.Option(help="Position of the first document in tables.", min=0, max=1)
    ] = 1,
    megabytes: Megabytes = MEGABYTES,
    key: KeyFile = None,
    json: Json = False,
) -> None:
    """Read click logs of other programs into the log: UBI, Algolia's events, CSV and TSV.

    The service keeps them for FULLRANK_EVENTS_DAYS from now on, however old they are.
    """
    from fullrank.events.log import Pseudonyms, read_key
    from fullrank_trainer.clicks.imports import format_of, read_records, store

    # Everything that can be refused at once is refused before anything is written.
    forms = [format_of(path) if form is Form.AUTO else form.value for path in files]
    folder, key = log_places(log, key)
    # Under a second key, the people of the records that are there and the new ones would be others.
    if not key.is_file() and any(folder.glob("*.jsonl*")):
        raise _no_key(key)
    people = Pseudonyms(read_key(key))
    refused: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path, name in zip(files, forms, strict=True):
        with Reporter() as report, report.stage(f"read {path.name}") as stage:
            now = time.time()
            records = read_records(path, name, now, refused, first_position)
            most = (megabytes << 20) * SHRINK_TO
            counts.update(store(_counted(records, stage), folder, people, now, most))
    _print({"log": folder, **counts, "refused": dict(refused)}, json)


@app.command()
def forget(
    log: LogFolder,
    users: Annotated[
        list[str],
        typer.Argument(metavar="USER...", help="Ids of people, as clients sent them."),
    ],
    key: KeyFile = None,
    json: Json = False,
) -> None:
    """Hide the events of people from every reader; `fullrank events compact` removes them from the disk."""
    from fullrank.events.log import Pseudonyms, erase, read_key
    from fullrank.events.records import MAX_AHEAD_S

    folder, key = _existing(log), log_places(log, key).key
    if not key.is_file():
        raise _no_key(key)
    people = Pseudonyms(read_key(key))
    # Clocks of clients may be ahead.
    erase(folder, map(people.of, users), time.time() + MAX_AHEAD_S)
    _print({"log": folder, "forgotten": len(users)}, json)


@app.command()
def compact(
    log: LogFolder,
    days: Annotated[
        int,
        typer.Option(help="Remove events that are older.", min=1, envvar="FULLRANK_EVENTS_DAYS"),
    ] = DAYS,
    megabytes: Megabytes = MEGABYTES,
    json: Json = False,
) -> None:
    """Remove events from the disk: old ones, the oldest above the size limit, and those of erased people."""
    from fullrank.events.compaction import compact as compact_log

    folder = _existing(log)
    with Reporter() as report, report.callback() as progress:
        done = compact_log(folder, days, megabytes << 20, time.time(), progress)
    _print({"log": folder, **asdict(done)}, json)


def _existing(log: Path) -> Path:
    """Return the folder of a log, given itself or the folder of bundles."""
    folder = log_places(log).folder
    if not folder.is_dir():
        raise FullrankError(f"{folder}: no such folder")
    return folder


def _no_key(file: Path) -> FullrankError:
    return FullrankError(f"{file}: no such key; name the key of this log with --key")


def _join(folder: Path, model: str | None = None) -> tuple[Votes, dict[str, Any]]:
    from fullrank.events.log import EventLog
    from fullrank_trainer.clicks import join

    log = EventLog(folder)
    found: dict[str, Any] = {"events": 0, "actions": Counter(), "first": None, "last": None}
    with Reporter() as report, report.stage("read the log") as stage:
        votes = join(_counted(log.lists(), stage), _described(log, found, stage), model)
    found["actions"] = dict(found["actions"])
    return votes, found


def _described(log: EventLog, found: dict[str, Any], stage: Stage) -> Iterator[Any]:
    for event in _counted(log.events(), stage):
        found["events"] += 1
        found["actions"][event.action] += 1
        found["first"] = min(found["first"] or event.at, event.at)
        found["last"] = max(found["last"] or event.at, event.at)
        yield event


def _counted(items: Iterable[T], stage: Stage) -> Iterator[T]:
    for item in items:
        stage.advance(1)
        yield item


def _print(shown: dict[str, Any], json: bool) -> None:
    if json:
        print_json(shown)
        return
    for name, value in shown.items():
        if isinstance(value, list):
            value = ", ".join(f"{x:.4g}" for x in value)
        elif isinstance(value, dict):
            value = ", ".join(f"{k} {v:,}" for k, v in value.items()) or "-"
        elif name in ("first", "last") and value is not None:
            value = datetime.fromtimestamp(value, UTC).isoformat(" ", "seconds")
        elif isinstance(value, float):
            value = f"{value:.4g}"
        elif isinstance(value, int):
            value = f"{value:,}"
        typer.echo(f"{name.replace('_', ' '):28} {'-' if value is None else value}")
