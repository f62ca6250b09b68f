"""The manifest of a bundle: its name, its model, and the hash, dtype and shape of each of its files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from fullrank.errors import BundleError, BundleNotFound
from fullrank.storage.floor import Floor
from fullrank.storage.strict_json import JsonError, parse_object

FORMAT_VERSION = 4
MANIFEST = "manifest.json"
GOLDEN = "golden.jsonl"
# Written by formats 1 and 2; not read.
UNREAD = ("index.faiss", "index/cells.faiss")
IDS = "documents/ids"
FIELDS = "documents/fields"
# Optional parts of a bundle: each has its own folder and its own field of the manifest.
SECTIONS = ("index", "columns", "rerank", "words")

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Little-endian numbers, the same on every machine; no dtype that holds objects.
_DTYPES = frozenset(("<f4", "<f8", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "|i1", "|u1", "|b1"))


def is_name(text: str) -> bool:
    """Check whether a text can name a bundle or a version, and so a folder."""
    return NAME.fullmatch(text) is not None


def is_part(text: str) -> bool:
    """Check whether a text can name an array or a string table of a model, and so a file."""
    return _PART.fullmatch(text) is not None


def is_dtype(text: str) -> bool:
    """Check whether bundles allow arrays of this dtype, given in numpy's short form: "<f4"."""
    return text in _DTYPES


def canonical_json(value: Any) -> str:
    """Format JSON with sorted keys and no spaces: equal values, equal text. Raises BundleError without a JSON form."""
    try:
        text = json.dumps(
            value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        text.encode()
    except (TypeError, ValueError) as error:
        raise BundleError(f"not a JSON value: {error}") from error
    return text


@dataclass(frozen=True)
class FileEntry:
    """The manifest's entry of one file; only .npy files have dtype and shape."""

    sha256: str
    bytes: int
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"sha256": self.sha256, "bytes": self.bytes}
        if self.shape is not None:
            entry |= {"dtype": self.dtype, "shape": list(self.shape)}
        return entry


@dataclass(frozen=True)
class LogPosition:
    """The bundle's documents contain all operations of the log named ``log`` up to number ``seq``."""

    log: str
    seq: int


@dataclass(frozen=True)
class Manifest:
    """The fields of manifest.json; see docs/reference/bundle.md.

    Attributes:
        index: Facts about the files of index/; None: the bundle has no index.
        columns: Facts about the files of columns/; None: the bundle has no columns.
        rerank: Facts about the files of rerank/; None: the bundle has no second stage.
        words: An empty object if the bundle has words/, the words that training did not see; None: it has not.
        log_position: Which live documents the bundle contains; None: no live documents.
        floor: What a document must reach to be found; None: every document is found.
    """

    name: str
    version: str
    bundle_id: str
    created: str
    model: Mapping[str, Any]
    card: Mapping[str, Any]
    files: Mapping[str, FileEntry]
    index: Mapping[str, Any] | None = None
    columns: Mapping[str, Any] | None = None
    rerank: Mapping[str, Any] | None = None
    words: Mapping[str, Any] | None = None
    log_position: LogPosition | None = None
    floor: Floor | None = None
    format_version: int = FORMAT_VERSION

    def dump(self) -> str:
        """Format manifest.json, indented, with sorted keys."""
        value = {
            "format_version": self.format_version,
            "name": self.name,
            "version": self.version,
            "bundle_id": self.bundle_id,
            "created": self.created,
            "model": self.model,
            "card": self.card,
            "files": {path: entry.json() for path, entry in self.files.items()},
        }
        value |= {name: facts for name, facts in self.sections().items() if facts is not None}
        if self.log_position is not None:
            value["log_position"] = asdict(self.log_position)
        if self.floor is not None:
            value["floor"] = self.floor.json()
        value["checksum"] = checksum_of(value)
        return json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1) + "\n"

    def sections(self) -> dict[str, Mapping[str, Any] | None]:
        return {name: getattr(self, name) for name in SECTIONS}

    @cached_property
    def model_id(self) -> str:
        """Id of the model alone, 16 hexadecimal digits: bundles with equal ids give equal documents equal scores."""
        hashes = {path: one.sha256 for path, one in self.files.items() if path.startswith("model/")}
        return hashlib.sha256(canonical_json([hashes, self.model]).encode()).hexdigest()[:16]

    @property
    def total_bytes(self) -> int:
        return sum(entry.bytes for entry in self.files.values())


def bundle_id(files: Mapping[str, FileEntry], model: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of every file's path and hash and the model's config, without name, time and card."""
    hashes = {path: entry.sha256 for path, entry in files.items()}
    return hashlib.sha256(canonical_json([hashes, model]).encode()).hexdigest()


def checksum_of(value: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of the manifest's values, most of which no other file can confirm."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def version_of(name: str, created: datetime, bundle_id: str) -> str:
    """Return <name>-<UTC yyyymmddthhmmssz>-<first 8 hex digits of the bundle id>, in lower case as names are."""
    return f"{name}-{created:%Y%m%dt%H%M%Sz}-{bundle_id[:8]}"


def check_name(name: str) -> None:
    """Raise BundleError unless bundles can have a name: their versions, which are longer, are names, too."""
    if not is_name(version_of(name, datetime.now(UTC), "0" * 8)):
        raise BundleError(f"{name!r} cannot name a bundle: a-z, 0-9, '.', '_', '-', at most 74")


def free_version(
    folder: Path, name: str, created: datetime, bundle_id: str
) -> tuple[str, datetime]:
    """Return a version that the folder does not have, and its time: later than now if it was published this second."""
    while (folder / (version := version_of(name, created, bundle_id))).exists():
        created += timedelta(seconds=1)
    return version, created


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a bundle folder. Raises BundleNotFound without one, BundleError where it is damaged."""
    try:
        text = (path / MANIFEST).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BundleNotFound(f"{path}: no {MANIFEST}, so no bundle") from error
    except UnicodeDecodeError as error:
        raise BundleError(f"{MANIFEST}: not utf-8") from error
    except OSError as error:
        raise BundleError(f"{MANIFEST}: {error.strerror}") from error
    return parse_manifest(text)


def parse_manifest(text: str) -> Manifest:
    """Parse manifest.json strictly: every field is present and of its type, and there is no other field.

    Raises BundleError naming the field; an unknown format version first, because it decides which fields there are.
    """
    try:
        value = parse_object(text)
    except JsonError as error:
        raise _refused(str(error)) from error
    format_version = value.get("format_version")
    reason = other_format("bundle", format_version, FORMAT_VERSION)
    if reason is not None:
        raise _refused(reason)
    known = {
        "format_version": int,
        "name": str,
        "version": str,
        "bundle_id": str,
        "created": str,
        "model": dict,
        "card": dict,
        "files": dict,
    }
    if format_version != 1:
        known |= {name: dict for name in SECTIONS if name in value}
        known |= {name: str for name in ("checksum",) if name in value}
        known |= {name: dict for name in ("log_position", "floor") if name in value}
    reason = mismatch(value, known)
    if reason is not None:
        raise _refused(reason)
    try:
        datetime.fromisoformat(value["created"])
    except ValueError as error:
        raise _refused(f"created: {error}") from error
    files = {path: _entry(path, entry) for path, entry in value["files"].items()}
    if len({path.lower() for path in files}) != len(files):
        raise _refused("two files differ by letter case only")
    if value["bundle_id"] != bundle_id(files, value["model"]):
        raise _refused("bundle_id does not follow from the files and the model")
    for path in sorted(files):
        folder, _, inside = path.partition("/")
        if folder in SECTIONS and inside and folder not in value:
            raise _refused(f"{path}: the field {folder!r} is missing")
    checksum = value.pop("checksum", None)
    if checksum is not None and checksum != checksum_of(value):
        raise _refused("checksum differs: a value was changed after writing")
    return Manifest(
        name=value["name"],
        version=value["version"],
        bundle_id=value["bundle_id"],
        created=value["created"],
        model=value["model"],
        card=value["card"],
        files=files,
        index=value.get("index"),
        columns=value.get("columns"),
        rerank=value.get("rerank"),
        words=value.get("words"),
        log_position=_position(value["log_position"]) if "log_position" in value else None,
        floor=_floor(value["floor"]) if "floor" in value else None,
        format_version=value["format_version"],
    )


def other_format(kind: str, version: object, newest: int) -> str | None:
    """Return why this release cannot read a format version of a kind of folder; None if it can: 1 to the newest."""
    if type(version) is not int or version < 1:
        return f"format_version is {version!r}, not a number from 1 on"
    if version > newest:
        return f"{kind} format {version} is newer than this release reads (up to {newest}); upgrade fullrank"
    return None


def mismatch(value: Mapping[str, Any], known: Mapping[str, type]) -> str | None:
    """Return what is wrong with fields of a manifest: exactly these, of these types, with usable names."""
    if value.keys() != known.keys():
        return f"fields differ: {sorted(value.keys() ^ known.keys())}"
    for key, kind in known.items():
        if not isinstance(value[key], kind):
            return f"{key} is not of type {kind.__name__}"
    for key in ("name", "version"):
        if not is_name(value[key]):
            return f"{key} {value[key]!r} is not a bundle name"
    return None


def parse_position(value: Mapping[str, Any]) -> LogPosition:
    """Read the field log_position of a manifest. Raises ValueError."""
    if value.keys() != {"log", "seq"}:
        raise ValueError("expected log and seq")
    if not isinstance(value["log"], str) or not _is_size(value["seq"]):
        raise ValueError("log is not text, or seq is not a number")
    return LogPosition(value["log"], value["seq"])


def _position(value: dict[str, Any]) -> LogPosition:
    try:
        return parse_position(value)
    except ValueError as error:
        raise _refused(f"log_position: {error}") from error


def _floor(value: dict[str, Any]) -> Floor:
    try:
        return Floor.from_json(value)
    except (TypeError, ValueError) as error:
        raise _refused(f"floor: {error}") from error


def _refused(reason: str) -> BundleError:
    return BundleError(f"{MANIFEST}: {reason}")


def _entry(path: str, entry: Any) -> FileEntry:
    # Every part starts with a letter or digit: no "..", no hidden file, no absolute path.
    if not all(is_part(part) for part in path.split("/")) or path == MANIFEST:
        raise _refused(f"{path!r} is not a file path of a bundle")
    array = path.endswith(".npy")
    expected = {"sha256", "bytes", "dtype", "shape"} if array else {"sha256", "bytes"}
    if not isinstance(entry, dict) or entry.keys() != expected:
        raise _refused(f"{path}: expected {sorted(expected)}")
    if not isinstance(entry["sha256"], str) or not _SHA256.fullmatch(entry["sha256"]):
        raise _refused(f"{path}: sha256 is not 64 hexadecimal digits")
    if not _is_size(entry["bytes"]):
        raise _refused(f"{path}: bytes is not a size")
    if not array:
        return FileEntry(entry["sha256"], entry["bytes"])
    if not isinstance(entry["dtype"], str) or not is_dtype(entry["dtype"]):
        raise _refused(f"{path}: dtype {entry['dtype']!r} is not allowed")
    shape = entry["shape"]
    if not isinstance(shape, list) or not all(_is_size(n) for n in shape):
        raise _refused(f"{path}: shape is not a list of sizes")
    return FileEntry(entry["sha256"], entry["bytes"], entry["dtype"], tuple(shape))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
