"""Sort the lines of one piece of a corpus by the shard that their documents belong to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from fullrank.errors import CollectionError
from fullrank_fleet.jobs.pieces import Piece
from fullrank_fleet.partitions import partition_of, runs_of, shard_of
from fullrank_fleet.remote import Folder

# Lines are kept in memory up to this many bytes, then written.
_BUFFER_BYTES = 128 << 20
SplitFiles = dict[int, list[str]]
"""For each shard the names of the objects with its lines, in the order of the corpus."""


def split_piece(piece: Piece, number: int, shards: int, folder: str) -> SplitFiles:
    """Write the lines of a piece to one object or more for each shard.

    The last object written, split/<number>.json, names the others; if it is there, nothing is done.

    Args:
        piece: Where the lines are.
        number: Of the piece, in the order of the corpus.
        shards: How many there are.
        folder: Address of the folder of the job.

    Returns:
        The objects.

    Raises:
        CollectionError: A line has no id; the message names file and byte. Its other fields are checked by the shard.
        RemoteError: The piece cannot be read, or an object cannot be written.
    """
    out = Folder(folder) / "split"
    done = f"{number:05}.json"
    committed = out.read(done)
    if committed is not None:
        return {int(shard): names for shard, names in json.loads(committed).items()}
    runs = runs_of(shards)
    files: SplitFiles = {}
    buffers: dict[int, bytearray] = {}
    buffered = 0

    def write() -> None:
        for shard, content in buffers.items():
            names = files.setdefault(shard, [])
            names.append(f"{number:05}/{shard:05}-{len(names):03}.jsonl")
            out.write(names[-1], bytes(content))
        buffers.clear()

    for position, line in piece.lines():
        if not line.strip():
            continue
        shard = shard_of(partition_of(_id(piece, position, line)), runs)
        buffers.setdefault(shard, bytearray()).extend(
            line if line.endswith(b"\n") else line + b"\n"
        )
        buffered += len(line)
        if buffered >= _BUFFER_BYTES:
            write()
            buffered = 0
    write()
    out.write(done, json.dumps(files).encode())
    return files


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
