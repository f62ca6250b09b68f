"""Cut a corpus into pieces that tasks read on their own."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fullrank.errors import CollectionError
from fullrank_fleet.remote import Folder

PIECE_BYTES = 64 << 20
_CORPUS = re.compile(r"corpus(-[A-Za-z0-9._-]+)?\.jsonl(\.gz)?")


@dataclass(frozen=True, slots=True)
class Piece:
    """The lines of a file that begin at the bytes start..end - 1; gzipped files are one piece each.

    Attributes:
        folder: Address of the folder.
        name: Of the file.
    """

    folder: str
    name: str
    start: int
    end: int

    @property
    def address(self) -> str:
        return f"{self.folder.rstrip('/')}/{self.name}"

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (byte of the file, or of its content if it is gzipped, where the line begins; the line).

        Raises:
            CollectionError: The file cannot be read.
        """
        with Folder(self.folder).open(self.name) as file:
            is_whole = self.name.endswith(".gz")
            source: Any = gzip.GzipFile(fileobj=file) if is_whole else file
            position = 0 if is_whole else self.start
            if position:
                # The line that is under way belongs to the piece before, also if it ends exactly here.
                file.seek(position - 1)
                position += len(file.readline()) - 1
            try:
                while is_whole or position < self.end:
                    line = source.readline()
                    if not line:
                        break
                    yield position, line
                    position += len(line)
            except (OSError, EOFError, zlib.error) as error:
                raise CollectionError(f"{self.address}: cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Corpus:
    """The files of a corpus.

    Attributes:
        folder: Address of their folder.
        files: Name → a text that changes when the content does, in the order in which they are read.
    """

    folder: str
    files: dict[str, str]

    @classmethod
    def at(cls, address: str) -> Corpus:
        """Find the files of a corpus.

        Args:
            address: Of corpus.jsonl[.gz], of any other .jsonl[.gz] file, or of a folder with corpus.jsonl[.gz] or with
                several files corpus-….jsonl[.gz].

        Raises:
            CollectionError: There are no such files, or a plain one and a gzipped one.
            RemoteError: The folder cannot be read.
        """
        if re.search(r"\.jsonl(\.gz)?$", address):
            folder, _, name = address.rpartition("/")
            found = Folder(folder or ".").files()
            if name not in found:
                raise CollectionError(f"{address}: no such file")
            return cls(folder or ".", {name: found[name]})
        found = Folder(address).files()
        names = sorted(name for name in found if _CORPUS.fullmatch(name))
        if not names:
            raise CollectionError(f"{address}: no corpus.jsonl[.gz] and no corpus-….jsonl[.gz]")
        for name in names:
            if f"{name}.gz" in names:
                raise CollectionError(f"{address}: both {name} and {name}.gz; keep one")
        return cls(address, {name: found[name] for name in names})

    @property
    def fingerprint(self) -> str:
        """The sha256 (hex) of names, sizes and times or hashes of the files, as their store lists them."""
        return hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()

    def pieces(self, size: int = PIECE_BYTES) -> list[Piece]:
        """Cut the files into pieces of this many bytes."""
        pieces = []
        for name in self.files:
            length = Folder(self.folder).size(name)
            step = max(1, length) if name.endswith(".gz") else size
            pieces += [
                Piece(self.folder, name, start, min(start + step, length))
                for start in range(0, length, step)
            ]
        return pieces
