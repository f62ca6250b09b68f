"""Arguments that several commands share, and which bundle folder a path means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fullrank.events.log import EventLog, Places

CollectionPath = Annotated[
    Path, typer.Argument(metavar="COLLECTION", help="Folder with corpus.jsonl and qrels/.")
]
BundlePath = Annotated[
    Path,
    typer.Argument(
        metavar="BUNDLE", help="A version's folder, or BUNDLES/NAME for its newest version."
    ),
]
ExportedFrom = Annotated[
    Path | None,
    typer.Option(
        "--exported-from",
        metavar="BUNDLE",
        help="The bundle that the corpus was exported from; its live documents are in the corpus.",
    ),
]
BundlesRoot = Annotated[
    Path, typer.Argument(metavar="BUNDLES", help="Folder of bundles, or one bundle.")
]
BundlesFolder = Annotated[Path, typer.Argument(metavar="BUNDLES", help="Folder of bundles.")]
BundlesOption = Annotated[
    Path,
    typer.Option(
        "--bundles", metavar="BUNDLES", help="Folder of bundles.", envvar="FULLRANK_BUNDLES"
    ),
]
EventsOption = Annotated[
    Path | None,
    typer.Option(
        "--events",
        metavar="FOLDER",
        help="Log of events; default: .events in BUNDLES, or beside FULLRANK_DOCUMENTS.",
        envvar="FULLRANK_EVENTS_FOLDER",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse judgements of unknown queries or documents; by default they are skipped.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def event_log(bundles: Path, events: Path | None) -> EventLog:
    """Return the log that --events names, by default that of a service of the folder of bundles."""
    from fullrank.events.log import EventLog

    return EventLog(event_places(bundles, events).folder)


def event_places(bundles: Path, events: Path | None, key: Path | None = None) -> Places:
    """Return where a service of a folder of bundles that has this environment keeps its log and its key."""
    from fullrank.events.log import places

    return places(bundles, _path_in("FULLRANK_DOCUMENTS"), events, key)


def log_places(path: Path, key: Path | None = None) -> Places:
    """Return the log and the key that a path means: a log, or a folder of bundles whose service keeps it."""
    from fullrank.bundle.catalog import absolute
    from fullrank.bundle.manifest import MANIFEST
    from fullrank.events.log import FOLDER, KEY, Places

    events = _path_in("FULLRANK_EVENTS_FOLDER")
    if (path / FOLDER).is_dir() or any(path.glob(f"*/*/{MANIFEST}")):
        return event_places(path, events, key)
    served = event_places(_path_in("FULLRANK_BUNDLES") or Path("bundles"), events, key)
    if path.resolve() == served.folder.resolve():
        return Places(path, served.key)
    return Places(path, key or absolute(path).with_name(KEY))


def _path_in(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None
