"""The collections of the results, built from small archives in the form of the real ones."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import lzma
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.data import build as module
from benchmarks.data import parsers
from benchmarks.data.build import Remote, Source, build, download
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection

PAGE = """# tar

> Archiving utility.
> See <https://example.org/list>.
> More information: <https://example.org/tar>.

- [c]reate an archive and write it to a [f]ile:

`tar cf {{path/to/target.tar}} {{path/to/file1 path/to/file2 ...}}`

- Extract with `--wildcards`:

`tar {{[-x|--extract]}} {{source.tar[.gz|.xz]}} a[1]`
"""
PACKAGES = """Package: aa
Depends: bb (>= 1), cc | dd:any, libc6
Suggests: aa
Description: letter a
Description-md5: 1
Section: text

Package: bb
Recommends: libc6,
 dd
Description: letter b
Description-md5: 2
Section: text

Package: dd
Depends: libc6
Description: letter dd
Description-md5: 3
Section: text

Package: libc6
Description: library
Description-md5: 4
Section: libs

Package: empty
Description: nothing to say
Description-md5: 5
Section: oldlibs
"""
ENGLISH = """Package: aa
Description-md5: 1
Description-en: letter a
 The first
 letter.
 .
 A vowel.

""" + "\n".join(
    f"Package: {name}\nDescription-md5: {n}\nDescription-en: {name}\n About {name}.\n"
    for name, n in (("bb", 2), ("dd", 3), ("libc6", 4))
)
JAPANESE = "Package: aa\nDescription-md5: 9\nDescription-ja: 文字\n 最初の\n 文字。\n"
TABLES = {
    "articles": "# Names.\n\nA%C3%A9\nB_b\nC\nD",
    "links": "# Links.\n\nA%C3%A9\tB_b\nB_b\tA%C3%A9\nB_b\tC\nC\tD\nC\tC",
    "categories": "# Paths.\n\nA%C3%A9\tsubject.Science.Biology",
    "paths_finished": "# Games.\n\nip\t1\t2\tA%C3%A9;B_b;<;B_b;C\tNULL\nip\t1\t2\tC\tNULL",
}
ARTICLE = """   #copyright

Bee

2007 Schools Wikipedia Selection. Related subjects: Insects

   A bee is
   an insect.

History

   It is old.
   Retrieved from here.

   Retrieved from "http://example.org"
   This text is left out.
"""


def write_archive(path: Path, files: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def tldr(tmp_path: Path) -> dict[str, Path]:
    pages = {f"pages/linux/p{n}": PAGE for n in range(40)} | {"pages/common/tar": PAGE}
    pages["pages.ko/common/tar"] = PAGE.replace("Extract with", "추출")
    pages["pages.ko/common/gone"] = pages["pages.de/common/tar"] = PAGE
    files = {f"tldr-08e/{name}.md": text for name, text in pages.items()}
    return {"tldr.tar.gz": write_archive(tmp_path / "tldr.tar.gz", files)}


@pytest.fixture
def debian(tmp_path: Path) -> dict[str, Path]:
    files = {
        "Packages.xz": lzma.compress(PACKAGES.encode()),
        "Translation-en.xz": lzma.compress(ENGLISH.encode()),
        "Translation-ja.bz2": bz2.compress(JAPANESE.encode()),
    }
    for name, packed in files.items():
        (tmp_path / name).write_bytes(packed)
    return {name: tmp_path / name for name in files}


@pytest.fixture
def wikispeedia(tmp_path: Path) -> dict[str, Path]:
    graph = {f"wikispeedia_paths-and-graph/{name}.tsv": text for name, text in TABLES.items()}
    texts = {f"plaintext_articles/{name}.txt": ARTICLE for name in ("A%C3%A9", "B_b", "C")}
    return {
        parsers.GRAPH: write_archive(tmp_path / parsers.GRAPH, graph),
        parsers.TEXTS: write_archive(tmp_path / parsers.TEXTS, texts),
    }


def judged(files: parsers.Files, under: str = "") -> dict[tuple[str, str], str]:
    """The judged pairs and the split of each."""
    return {
        (query, document): split
        for split in ("train", "valid", "test")
        for query, document, _ in files[f"{under}qrels/{split}.tsv"][1:]
    }


def test_pages_become_documents_and_tasks_queries(tldr: dict[str, Path]) -> None:
    files = parsers.tldr(tldr)
    assert len(files["corpus.jsonl.gz"]) == 41
    assert files["corpus.jsonl.gz"][0] == {
        "_id": "common/tar",
        "title": "tar",
        "text": "Archiving utility. See .",
        "commands": "tar cf path/to/target.tar path/to/file1 path/to/file2 ... ;"
        " tar -x --extract source.tar .gz .xz a[1]",
    }
    queries = {query["_id"]: query["text"] for query in files["en/queries.jsonl.gz"]}
    tasks = {"create an archive and write it to a file", "Extract with --wildcards"}
    assert set(queries.values()) == tasks
    pairs = judged(files, "en/")
    assert {query for query, _ in pairs} == set(queries)
    assert all(query == f"en/{document}#{query[-1]}" for query, document in pairs)
    assert {document for _, document in judged(files, "ko/")} <= {"common/tar"}


def test_packages_become_documents_and_relations_links(
    debian: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsers, "OF_LINKS", (("train", 1.0),))
    files = parsers.debian(debian, most_named=1)
    documents = {document["_id"]: document for document in files["corpus.jsonl.gz"]}
    assert set(documents) == {"aa", "bb", "dd", "libc6"}
    assert documents["aa"] == {
        "_id": "aa", "title": "aa: letter a", "text": "The first letter. A vowel.", "section": "text",
    }  # fmt: skip
    assert set(judged(files)) == {("aa", "bb"), ("aa", "dd"), ("bb", "dd")}
    assert files["ja/queries.jsonl.gz"] == [{"_id": "aa", "title": "文字", "text": "最初の 文字。"}]


def test_articles_become_documents_and_games_clicks(
    wikispeedia: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsers, "OF_LINKS", (("train", 1.0),))
    files = parsers.wikispeedia(wikispeedia)
    first = files["corpus.jsonl.gz"][0]
    assert (first["_id"], first["title"]) == ("Aé", "Aé")
    assert first["text"] == "A bee is an insect.\nHistory\nIt is old. Retrieved from here."
    assert set(judged(files)) == {("Aé", "B_b"), ("B_b", "Aé"), ("B_b", "C")}
    assert files["categories.tsv"][1:] == [("Aé", "Science.Biology")]
    assert files["clicks/train.tsv.gz"][1:] == [("Aé", "B_b", "2"), ("B_b", "C", "1")]


def test_shares_of_the_splits() -> None:
    found = [parsers.split_of(f"query {n}", parsers.OF_QUERIES) for n in range(10_000)]
    counts = {split: found.count(split) / 10_000 for split in ("train", "valid", "test", None)}
    assert counts == pytest.approx(
        {"train": 0.70, "valid": 0.05, "test": 0.15, None: 0.10}, abs=0.015
    )


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "x.tar.gz", {"a/b.txt": "x"})
    with pytest.raises(parsers.SourceError, match=r"no pages/PLATFORM/NAME\.md"):
        parsers.tldr({"tldr.tar.gz": path})
    with pytest.raises(parsers.SourceError, match="'articles'"):
        parsers.wikispeedia({parsers.GRAPH: path, parsers.TEXTS: path})


class Server(ThreadingHTTPServer):
    """Serves one file; the first reply stops in the middle."""

    daemon_threads = True
    body = b"0123456789" * 1000
    ranges: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        body = self.server.body[begin:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if asked else body[:4000])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[tuple[str, Server]]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.ranges = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/file", server
        finally:
            server.shutdown()


def test_a_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, report = tmp_path / "file", Reporter(quiet=True)
    with serving() as (address, server):
        with pytest.raises(module.DownloadError, match="ended after 4000 of 10000 bytes"):
            download(Remote((address,)), path, report)
        assert not path.exists()
        found = download(Remote(("http://127.0.0.1:1/", address)), path, report)
        assert server.ranges == [None, "bytes=4000-"]
        assert found == hashlib.sha256(Server.body).hexdigest()
        with pytest.raises(module.DownloadError, match="instead of 00"):
            download(Remote((address,), "00"), path, report)
    assert not path.exists()


def test_a_collection_is_built_once_and_its_sources_are_held(
    tldr: dict[str, Path], tmp_path: Path
) -> None:
    source = Source("1", "CC0", {"tldr.tar.gz": Remote(())}, parsers.tldr)
    out = tmp_path / "out"
    (out / "downloads").mkdir(parents=True)
    tldr["tldr.tar.gz"].rename(out / "downloads" / "tldr.tar.gz")
    assert build(["tldr"], out, {"tldr": source}) == out
    facts = json.loads((out / "tldr" / "source.json").read_text())
    assert facts["licence"] == "CC0"
    assert len(read_collection(out / "tldr" / "en").documents) == 41
    changed = replace(source, built={"corpus.jsonl.gz": "00"})
    assert build(["tldr"], out, {"tldr": changed}) == out  # there already
    (out / "tldr").rename(out / "before")
    with pytest.raises(parsers.SourceError, match="instead of 00"):
        build(["tldr"], out, {"tldr": changed})
    assert sorted(path.name for path in out.iterdir()) == ["before", "downloads"]
    write_archive(out / "downloads" / "tldr.tar.gz", {"x/pages/common/a.md": PAGE})
    with pytest.raises(module.DownloadError, match=r"sha256\.json has [0-9a-f]{64} of the first"):
        build(["tldr"], out, {"tldr": source})


def test_wrong_names_and_failures_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="no collection 'shop'; there are: tldr"):
        module.main(["--only", "shop"])
    remote = Remote(("http://127.0.0.1:1/x",))
    source = Source("1", "CC0", {"x": remote}, parsers.tldr)
    monkeypatch.setitem(module.SOURCES, "tldr", source)
    monkeypatch.setattr(build, "__defaults__", ({"tldr": source},))
    with pytest.raises(
        SystemExit, match=r"^benchmarks\.data\.build: http://127\.0\.0\.1:1/x: .*refused"
    ):
        module.main(["--only", "tldr", "--out", str(tmp_path)])
