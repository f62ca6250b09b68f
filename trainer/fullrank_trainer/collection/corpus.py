"""Read a corpus that is larger than memory: check it in one pass, then read it in id order.

The first pass reads every line as strictly as a collection is read and stores where each document's
line begins. It needs about 100 bytes a document while it lasts, because it has to refuse an id that
comes twice, and 8 bytes a document afterwards. If the ids already ascend, the second pass reads the
file from front to back; otherwise it seeks. Gzipped input and pipes cannot seek, so they are copied
to an anonymous temporary file, which disappears with the process.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
import orjson

from fullrank.encoding import Int64
from fullrank.errors import CollectionError
from fullrank.storage.documents import Document
from fullrank_trainer.collection.documents import find_corpus, iter_documents, to_document
from fullrank_trainer.collection.lines import Lines
from fullrank_trainer.collection.report import ReadReport


class CorpusFile:
    """An open corpus.jsonl[.gz]; a context manager that closes it.

    Attributes:
        path: the file.
        report: counts of irregularities in the collection.
        fingerprint: sha256 of its content; compression does not change it.

    Example:
        >>> with CorpusFile("shop") as corpus:
        ...     ids = [document.id for document in corpus.documents()]
    """

    def __init__(self, path: str | Path, *, scratch: Path | None = None) -> None:
        """Read and check the file.

        Args:
            path: a corpus file, or a collection's folder.
            scratch: folder for the copy of gzipped input and pipes; by default the system's
                folder of temporary files.

        Raises:
            CollectionError: a line is malformed; the message names file, line and field.
        """
        given = Path(path)
        self.path = find_corpus(given) if given.is_dir() else given
        self.report = ReadReport()
        lines = _PositionedLines(self.path)
        if self.path.suffix == ".gz" or self.path.is_fifo():
            lines.copy = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
        self._file = lines.copy
        try:
            self._line_starts = _line_starts(lines, self.report)
            self.fingerprint = lines.digest()
            if self._file is None:
                self._file = self.path.open("rb")
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._line_starts)

    def document(self, row: int) -> Document:
        """Return the document of a row; rows ascend by id.

        Raises:
            CollectionError: the file has changed since it was checked.
        """
        assert self._file is not None
        self._file.seek(int(self._line_starts[row]))
        try:
            return to_document(orjson.loads(self._file.readline()))
        except (orjson.JSONDecodeError, AttributeError, KeyError) as error:
            raise CollectionError(f"{self.path}: changed while it was read") from error

    def documents(self) -> Iterator[Document]:
        """Iterate over all documents in ascending id order."""
        return map(self.document, range(len(self)))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> CorpusFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _PositionedLines(Lines):
    """Lines of a file, with the offset of the last one; optionally copy all bytes read."""

    copy: IO[bytes] | None = None
    line_start = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        end = 0
        for number, line in super().__iter__():
            self.line_start, end = end, end + len(line)
            if self.copy is not None:
                self.copy.write(line)
            yield number, line


def _line_starts(lines: _PositionedLines, report: ReadReport) -> Int64:
    """Return where each document's line begins, int64 (documents,), in ascending order of id."""
    ids: list[str] = []
    starts = array("q")
    in_order = True
    for _, document in iter_documents(lines, report):
        in_order = in_order and (not ids or ids[-1] < document.id)
        ids.append(document.id)
        starts.append(lines.line_start)
    found = np.array(starts, np.int64)
    if in_order:
        return found
    return found[sorted(range(len(ids)), key=ids.__getitem__)]
