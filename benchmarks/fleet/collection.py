"""Sharded bundles of a corpus, and searches for its titles."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fullrank.progress import Reporter
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets import read_set, shard_folder, write_set
from fullrank_fleet.sets.titles import TITLES


def lines_of(corpus: Path) -> Iterator[str]:
    """Read the lines of corpus.jsonl[.gz] in a folder."""
    packed = corpus / "corpus.jsonl.gz"
    with gzip.open(packed, "rt") if packed.exists() else (corpus / "corpus.jsonl").open() as file:
        yield from file


def titles(corpus: Path, count: int) -> list[str]:
    """Return different titles from all over the corpus."""
    found = (json.loads(line).get("title") for line in lines_of(corpus))
    texts = sorted({title for title in found if isinstance(title, str) and title.strip()})
    return texts[:: max(1, len(texts) // count)][:count]


def sharded(bundle: Path, corpus: Path, out: Path, shards: int) -> Path:
    """Index a corpus in this process; return the folder of the sharded bundle."""
    written = index_set(
        str(bundle), str(corpus), str(out), "sets", shards=shards, runner=InProcess(),
        reporter=Reporter(quiet=True),
    )  # fmt: skip
    return Path(written.address)


def halved(corpus: Path, folder: Path) -> Path:
    """Write every second document of a corpus into a folder."""
    folder.mkdir()
    with (folder / "corpus.jsonl").open("w") as file:
        file.writelines(line for number, line in enumerate(lines_of(corpus)) if number % 2)
    return folder


def cloned(source: Path, version: str) -> Path:
    """Make a further version of a sharded bundle, whose files are the same on the disk."""
    target = source.parent / version
    manifest = read_set(Folder(str(source)))
    for number, shard in enumerate(manifest.shards):
        if shard.documents:
            name = shard_folder(number)
            shutil.copytree(source / name, target / name, copy_function=os.link)
    if manifest.titles_sha256 is not None:
        os.link(source / TITLES, target / TITLES)
    write_set(Folder(str(target)), replace(manifest, version=version))
    return target
