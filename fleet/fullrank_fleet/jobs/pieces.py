"""Cut a corpus into pieces that tasks read on their own."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from fullrank.errors import CollectionError
from fullrank_fleet.jobs.job import SortedLines
from fullrank_fleet.partitions import partition_of, runs_of, shard_of
from fullrank_fleet.remote import Folder

PIECE_BYTES = 64 << 20
_CORPUS = re.compile(r"corpus(-[A-Za-z0-9._-]+)?\.jsonl(\.gz)?")


@dataclass(frozen=True, slots=True)
class Piece:
    """The lines of a file that begin at the bytes start..end - 1; gzipped files are one piece each."""

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


# Sort the lines of one piece of a corpus by the shard that their documents belong to.


SplitFiles = dict[int, list[str]]
"""For each shard the names of the objects with its lines, in the order of the corpus."""


def split_piece(piece: Piece, number: int, shards: int, folder: str) -> SplitFiles:
    """Write the lines of a piece to one object or more for each shard, and return their names.

    The last object written, split/<number>.json, names the others; if it is there, nothing is done. The other fields of
    a document than its id are checked by the shard.
    """
    out = Folder(folder) / "split"
    done = f"{number:05}.json"
    committed = out.read(done)
    if committed is not None:
        return {int(shard): names for shard, names in json.loads(committed).items()}
    runs, lines = runs_of(shards), SortedLines(out, f"{number:05}/")
    for position, line in piece.lines():
        if line.strip():
            shard = shard_of(partition_of(_id(piece, position, line)), runs)
            lines.add(shard, line if line.endswith(b"\n") else line + b"\n")
    lines.write()
    out.write(done, json.dumps(lines.files).encode())
    return lines.files


def files_of_shard(shard: int, split: Iterable[SplitFiles]) -> list[str]:
    """Return the objects with the lines of a shard, in the order of the corpus."""
    return [name for files in split for name in files.get(shard, [])]


def _id(piece: Piece, position: int, line: bytes) -> str:
    try:
        value: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise CollectionError(f"{piece.address}, byte {position}: no JSON: {error}") from None
    id = value.get("_id") if isinstance(value, Mapping) else None
    if not isinstance(id, str):
        raise CollectionError(f"{piece.address}, byte {position}: field '_id': missing, or no text")
    return id
