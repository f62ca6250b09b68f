"""What the commands share: options, how results are printed, which bundle a path means."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from fullrank.errors import BundleNotFound, FullrankError

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
        help="The bundle that the corpus was exported from, whose live documents it has.",
    ),
]
BundlesRoot = Annotated[
    Path, typer.Argument(metavar="BUNDLES", help="Folder of bundles, or one bundle.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turns a missing optional dependency into advice."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "fullrank":
            raise  # not an extra: this installation is broken
        message = f"needs {error.name}; install it with: pip install 'fullrank[{extra}]'"
        raise FullrankError(message) from error


def resolve(path: Path) -> Path:
    """The bundle that a path means, absolute: a version's folder, or the newest version of a name.

    Links are not followed: whose folder a bundle is in decides who serves it, and what it is called, not where its
    files lie. Raises BundleNotFound saying what was looked for.
    """
    from fullrank.bundle.catalog import find_bundle
    from fullrank.bundle.manifest import MANIFEST

    path = absolute(path)
    if (path / MANIFEST).is_file():
        return path
    if not path.is_dir() or any(path.glob(f"*/{MANIFEST}")):
        return find_bundle(path.parent, path.name)
    names = sorted({folder.parent.name for folder in bundle_folders(path)})
    if len(names) == 1:
        return find_bundle(path, names[0])
    raise BundleNotFound(f"{path}: holds several models; add one of: {', '.join(names)}")


def absolute(path: Path) -> Path:
    """Without links followed."""
    return Path(os.path.abspath(path))


def bundle_folders(path: Path) -> list[Path]:
    """The path where it is a bundle, else every version folder in it, damaged ones too."""
    from fullrank.bundle.manifest import MANIFEST

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


def flat(item: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in item.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, str) else json(value).decode()


def json(value: object) -> bytes:
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError:
        # Integers beyond 64 bits in stored fields, and paths that are no UTF-8.
        return dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_json(value: object) -> None:
    sys.stdout.write(json(value).decode() + "\n")
