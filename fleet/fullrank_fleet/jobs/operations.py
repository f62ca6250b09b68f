"""The live documents that a compaction writes into a set, as objects.

The log keeps only the newest operation on a document, and writes go on while shards are compacted. So the operations up
to one position are copied once, from one state of the log: every shard has the same position, whenever its task runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from fullrank.live import Operation
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets import SetManifest
from fullrank_service.documents.log import Log

# Operations that are read from the log at once.
_READ = 4096
# Lines are kept in memory up to this many bytes, then written.
_BUFFER_BYTES = 128 << 20
OperationFiles = dict[int, list[str]]
"""For each shard that has operations the names of the objects with them, in the order of the log."""


def write_operations(
    log: Log, manifest: SetManifest, since: int, upto: int, folder: Folder
) -> OperationFiles:
    """Copy the operations on a collection to one object or more for each shard.

    Args:
        log: The log, in a snapshot.
        manifest: Of the set; its name is that of the collection.
        since: The number after which it lacks operations.
        upto: The last number of the snapshot.
        folder: For the objects.

    Returns:
        The objects.

    Raises:
        LogError: The log cannot be read.
        RemoteError: An object cannot be written.
    """
    files: OperationFiles = {}
    buffers: dict[int, bytearray] = {}
    buffered, seq = 0, since

    def write() -> None:
        for shard, content in buffers.items():
            names = files.setdefault(shard, [])
            names.append(f"{shard:05}-{len(names):03}.jsonl")
            folder.write(names[-1], bytes(content))
        buffers.clear()

    while seq < upto:
        found, seq = log.after(manifest.name, seq, _READ)
        for one in found:
            fields = None if one.fields is None else orjson.Fragment(one.fields)
            line = orjson.dumps([one.seq, one.id, fields], option=orjson.OPT_APPEND_NEWLINE)
            buffers.setdefault(manifest.owner(one.id), bytearray()).extend(line)
            buffered += len(line)
        if buffered >= _BUFFER_BYTES:
            write()
            buffered = 0
    write()
    return files


def read_operations(folder: Folder, names: Sequence[str]) -> Iterator[Operation]:
    """Yield the operations of some objects. Raises RemoteError."""
    for name in names:
        with folder.open(name) as file:
            for line in file:
                yield Operation(*orjson.loads(line))
