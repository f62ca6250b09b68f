"""``fullrank backup`` and ``fullrank restore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fullrank.cli.arguments import BundlesFolder, Json
from fullrank.cli.output import print_json
from fullrank.errors import needs
from fullrank.progress import Reporter

if TYPE_CHECKING:
    from fullrank_service.backup import Contents
    from fullrank_service.base.settings import Settings


def backup(
    bundles: BundlesFolder,
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", help="The file to write; it must not exist.")
    ],
    json: Json = False,
) -> None:
    """Write everything that a service owns into one archive, while it runs: bundles, live documents, rules, events,
    keys.

    Run it with the environment of the service, because settings may move some of these files. Live documents in
    PostgreSQL are not in the archive: dump that database first.
    """
    with needs("service"):
        from fullrank_service.backup import back_up
    settings = _settings(bundles)
    with Reporter(as_json=json) as report, report.callback() as progress:
        contents = back_up(settings, archive, progress)
    _print(archive, contents, "lacks", json)


def restore(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", help="What `fullrank backup` wrote.")
    ],
    bundles: Annotated[
        Path, typer.Argument(metavar="BUNDLES", help="A new or empty folder of bundles.")
    ],
    json: Json = False,
) -> None:
    """Verify an archive and restore it; if this is interrupted, run it again.

    Run it with the environment of the service, because settings may move some of the files.
    """
    with needs("service"):
        from fullrank_service.backup import restore as unpack
    settings = _settings(bundles)
    with Reporter(as_json=json) as report, report.callback() as progress:
        contents = unpack(archive, settings, progress)
    _print(bundles, contents, "expects", json)


def _settings(bundles: Path) -> Settings:
    from fullrank_service.process.run import read_settings

    return read_settings().model_copy(update={"bundles": bundles})


def _print(path: Path, contents: Contents, how: str, json: bool) -> None:
    if contents.database is not None:
        typer.echo(
            f"{path} {how} the live documents and rules of {contents.database}: "
            "pg_dump --schema=fullrank copies them; dump before a backup, so that no bundle is older than its log",
            err=True,
        )
    if json:
        about = contents.as_dict()
        files = about.pop("files")
        print_json(
            {**about, "files": len(files), "bytes": contents.bytes, "versions": contents.versions}
        )
        return
    typer.echo(
        f"{path}: {len(contents.versions)} versions, {len(contents.files)} files, {contents.bytes / 1e6:.1f} MB"
    )
