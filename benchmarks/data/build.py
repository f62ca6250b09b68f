"""Build the collections of the README's results from public sources.

    python -m benchmarks.data.build [--only tldr,debian] [--out FOLDER]

| name | source | revision | licence |
|---|---|---|---|
| tldr | github.com/tldr-pages/tldr | commit 08e345f (23 August 2026) | CC BY 4.0 |
| debian | Debian's package indices, bookworm main amd64 | 12.15 (11 July 2026) | each description follows its package |
| wikispeedia | snap.stanford.edu | the archives there have no versions | CC BY-SA and GFDL (Wikipedia, 2007) |

The default FOLDER, out/data, is where the benchmarks look if neither FULLRANK_DATA nor ../shared/data is there. A
collection that is there already is left as it is. Downloads are kept in FOLDER/downloads and go on where they stopped.

Checksums. The indices of Debian have the SHA-256 that Debian's release file states. The archives of tldr and
wikispeedia were never downloaded by the authors of this file: their SHA-256 is printed at the first download, written
to FOLDER/downloads/sha256.json, and later downloads must have it. What is built of tldr has checksums, computed from
the commit itself.

Equal to what was measured? The README's figures are from collections of the same revisions. Documents, queries and
links of debian are the same, except for 18 packages with one description per architecture, of which this takes that
of amd64, and three of the Japanese descriptions. Of tldr, the commands of 14 pages differ by a bracket. wikispeedia
was not downloadable where this was written: its parser is tested on a small archive, and its clicks may be counted
otherwise. Splits are drawn anew, in the same shares, by a hash (benchmarks.data.parsers), so figures differ as
between two draws of the test: BM25 has an MRR of 0.424 on the tldr/en that this builds, and 0.422 on the one that was
measured.

The collection `shop` of the results is a log that may not be passed on, and is not built.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from benchmarks.data import parsers
from benchmarks.data.parsers import Files, SourceError
from benchmarks.harness.report import BUILT
from benchmarks.harness.store import file_fingerprint, write_json
from fullrank.errors import FullrankError
from fullrank.progress import Reporter

_CHUNK = 1 << 18
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Remote:
    """A file to download: addresses of the same content, tried in turn, and its SHA-256 where it is known."""

    addresses: tuple[str, ...]
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """Where a collection comes from.

    Attributes:
        revision, licence: Are written beside the collection.
        files: Name → what to download.
        parse: Makes the files of the collection from them.
        built: Path in the collection → SHA-256 of its content, unpacked.
    """

    revision: str
    licence: str
    files: Mapping[str, Remote]
    parse: Callable[[Mapping[str, Path]], Files]
    built: Mapping[str, str] = field(default_factory=dict)


_TLDR = "08e345f42639f67d99282813247ac670dc6e87cb"
_DEBIAN = (
    "https://snapshot.debian.org/archive/debian/20260712T000000Z",
    "http://deb.debian.org/debian",
)
_SNAP = "https://snap.stanford.edu/data/wikispeedia"


def _debian(path: str, sha256: str) -> Remote:
    # The second address has this content until the next release of bookworm.
    return Remote(tuple(f"{base}/dists/bookworm/main/{path}" for base in _DEBIAN), sha256)


SOURCES = {
    "tldr": Source(
        revision=_TLDR,
        licence="CC BY 4.0, tldr-pages contributors",
        files={
            "tldr.tar.gz": Remote((f"https://github.com/tldr-pages/tldr/archive/{_TLDR}.tar.gz",))
        },
        parse=parsers.tldr,
        built={
            "corpus.jsonl.gz": "175927960a3bc325df679e007b261916b377caf1e08d5c2671645793af780286",
            "en/queries.jsonl.gz": "09d127125149c571656cd3d8b77080e4fd687c960d0073ba036918c0b3d76d8e",
            "ko/queries.jsonl.gz": "96e08a3cb993c0a253e9c02c745914e9e6a246311cf063789fc26e16c1fc3aac",
            "ja/queries.jsonl.gz": "2b8d4d2b32b255dea5a20c00f6dae6049c20f25d160da3da8a0b446ceccef54f",
        },
    ),
    "debian": Source(
        revision="Debian 12.15 (bookworm), main, amd64",
        licence="each description has the licence of its package",
        files={
            "Packages.xz": _debian(
                "binary-amd64/Packages.xz",
                "9e0b5aabb2465b3d2e7a7fe27f9913846277833f7a2826e7767acccff5b588c5",
            ),
            "Translation-en.xz": _debian(
                "i18n/Translation-en.xz",
                "a3d4a0bfd8e9242810b0885eda7c1a6e05dac15b333ddbaab03ba56f2dfa4bf0",
            ),
            "Translation-ja.bz2": _debian(
                "i18n/Translation-ja.bz2",
                "faae0d44702fdb794a53aa689e1334d9b1ecd96f9d042b89bd67fa97a86e7c6c",
            ),
        },
        parse=parsers.debian,
    ),
    "wikispeedia": Source(
        revision="as served",
        licence="CC BY-SA and GFDL, Wikipedia contributors; cite West, Pineau and Precup, 2009",
        files={name: Remote((f"{_SNAP}/{name}",)) for name in (parsers.GRAPH, parsers.TEXTS)},
        parse=parsers.wikispeedia,
    ),
}


class DownloadError(FullrankError):
    """A file could not be downloaded, or is not the one that was wanted."""


def download(remote: Remote, path: Path, report: Reporter) -> str:
    """Download a file unless it is there, going on where an earlier download stopped; return its SHA-256.

    Raises:
        DownloadError: No address gives it, or its content is another one. Then the file is gone.
    """
    failures = []
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        for address in remote.addresses:
            try:
                _fetch(address, path, report)
                break
            except (OSError, ValueError) as error:
                reason = error.reason if isinstance(error, URLError) else error
                failures.append(f"{address}: {reason}")
        else:
            raise DownloadError("; ".join(failures))
    found = file_fingerprint(path)
    if remote.sha256 not in (None, found):
        path.unlink()
        raise DownloadError(f"{path}: has SHA-256 {found} instead of {remote.sha256}; removed")
    return found


def _fetch(address: str, path: Path, report: Reporter) -> None:
    part = path.with_name(f"{path.name}.part")
    begun = part.stat().st_size if part.exists() else 0
    asked = Request(address, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        reply = urlopen(asked, timeout=_TIMEOUT_S)
    except HTTPError as error:
        if error.code != 416:
            raise
        # The part has everything, or is of another file: its checksum decides.
        part.replace(path)
        return
    with reply, part.open("ab" if reply.status == 206 else "wb") as file:
        length = reply.headers.get("Content-Length")
        with report.stage(path.name, total=int(length) if length else None) as stage:
            while chunk := reply.read(_CHUNK):
                file.write(chunk)
                stage.advance(len(chunk))
        got = file.tell() - (begun if reply.status == 206 else 0)
    if length and got < int(length):
        raise OSError(f"ended after {got} of {length} bytes; run it again to go on")
    part.replace(path)


def _locked(name: str, remote: Remote, found: str, lock: Path, report: Reporter) -> None:
    """Compare a file without a known checksum with the first download of it."""
    if remote.sha256 is not None:
        return
    known = json.loads(lock.read_text()) if lock.exists() else {}
    if name not in known:
        report.log("first download", file=name, sha256=found)
        write_json(lock, {**known, name: found})
    elif known[name] != found:
        raise DownloadError(f"{name}: has SHA-256 {found}; {lock} has {known[name]} of the first")


def content(rows: Sequence[object], path: str) -> bytes:
    """Return the content of a file of a collection, before it is packed."""
    if ".jsonl" in path:
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    else:
        lines = ["\t".join(row) for row in rows]  # type: ignore[arg-type]
    return ("\n".join(lines) + "\n").encode()


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_collection(source: Source, files: Files, folder: Path, found: Mapping[str, str]) -> None:
    """Write all files of a collection, or none. Raises SourceError if one is not what it should be."""
    with _replacing(folder) as temporary:
        built = {}
        for name, rows in files.items():
            unpacked = content(rows, name)
            built[name] = hashlib.sha256(unpacked).hexdigest()
            if source.built.get(name, built[name]) != built[name]:
                raise SourceError(
                    f"{name}: was built with SHA-256 {built[name]} instead of {source.built[name]}"
                )
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(unpacked, mtime=0) if path.suffix == ".gz" else unpacked)
        facts = {"revision": source.revision, "licence": source.licence}
        write_json(temporary / "source.json", {**facts, "downloads": found, "built": built})


def build(names: Sequence[str], out: Path, sources: Mapping[str, Source] = SOURCES) -> Path:
    """Build the collections that are not in ``out`` yet, and return it.

    Raises:
        FullrankError: A file cannot be downloaded, or is not what it should be.
    """
    downloads = out / "downloads"
    with Reporter() as report:
        for name in names:
            if (out / name).exists():
                report.log("kept", collection=str(out / name))
                continue
            source, paths, found = sources[name], {}, {}
            for file, remote in source.files.items():
                paths[file] = downloads / file
                found[file] = download(remote, paths[file], report)
                _locked(file, remote, found[file], downloads / "sha256.json", report)
            write_collection(source, source.parse(paths), out / name, found)
            report.log("built", collection=str(out / name), licence=source.licence)
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the chosen collections."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"comma-separated; default all: {', '.join(SOURCES)}")
    parser.add_argument("--out", type=Path, default=BUILT, help="default out/data")
    given = parser.parse_args(arguments)
    names = given.only.split(",") if given.only else list(SOURCES)
    for name in names:
        if name not in SOURCES:
            sys.exit(f"no collection {name!r}; there are: {', '.join(SOURCES)}")
    try:
        build(names, given.out)
    except (FullrankError, OSError) as error:
        sys.exit(f"benchmarks.data.build: {error}")


if __name__ == "__main__":
    main()
