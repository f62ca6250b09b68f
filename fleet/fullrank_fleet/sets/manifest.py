"""set.json: which shards make a sharded bundle, and which documents each has."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from fullrank.bundle import is_of_model
from fullrank.bundle.manifest import (
    LogPosition,
    Manifest,
    canonical_json,
    checksum_of,
    is_name,
    mismatch,
    other_format,
    parse_position,
)
from fullrank.errors import BundleError, BundleNotFound
from fullrank.storage.strict_json import JsonError, parse_object
from fullrank_fleet.partitions import PARTITIONS, partition_of, shard_of
from fullrank_fleet.remote import BundleCache, Folder
from fullrank_service.models.outline import FieldOutline, Outline

# Objects beside set.json whose sha256 it records: they are written before it, and checked when they are read.


def write_checked(folder: Folder, name: str, content: bytes) -> str:
    """Write an object and return its sha256 (hex), which set.json records. Raises RemoteError."""
    folder.write(name, content)
    return hashlib.sha256(content).hexdigest()


def read_checked(folder: Folder, name: str, sha256: str) -> bytes:
    """Read an object. Raises BundleError if it is missing or damaged, and RemoteError."""
    content = folder.read(name)
    if content is None:
        raise BundleError(f"{folder}/{name}: is missing")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise BundleError(f"{folder}/{name}: sha256 differs from that in set.json")
    return content


SET = "set.json"
FORMAT_VERSION = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


def shard_folder(number: int) -> str:
    return f"shard-{number:05}"


def model_id(manifest: Manifest) -> str:
    """Return the sha256 (hex) of a bundle's model and its second stage, which all shards of a set share."""
    hashes = {p: entry.sha256 for p, entry in manifest.files.items() if is_of_model(p)}
    content = [hashes, manifest.model]
    if manifest.rerank is not None:
        content.append(manifest.rerank)
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: the documents of the partitions first..end - 1; without documents it has no folder, and no hashes."""

    first: int
    end: int
    bundle_id: str | None
    manifest_sha256: str | None
    documents: int
    bytes: int


@dataclass(frozen=True)
class SetManifest:
    """The fields of set.json.

    Attributes:
        created: UTC time, ISO 8601.
        model_id: Of the model and the second stage of every shard.
        columns: Kinds of the values of each stored field over all shards, or why it cannot be filtered by:
            name → ["number"] or {"refused": reason}.
        time_fields: Text fields with a time among their values, in any shard; they are sorted and counted by time.
        values: The sum over all shards of how many different values each stored field has.
        card: Free JSON: the card of the training, the corpus.
        log_position: Which live documents every shard contains; None: no live documents.
        words_sha256: Of words.json; None: the set has none, because it was not compacted.
        outline, titles_sha256: None: the set was written before sets had one.
    """

    name: str
    version: str
    created: str
    model_id: str
    shards: tuple[Shard, ...]
    columns: Mapping[str, Any]
    time_fields: frozenset[str]
    has_ads: bool
    values: Mapping[str, int]
    card: Mapping[str, Any]
    log_position: LogPosition | None = None
    words_sha256: str | None = None
    outline: Outline | None = None
    titles_sha256: str | None = None

    @cached_property
    def set_id(self) -> str:
        """The sha256 (hex) of the partition map and the bundle ids of the shards, so of the content."""
        content = [[shard.first, shard.end, shard.bundle_id] for shard in self.shards]
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    @property
    def documents(self) -> int:
        return sum(shard.documents for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @property
    def runs(self) -> list[range]:
        return [range(shard.first, shard.end) for shard in self.shards]

    @cached_property
    def owned(self) -> dict[int, range]:
        """The partitions of each shard that has documents.

        A shard without documents has no bundle, so the next one before it owns its partitions; the first one those that
        come before it.
        """
        numbers = [number for number, shard in enumerate(self.shards) if shard.documents]
        starts = [0, *(self.shards[number].first for number in numbers[1:]), PARTITIONS]
        return {
            number: range(first, end)
            for number, (first, end) in zip(numbers, pairwise(starts), strict=True)
        }

    def owner(self, id: str) -> int:
        """Return the number of the shard that has a document, or would have it. Raises UnicodeEncodeError."""
        numbers = list(self.owned)
        return numbers[shard_of(partition_of(id), list(self.owned.values()))]

    def dump(self) -> str:
        """Format set.json, with a checksum of the other fields."""
        value = {"format_version": FORMAT_VERSION, "set_id": self.set_id, **asdict(self)}
        value = {name: own for name, own in value.items() if own is not None}
        value["time_fields"] = sorted(self.time_fields)
        value["checksum"] = checksum_of(value)
        return json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1) + "\n"


def parse_set(text: str | bytes) -> SetManifest:
    """Parse set.json strictly. Raises BundleError, which names the field and the reason."""
    try:
        value = parse_object(text)
    except JsonError as error:
        raise _refused(str(error)) from error
    reason = other_format("set", value.get("format_version"), FORMAT_VERSION)
    if reason is not None:
        raise _refused(reason)
    known = {
        "format_version": int,
        "name": str,
        "version": str,
        "created": str,
        "model_id": str,
        "set_id": str,
        "shards": list,
        "columns": dict,
        "time_fields": list,
        "has_ads": bool,
        "values": dict,
        "card": dict,
        "checksum": str,
    }
    known |= {name: dict for name in ("log_position", "outline") if name in value}
    known |= {name: str for name in ("words_sha256", "titles_sha256") if name in value}
    reason = mismatch(value, known)
    if reason is not None:
        raise _refused(reason)
    checksum = value.pop("checksum")
    if checksum != checksum_of(value):
        raise _refused("checksum differs: a value was changed after writing")
    if not all(isinstance(name, str) for name in value["time_fields"]):
        raise _refused("time_fields: a name is no text")
    set_id = value.pop("set_id")
    del value["format_version"]
    value["shards"] = _shards(value["shards"])
    value["time_fields"] = frozenset(value["time_fields"])
    if "log_position" in value:
        value["log_position"] = _position(value["log_position"])
    if "outline" in value:
        value["outline"] = _outline(value["outline"])
    found = SetManifest(**value)
    if set_id != found.set_id:
        raise _refused("set_id does not follow from the shards")
    return found


def _shards(values: Sequence[Any]) -> tuple[Shard, ...]:
    names = {field.name for field in fields(Shard)}
    shards = []
    for number, value in enumerate(values):
        if not isinstance(value, dict) or value.keys() != names:
            raise _refused(f"shards.{number}: expected {sorted(names)}")
        counts = [value[name] for name in ("first", "end", "documents", "bytes")]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise _refused(f"shards.{number}: first, end, documents or bytes is not a number")
        hashes = [value["bundle_id"], value["manifest_sha256"]]
        is_empty = value["documents"] == 0
        if not all(h is None if is_empty else _is_hash(h) for h in hashes):
            raise _refused(f"shards.{number}: the hashes do not fit the documents")
        shards.append(Shard(**value))
    ends = [0, *(shard.end for shard in shards)]
    if [shard.first for shard in shards] != ends[:-1] or ends[-1] != PARTITIONS:
        raise _refused(f"shards: do not share out the partitions 0 to {PARTITIONS - 1}")
    if not any(shard.documents for shard in shards):
        raise _refused("shards: no documents")
    return tuple(shards)


def _position(value: Mapping[str, Any]) -> LogPosition:
    try:
        return parse_position(value)
    except ValueError as error:
        raise _refused(f"log_position: {error}") from error


def _outline(value: Mapping[str, Any]) -> Outline:
    try:
        if value.keys() != {"fields", "examples"}:
            raise ValueError("expected fields and examples")
        found = {
            name: FieldOutline(**{**field, "kinds": tuple(field["kinds"])})
            for name, field in value["fields"].items()
        }
        return Outline(found, tuple(value["examples"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _refused(f"outline: {type(error).__name__}: {error}") from error


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _refused(reason: str) -> BundleError:
    return BundleError(f"{SET}: {reason}")


# Read and write set.json, and find the newest sharded bundle of a name.


def read_set(folder: Folder) -> SetManifest:
    """Read the set.json of a sharded bundle, <root>/<name>/<version>.

    Raises:
        BundleNotFound: There is none: no such bundle, or one that is still being written.
        BundleError: It is damaged, or that of another version.
        RemoteError: It cannot be read.
    """
    content = folder.read(SET)
    if content is None:
        raise BundleNotFound(f"{folder}: no {SET}, so no sharded bundle")
    try:
        found = parse_set(content)
    except BundleError as error:
        raise BundleError(f"{folder}: {error}") from error
    if folder.address.rstrip("/").rpartition("/")[2] != found.version:
        raise BundleError(f"{folder}: its {SET} is that of {found.version}")
    return found


def fetch_shard(
    cache: BundleCache, folder: Folder, manifest: SetManifest, number: int, *, is_whole: bool = True
) -> Path:
    """Return a copy of the bundle of a shard, with the model, which the set has once; see ``BundleCache.fetch``."""
    source, sha256 = folder / shard_folder(number), manifest.shards[number].manifest_sha256
    return cache.fetch(source, sha256, is_whole=is_whole, model=folder)


def write_set(folder: Folder, manifest: SetManifest) -> None:
    """Write set.json, which makes the shards below one bundle. Raises RemoteError."""
    # Every other object of the set is there, so what killed tasks had begun to write is not needed.
    folder.remove_unfinished()
    folder.write(SET, manifest.dump().encode())


def find_set(root: Folder, name_or_version: str) -> Folder:
    """Find the folder of a version, or of the newest version of a name. Raises BundleNotFound, RemoteError."""
    if is_name(name_or_version):
        versions = _complete(root / name_or_version)
        if versions:
            return root / name_or_version / max(versions)[1]
        with suppress(BundleNotFound):
            return find_version(root, name_or_version)
    raise BundleNotFound(f"{root}: no sharded bundle and no version named {name_or_version!r}")


def find_version(root: Folder, version: str) -> Folder:
    """Find the folder of a version. Raises BundleNotFound, RemoteError."""
    for name in root.folders() if is_name(version) else ():
        if is_name(name) and (root / name / version).read(SET) is not None:
            return root / name / version
    raise BundleNotFound(f"No bundle has the version {version!r}.")


def newest_set(root: Folder) -> Folder:
    """Find the folder of the newest version of all names. Raises BundleNotFound, RemoteError."""
    found = [
        (created, name, version)
        for name in root.folders()
        if is_name(name)
        for created, version in _complete(root / name)
    ]
    if not found:
        raise BundleNotFound(f"{root}: no sharded bundle; write one with: fullrank index --ray")
    _, name, version = max(found)
    return root / name / version


def sets_of(folder: Folder) -> list[SetManifest]:
    """Read all complete sharded bundles in <root>/<name>. Raises BundleError if one is damaged, and RemoteError."""
    found = []
    for version in folder.folders():
        with suppress(BundleNotFound):
            found.append(read_set(folder / version))
    return found


def _complete(folder: Folder) -> list[tuple[str, str]]:
    """Return (time, version) of each complete bundle of a name; damaged ones are left out."""
    found = []
    for version in folder.folders():
        try:
            found.append((read_set(folder / version).created, version))
        except BundleError:
            continue
    return found
