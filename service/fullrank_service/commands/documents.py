"""``fullrank documents``: list and delete live documents in their log, without the service."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fullrank.cli.arguments import BundlesOption, Json
from fullrank.cli.output import print_json
from fullrank.errors import FullrankError, needs

if TYPE_CHECKING:
    from fullrank_service.documents.log import Log

DocumentsOption = Annotated[
    Path | None,
    typer.Option(
        "--documents",
        metavar="FILE",
        help="Log of live documents; default: FULLRANK_DOCUMENTS_URL, FULLRANK_DOCUMENTS, else documents.sqlite "
        "in BUNDLES.",
    ),
]

app = typer.Typer(
    help="List or delete live documents in their log, also while no service runs.",
    no_args_is_help=True,
)


def _open(bundles: Path, documents: Path | None) -> Log:
    with needs("service"):
        from fullrank_service.base.settings import Settings
        from fullrank_service.documents.sqlitelog import LogPlace, place_of

    place = LogPlace.of_file(documents) if documents else place_of(Settings(), bundles)
    log = place.existing()
    if log is None:
        raise FullrankError(f"{place.name}: no live document was ever written")
    return log


@app.command("list")
def list_(
    bundles: BundlesOption = Path("bundles"),
    documents: DocumentsOption = None,
    limit: Annotated[int, typer.Option(help="Most documents to list.", min=1)] = 20,
    json: Json = False,
) -> None:
    """List the live documents that take the most memory, with operation, bytes, model and id."""
    with closing(_open(bundles, documents)) as log:
        found = log.largest(limit)
    if json:
        print_json([row._asdict() for row in found])
        return
    for row in found:
        typer.echo(f"{row.seq:>10} {row.bytes:>12}  {row.collection}  {row.id}")


@app.command()
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")],
    id: Annotated[str, typer.Argument(metavar="ID", help="ID of the document.")],
    bundles: BundlesOption = Path("bundles"),
    documents: DocumentsOption = None,
) -> None:
    """Delete a document, live or in a bundle, as DELETE /v1/documents/ID does.

    No service replays earlier writes of the document.
    """
    with closing(_open(bundles, documents)) as log:
        seq = log.delete(name, id)
    typer.echo(f"operation {seq} deletes {id}")
