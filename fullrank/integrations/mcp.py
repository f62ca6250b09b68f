"""``fullrank mcp``: a bundle or a service as tools of an agent, over the Model Context Protocol."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fullrank import __version__
from fullrank.errors import FullrankError, needs

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from fullrank.integrations.source import Source

MAX_HITS = 50


def server(source: Source, *, name: str = "fullrank") -> MCPServer:
    """Make the server; `run()` serves it over stdin and stdout. The agent is told why a tool failed."""
    from mcp.server import MCPServer

    made: MCPServer = MCPServer(
        name,
        version=__version__,
        instructions="Search documents, read one by its id, complete what somebody types.",
    )

    @made.tool()
    def search(
        query: str, limit: int = 10, filter: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Find the documents that answer a query best.

        Args:
            query: A few words or a question.
            limit: How many documents, 1 to 50.
            filter: Conditions on fields, e.g. {"section": "net", "price": {"lte": 20}}.
        """
        with _telling():
            found = source.search(query, min(max(limit, 1), MAX_HITS), filter)
        return [{"id": hit.id, "score": hit.score, "fields": hit.fields} for hit in found]

    @made.tool()
    def get_document(id: str) -> dict[str, Any]:
        """Return all fields of the document with this id."""
        with _telling():
            return source.document(id)

    @made.tool()
    def complete(prefix: str, limit: int = 8) -> list[str]:
        """Complete the beginning of a query."""
        with _telling():
            return source.complete(prefix, min(max(limit, 1), MAX_HITS))

    return made


@contextmanager
def _telling() -> Iterator[None]:
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        yield
    except FullrankError as error:
        raise ToolError(str(error)) from error


def mcp(
    at: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE|URL", help="A bundle's folder, BUNDLES/NAME, or a service's address."
        ),
    ],
    key: Annotated[
        str | None, typer.Option(help="API key of the service.", envvar="FULLRANK_KEY")
    ] = None,
) -> None:
    """Serve a bundle or a service to an agent, over stdin and stdout."""
    from fullrank.integrations.source import Source

    logging.basicConfig(level=logging.WARNING)  # to stderr: stdout belongs to the protocol
    with needs("mcp"):
        made = server(Source(at, key=key))
    made.run()
