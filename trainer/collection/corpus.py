"""A corpus larger than memory: checked in one pass, then read in ascending id order.

    CorpusFile(path).documents()

The first pass reads every line as strictly as a collection is read, and remembers where each
document's line begins: about a hundred bytes a document for as long as it lasts (every id, to
refuse one that comes twice), 8 bytes afterwards. Where the ids already ascend, the second pass
reads the file from front to back; else it jumps. What is gzipped or comes through a pipe is copied into
a file without a name, which is gone when this process is, however it ends.
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

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document
from trainer.collection import Lines, ReadReport, document_of, documents_of, find_corpus


class CorpusFile:
    """A corpus.jsonl[.gz], or a collection's; a context manager that holds the file open.

    report       what was odd about it
    fingerprint  sha256 of its content, the same for plain and gzipped files
    """

    def __init__(self, path: str | Path, *, scratch: Path | None = None) -> None:
        """Read and check the file.

        scratch  where what is gzipped or a pipe is copied to; by default where temporary files go

        Raises CollectionError naming file, line and field.
        """
        given = Path(path)
        self.path = find_corpus(given) if given.is_dir() else given
        self.report = ReadReport()
        lines = _Placed(self.path)
        if self.path.suffix == ".gz" or self.path.is_fifo():
            lines.copy = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
        self._file = lines.copy
        try:
            self._begins = _ascending(lines, self.report)
            self.fingerprint = lines.digest()
            if self._file is None:
                self._file = self.path.open("rb")
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._begins)

    def document(self, row: int) -> Document:
        """The document of a row; rows ascend by id."""
        assert self._file is not None
        self._file.seek(int(self._begins[row]))
        try:
            return document_of(orjson.loads(self._file.readline()))
        except (orjson.JSONDecodeError, AttributeError, KeyError) as error:
            raise CollectionError(f"{self.path}: changed while it was read") from error

    def documents(self) -> Iterator[Document]:
        """All documents, in ascending id order."""
        return map(self.document, range(len(self)))

    def close(self) -> None:
        """Let the file go."""
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


class _Placed(Lines):
    """Lines that say where the last one began, and are copied on the way through where asked to."""

    copy: IO[bytes] | None = None
    begin = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        end = 0
        for number, line in super().__iter__():
            self.begin, end = end, end + len(line)
            if self.copy is not None:
                self.copy.write(line)
            yield number, line


def _ascending(lines: _Placed, report: ReadReport) -> np.ndarray:
    """Where each document's line begins, int64 (n,), in ascending order of id."""
    ids: list[str] = []
    begins = array("q")
    in_order = True
    for _, document in documents_of(lines, report):
        in_order = in_order and (not ids or ids[-1] < document.id)
        ids.append(document.id)
        begins.append(lines.begin)
    found = np.array(begins, np.int64)
    if in_order:
        return found
    return found[sorted(range(len(ids)), key=ids.__getitem__)]
