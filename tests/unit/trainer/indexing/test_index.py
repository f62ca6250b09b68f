"""Indexing a corpus with a trained model: one result however it is fed, and nothing left when it fails."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import write as publish
from fullrank.bundle.catalog import Bundle, list_bundles, open_bundle, write_bundle
from fullrank.errors import BundleError, CollectionError, FullrankError
from tests.golden.test_golden import CREATED, DOCUMENTS, QUERIES, WORDS, planted_model
from trainer import encoders
from trainer.indexing import index as indexing
from trainer.indexing.index import index
from trainer.progress import Reporter

QUIET = Reporter(quiet=True)
REPOSITORY = Path(__file__).resolve().parents[3]
COUNT = 83


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The planted model, with five documents of its own."""
    model = planted_model()
    return write_bundle(
        tmp_path_factory.mktemp("bundles"),
        "planted",
        model=model,
        encoded=model.encode_documents([d.texts(["title", "text"]) for d in DOCUMENTS]),
        documents=DOCUMENTS,
        golden_queries=QUERIES,
        card={"recipe": {"name": "planted"}, "seed": 7},
        created=CREATED,
    )


def lines(count: int = COUNT) -> list[str]:
    rng = np.random.default_rng(4)
    return [
        json.dumps(
            {
                "_id": f"d{i:05}",
                "title": " ".join(rng.choice(WORDS, i % 3)),
                "text": " ".join(rng.choice(WORDS, i % 11)),
                "tags": ["a", "b"],
            },
            ensure_ascii=False,
        )
        for i in range(count)
    ]


def corpus(folder: Path, content: list[str], name: str = "corpus.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    data = "".join(line + "\n" for line in content).encode()
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.fixture(scope="module")
def straight(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The corpus in order, in one batch, in this process."""
    folder = tmp_path_factory.mktemp("straight")
    path = corpus(folder, lines())
    return open_bundle(index(bundle, path, folder / "out", processes=1, reporter=QUIET).path)


def test_it_is_the_model_over_other_documents(straight: Bundle, bundle: Path) -> None:
    parent = open_bundle(bundle)
    given = [json.loads(line) for line in lines()]
    assert straight.name == "planted"
    assert list(straight.documents.ids) == [item["_id"] for item in given]
    assert straight.documents.fields(5) == {k: v for k, v in given[5].items() if k != "_id"}
    expected = parent.model.encode_documents(
        [{"title": item["title"], "text": item["text"]} for item in given]
    )
    for name in ("dense", "indptr", "indices", "weights", "bias"):
        np.testing.assert_array_equal(getattr(straight.encoded, name), getattr(expected, name))
    for name, entry in parent.manifest.files.items():
        if name.startswith("model/"):
            assert straight.manifest.files[name] == entry
    assert straight.manifest.model == parent.manifest.model
    card = straight.card
    assert (card["parent"], card["parent_bundle_id"]) == (parent.version, parent.bundle_id)
    assert card["collection"]["documents"] == COUNT
    assert card["collection"]["empty_documents"] == 8
    assert card["trained"] == parent.card
    assert len((straight.path / "golden.jsonl").read_text("utf-8").split("\n")) > 15


@pytest.mark.parametrize(
    ("batch", "processes"), [(1, 1), (7, 1), (83, 4), (10, 3), (40, 2), (4096, 2)]
)
@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_however_it_is_fed_the_bundle_is_the_same(
    batch: int, processes: int, name: str, straight: Bundle, bundle: Path, tmp_path: Path
) -> None:
    """Shuffled lines, batches, worker processes, gzip: equal files, equal id."""
    path = corpus(tmp_path, random.Random(batch).sample(lines(), COUNT), name)
    result = index(
        bundle, path, tmp_path / "out", "other", batch=batch, processes=processes, reporter=QUIET
    )
    assert result.documents == COUNT
    found = open_bundle(result.path)
    assert found.manifest.files == straight.manifest.files
    assert found.bundle_id == straight.bundle_id
    assert (found.name, found.version) == ("other", result.path.name)


def test_the_index_too_is_the_same(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built from the documents on disk, whatever batches they came in."""
    monkeypatch.setattr(publish, "INDEXED_FROM", COUNT)
    found = []
    for batch, processes in ((COUNT, 1), (9, 2)):
        path = corpus(tmp_path / str(batch), random.Random(batch).sample(lines(), COUNT))
        out = tmp_path / f"out{batch}"
        result = index(bundle, path, out, batch=batch, processes=processes, reporter=QUIET)
        found.append(open_bundle(result.path))
    first, second = found
    assert first.manifest.files == second.manifest.files
    assert first.manifest.index == second.manifest.index
    assert {"index/codes.npy", "index/cells.faiss"} <= first.manifest.files.keys()


def test_the_card_of_the_training_stays_when_it_is_indexed_again(
    straight: Bundle, tmp_path: Path
) -> None:
    path = corpus(tmp_path, lines(9))
    again = open_bundle(index(straight.path, path, tmp_path / "out", reporter=QUIET).path)
    assert again.card["parent"] == straight.version
    assert again.card["trained"] == {"recipe": {"name": "planted"}, "seed": 7}


def test_golden_queries_are_those_that_are_asked(bundle: Path, tmp_path: Path) -> None:
    """Where they are given, as a file or in a folder; drawn by a seed, empty ones left out."""
    path = corpus(tmp_path, lines(9))
    asked = [f"apple bread {i}" for i in range(100)]
    items = [json.dumps({"_id": str(i), "text": text}) for i, text in enumerate([*asked, " "])]
    file = corpus(tmp_path, items, "queries.jsonl.gz")
    found = []
    for given, out in ((file, "a"), (tmp_path, "b")):
        result = index(bundle, path, tmp_path / out, queries=given, reporter=QUIET)
        golden = (result.path / "golden.jsonl").read_text("utf-8").split("\n")[:-1]
        found.append([json.loads(line)["query"] for line in golden])
    assert found[0] == found[1]
    assert len(set(found[0])) == 20
    assert set(found[0]) <= set(asked)
    with pytest.raises(CollectionError, match=r"no queries\.jsonl"):
        index(bundle, path, tmp_path / "c", queries=bundle, reporter=QUIET)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "no documents"),
        (
            [*lines(5), lines(5)[2]],
            "corpus.jsonl:6: field '_id': 'd00002' already stands in line 3",
        ),
        ([*lines(5), '{"_id": " "}'], "corpus.jsonl:6: field '_id': empty"),
    ],
)
def test_a_corpus_that_is_refused_leaves_nothing(
    content: list[str], reason: str, bundle: Path, tmp_path: Path
) -> None:
    path = corpus(tmp_path / "in", content)
    with pytest.raises(CollectionError, match=reason):
        index(bundle, path, tmp_path / "out", reporter=QUIET)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["A", "", "../x"])
def test_a_name_that_cannot_work_is_refused_first(name: str, bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot name a bundle"):
        index(bundle, tmp_path / "absent", tmp_path / "out", name, reporter=QUIET)


def test_a_damaged_model_is_refused(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    table = copy / "model" / "query.table.npy"
    content = bytearray(table.read_bytes())
    content[-1] ^= 1
    table.write_bytes(content)
    with pytest.raises(BundleError, match=r"model/query\.table\.npy: sha256 differs"):
        index(copy, corpus(tmp_path, lines()), tmp_path / "out", reporter=QUIET)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_half_way_leaves_nothing(
    error: type[BaseException], bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = indexing._batches, 0

    def batches(documents: Iterator[object], size: int) -> Iterator[object]:
        nonlocal calls
        for batch in real(documents, size):
            calls += 1
            if calls == 5:
                raise error
            yield batch

    monkeypatch.setattr(indexing, "_batches", batches)
    path = corpus(tmp_path / "in", lines())
    with pytest.raises(error):
        index(bundle, path, tmp_path / "out", batch=10, processes=2, reporter=QUIET)
    assert calls == 5
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_a_worker_that_dies_is_said(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = encoders.Worker.start

    def start(module: str) -> encoders.Worker:
        worker = real(module)
        worker.process.kill()
        return worker

    monkeypatch.setattr(encoders.Worker, "start", start)
    path = corpus(tmp_path / "in", lines())
    with pytest.raises(FullrankError, match="a process that encodes documents died"):
        index(bundle, path, tmp_path / "out", batch=10, processes=2, reporter=QUIET)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


class Peaks(Reporter):
    """Notes the most memory between one event and the next."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.after: dict[str, int] = {}
        self._last = "beginning"

    def say(self, event: str, **figures: object) -> None:
        self.after[self._last] = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        self._last = str(figures.get("part", event))


def peaks(count: int, bundle: Path, folder: Path) -> dict[str, int]:
    noted = Peaks()
    path = corpus(folder, lines(count))
    tracemalloc.start()
    try:
        index(bundle, path, folder / "out", batch=50, processes=1, reporter=noted)
    finally:
        tracemalloc.stop()
    return noted.after


def test_memory_does_not_grow_with_the_documents(bundle: Path, tmp_path: Path) -> None:
    """Reading and checking takes the ids, encoding and writing next to nothing."""
    peaks(100, bundle, tmp_path / "warm")
    few, many = (peaks(n, bundle, tmp_path / str(n)) for n in (500, 3000))
    assert many["beginning"] - few["beginning"] < 2500 * 500
    assert many["documents"] - few["documents"] < 2500 * 50


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_killed_half_way_nothing_is_visible(
    how: signal.Signals, bundle: Path, tmp_path: Path
) -> None:
    """And after Ctrl-C nothing is left at all; the workers end with their parent in any case."""
    many = [f'{{"_id": "d{i:06}", "text": "apple bread"}}' for i in range(100_000)]
    path, out = corpus(tmp_path / "in", many), tmp_path / "out"
    arguments = ["index", bundle, path, "--out", out, "--batch", "50", "--processes", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fullrank", *map(str, arguments)],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
    )
    dense = "planted/.tmp-*/documents/dense.npy"
    until = time.monotonic() + 60
    while not any(file.stat().st_size > 10_000 for file in out.glob(dense)):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if how == signal.SIGINT else -9)
    assert "Traceback" not in said
    if how == signal.SIGINT:
        assert not list(out.iterdir())
    else:
        assert list_bundles(out) == []
    until = time.monotonic() + 30
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
