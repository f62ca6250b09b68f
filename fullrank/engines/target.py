"""Export a bundle to the engine that an address names.

qdrant:///FOLDER                          a shard of Qdrant Edge under FOLDER
qdrant://HOST[:PORT][/NAME]               a server of Qdrant, qdrant+https:// with TLS; QDRANT_API_KEY is its key
postgresql://[USER@]HOST/DB[?table=NAME]  a database with pgvector; any address of libpq
opensearch-bulk:FILE                      files for OpenSearch
vespa-feed:FILE                           files for Vespa
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from fullrank.bundle.bundle import Bundle
from fullrank.engines import opensearch, vespa
from fullrank.engines.postgresql import export_table
from fullrank.engines.qdrant import export_collection, export_shard
from fullrank.engines.source import Source
from fullrank.errors import ExportError, needs
from fullrank.progress import Reporter

QDRANT_PORT = 6333
FORMS = (
    "qdrant:///FOLDER, qdrant://HOST/NAME, postgresql://HOST/DB?table=NAME, opensearch-bulk:FILE or "
    "vespa-feed:FILE"
)


@dataclass(frozen=True)
class Exported:
    """An export.

    Attributes:
        name: What requests of this version name: a collection, table, index or schema.
        is_new: False: the engine had this version, and only the name was switched to it.
    """

    name: str
    documents: int
    is_new: bool = True
    files: tuple[Path, ...] = ()


def export(bundle: Bundle, target: str, name: str | None, report: Reporter) -> Exported:
    """Export all documents of a bundle.

    Raises:
        ExportError: The address or the bundle does not fit, an engine refuses, or its client is not installed.
        OSError: A file cannot be written.
    """
    if target.startswith(("postgresql://", "postgres://")):
        return _to_postgresql(bundle, target, name, report)
    if target.startswith(("qdrant://", "qdrant+https://")):
        try:
            address = urlsplit(target)
            _ = address.port
        except ValueError as error:
            raise ExportError(f"--to: {error}") from error
        is_half_a_host = bool(address.netloc) and not address.hostname
        if address.query or address.fragment or is_half_a_host:
            raise ExportError(f"--to {target}: must be {FORMS}")
        return _to_qdrant(bundle, address, name, report)
    write: dict[str, Callable[[Source, Path, Reporter], list[Path]]] = {
        "opensearch-bulk": opensearch.write_bulk,
        "vespa-feed": vespa.write_feed,
    }
    scheme, _, path = target.partition(":")
    file = Path(path)
    if scheme not in write or not file.name:
        raise ExportError(f"--to {target}: must be {FORMS}")
    if not file.parent.is_dir():
        raise ExportError(f"{file.parent}: no such folder")
    source = Source.of(bundle, name)
    files = write[scheme](source, file, report)
    return Exported(source.versioned, len(source), files=tuple(files))


def _to_qdrant(
    bundle: Bundle, address: SplitResult, name: str | None, report: Reporter
) -> Exported:
    path = address.path.strip("/")
    with needs("qdrant"):
        if not address.hostname:
            if not path:
                raise ExportError("--to qdrant:///FOLDER: the folder is missing")
            source = Source.of(bundle, name)
            try:
                is_new = export_shard(source, Path(address.path), report)
            except Exception as error:
                if type(error) is Exception:  # Qdrant Edge raises this class for every failure
                    raise ExportError(f"{address.path}: {error}") from error
                raise
            return Exported(source.versioned, len(source), is_new)
        from qdrant_client import QdrantClient
        from qdrant_client.common.client_exceptions import QdrantException
        from qdrant_client.http.exceptions import ApiException, ResponseHandlingException

        source = Source.of(bundle, name or path or None)
        protocol = "https" if address.scheme.endswith("+https") else "http"
        client = QdrantClient(
            url=f"{protocol}://{address.hostname}:{address.port or QDRANT_PORT}",
            api_key=os.environ.get("QDRANT_API_KEY"),
            # The check runs in a thread and prints a warning where the server cannot be reached.
            check_compatibility=False,
        )
        try:
            is_new = export_collection(source, client, report)
        except ResponseHandlingException as error:  # No answer.
            hint = "a folder is qdrant:///FOLDER"
            raise ExportError(f"{address.netloc}: {error}; {hint}") from error
        except (ApiException, QdrantException) as error:
            raise ExportError(f"{address.netloc}: {error}") from error
        finally:
            client.close()
    return Exported(source.versioned, len(source), is_new)


def _to_postgresql(bundle: Bundle, target: str, name: str | None, report: Reporter) -> Exported:
    address, table = _without_table(target)
    source = Source.of(bundle, name or table)
    with needs("postgresql"):
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        host: object = None
        try:
            host = conninfo_to_dict(address).get("host")
            with psycopg.connect(address) as connection:
                is_new = export_table(source, connection, report)
        except psycopg.Error as error:
            raise ExportError(f"{host or 'postgresql'}: {error}") from error
    return Exported(source.versioned, len(source), is_new)


def _without_table(target: str) -> tuple[str, str | None]:
    """Return an address of libpq as it was written, but for its parameter `table`, and that."""
    address, _, query = target.partition("?")
    options = query.split("&") if query else []
    tables = [option for option in options if option.startswith("table=")]
    rest = "&".join(option for option in options if option not in tables)
    table = unquote(tables[-1].removeprefix("table=")) if tables else None
    return f"{address}?{rest}" if rest else address, table
