"""From what people have to a collection: tables, databases, folders of pages, judged collections of other kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from fullrank.errors import FullrankError
from fullrank_trainer.importing.judged import is_beir, open_judged
from fullrank_trainer.importing.pages import Pages
from fullrank_trainer.importing.rows import Row
from fullrank_trainer.importing.tables import ENDINGS, open_file, open_parquet, open_sql


class Source(Protocol):
    """Documents that will be read.

    Attributes:
        columns: Column → field, or what its values are; none for pages.
        total: The number of pages or rows; None if only reading them tells.
    """

    @property
    def columns(self) -> Mapping[str, str]: ...

    @property
    def total(self) -> int | None: ...

    def rows(self) -> Iterator[Row]:
        """Read the documents. Raises FullrankError if a file is damaged."""

    def write(self, folder: Path, *, are_judged: bool) -> dict[str, Any]:
        """Write what is known besides the documents, once they are read; return counts.

        Args:
            are_judged: Judgements come from elsewhere.
        """


def open_source(
    source: str,
    mapping: Mapping[str, str | None],
    query: str | None,
    address: str | None,
    encoding: str | None,
    advance: Callable[[], object],
) -> Source:
    """Open a file, a folder or a database, which its name or its files tell apart.

    Args:
        mapping: Field ("_id", "title", "text") → column of a table; None: guess.
        query: What to select from a database.
        address: The url of a page, in which {path} stands for its path without the ending.
        advance: Called for each row of a table that is looked at before it is read.

    Raises:
        FullrankError: The source is of no known kind or cannot be read, or an option does not fit it.
    """
    if source.startswith(("https://", "http://")):
        raise FullrankError(f"{source}: save the pages first, such as with `wget --mirror`")
    if "://" in source:
        if query is None:
            raise FullrankError(f"{source.partition(':')[0]}: say what to select with --query")
        return open_sql(source, query, mapping)
    path = Path(source)
    name = path.name.lower().removesuffix(".gz")
    is_sitemap = name.endswith(".xml") and path.is_file()
    if is_sitemap or (path.is_dir() and not is_beir(path)):
        pages = Pages(path, address, encoding)
        if pages.total:
            if any(mapping.values()) or query is not None:
                raise FullrankError(
                    f"{source}: --id, --title and --text are for tables, --query for databases"
                )
            return pages
        if is_sitemap:
            raise FullrankError(f"{source}: a sitemap without a page")
    if address is not None or query is not None:
        raise FullrankError(f"{source}: --url is for pages, --query for databases")
    if name.endswith(ENDINGS):
        return open_file(path, encoding, mapping, advance)
    if name.endswith(".parquet"):
        return open_parquet(path, mapping)
    if not path.exists():
        raise FullrankError(f"{source}: no such file or folder")
    return open_judged(path, encoding, mapping)
