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
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import Bundle, list_bundles, open_bundle
from fullrank.bundle import write as publish
from fullrank.errors import BundleError, CollectionError, FullrankError
from fullrank.progress import Reporter
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded
from fullrank_trainer import indexing
from fullrank_trainer import indexing as encoders
from fullrank_trainer.indexing import encode_batches, index
from fullrank_trainer.workers import Worker
from tests.golden.test_golden import DOCUMENTS, WORDS, planted_model, write_planted
from tests.killing import killing
from tests.reranking import stage_of

QUIET = Reporter(quiet=True)
REPOSITORY = Path(__file__).resolve().parents[4]
COUNT = 83


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
    """Index the corpus in order, in one batch, in this process."""
    folder = tmp_path_factory.mktemp("straight")
    path = corpus(folder, lines())
    return open_bundle(index(bundle, path, folder / "out", processes=1, reporter=QUIET).path)


def test_indexing_encodes_new_documents_with_the_same_model(straight: Bundle, bundle: Path) -> None:
    parent = open_bundle(bundle)
    given = [json.loads(line) for line in lines()]
    assert straight.name == "planted"
    assert list(straight.documents.ids) == [item["_id"] for item in given]
    assert straight.documents.fields(5) == {k: v for k, v in given[5].items() if k != "_id"}
    expected = parent.model.encode_documents(
        [{"title": item["title"], "text": item["text"]} for item in given]
    )
    for name in ("dense", "indptr", "indices", "weights", "bias"):
        np.testing.assert_array_equal(
            straight.encoded.whole().arrays()[name], expected.arrays()[name]
        )
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


@pytest.mark.parametrize(("batch", "processes"), [(4096, 1), (7, 3)])
def test_a_second_stage_stays_and_reads_the_new_documents(
    batch: int, processes: int, tmp_path: Path
) -> None:
    """Training queries led to documents of the training, as often as before, and to no others."""
    stage, _ = stage_of(DOCUMENTS, seed=3)
    asked = [{**d.fields, "clicked": f"red {d.id}\nbake"} for d in DOCUMENTS]
    clicked = DocumentFacts.of(asked, stage.settings, np.arange(1, 6, dtype=np.int32))
    clicked = stage.statistics.weigh(clicked)
    parent = open_bundle(write_planted(tmp_path / "bundles", second_stage=(stage, clicked)))
    given = [*lines(), *(json.dumps({"_id": d.id, **d.fields}) for d in DOCUMENTS)]
    path = corpus(tmp_path, random.Random(2).sample(given, len(given)))
    out = tmp_path / "out"
    result = index(parent.path, path, out, batch=batch, processes=processes, reporter=QUIET)
    found = open_bundle(result.path)
    assert found.second_stage is not None
    assert found.facts is not None
    assert found.manifest.rerank == parent.manifest.rerank
    assert parent.facts is not None
    assert parent.facts.clicks.tolist() == [1, 2, 3, 4, 5]
    documents = [found.documents.fields(row) for row in range(len(found.documents))]
    ids = {document.id: place for place, document in enumerate(DOCUMENTS, 1)}
    clicks = np.array([ids.get(id, 0) for id in found.documents.ids], np.int32)
    assert np.count_nonzero(clicks) == len(DOCUMENTS)
    for id, fields in zip(found.documents.ids, documents, strict=True):
        fields |= asked[ids[id] - 1] if id in ids else {}
    facts = DocumentFacts.of(documents, stage.settings, clicks)
    expected = stage.statistics.weigh(facts).arrays()
    for name, array in found.facts.arrays().items():
        assert array.tobytes() == expected[name].tobytes()
    hits = found.search("red apple bake", 20)
    assert hits.reordered == len(given)


@pytest.mark.parametrize(
    "file",
    ["rerank/trees.leaf.npy", "rerank/words.idf.npy", "rerank/documents.clicks.npy", "ids.txt"],
)
def test_a_damaged_second_stage_is_refused(file: str, tmp_path: Path) -> None:
    bundle = write_planted(tmp_path / "bundles", second_stage=stage_of(DOCUMENTS, seed=3))
    [damaged] = bundle.rglob(file)
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    path = corpus(tmp_path, lines())
    with pytest.raises(BundleError, match=file):
        index(bundle, path, tmp_path / "out", processes=1, reporter=QUIET)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("batch", "processes", "name"),
    [
        (1, 1, "corpus.jsonl"),
        (7, 1, "corpus.jsonl.gz"),
        (5, 4, "corpus.jsonl"),
        (10, 3, "corpus.jsonl.gz"),
        (40, 2, "corpus.jsonl"),
        (4096, 2, "corpus.jsonl.gz"),
    ],
)
def test_batches_and_processes_do_not_change_the_bundle(
    batch: int, processes: int, name: str, straight: Bundle, bundle: Path, tmp_path: Path
) -> None:
    """Shuffled lines, batches, worker processes and gzip give equal files and an equal id."""
    path = corpus(tmp_path, random.Random(batch).sample(lines(), COUNT), name)
    result = index(
        bundle, path, tmp_path / "out", "other", batch=batch, processes=processes, reporter=QUIET
    )
    assert result.documents == COUNT
    found = open_bundle(result.path)
    assert found.manifest.files == straight.manifest.files
    assert found.bundle_id == straight.bundle_id
    assert (found.name, found.version) == ("other", result.path.name)


def test_the_search_index_is_the_same_for_any_batch_size(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is built from the documents on disk, so batches do not matter."""
    monkeypatch.setattr(publish, "INDEXED_FROM", COUNT)
    monkeypatch.setattr(publish, "FAST_FROM", COUNT)
    found = []
    for batch, processes in ((COUNT, 1), (9, 2)):
        path = corpus(tmp_path / str(batch), random.Random(batch).sample(lines(), COUNT))
        out = tmp_path / f"out{batch}"
        result = index(bundle, path, out, batch=batch, processes=processes, reporter=QUIET)
        found.append(open_bundle(result.path))
    first, second = found
    assert first.manifest.files == second.manifest.files
    assert first.manifest.index == second.manifest.index
    assert {"index/codes.npy", "index/cells.rows.npy"} <= first.manifest.files.keys()


def test_the_training_card_survives_repeated_indexing(straight: Bundle, tmp_path: Path) -> None:
    path = corpus(tmp_path, lines(9))
    again = open_bundle(index(straight.path, path, tmp_path / "out", reporter=QUIET).path)
    assert again.card["parent"] == straight.version
    assert again.card["trained"] == {"recipe": {"name": "planted"}, "seed": 7}


def test_given_queries_become_golden_queries(bundle: Path, tmp_path: Path) -> None:
    """Queries come from a file or a folder, are drawn by a seed, and empty ones are left out."""
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
            "corpus.jsonl:6: field '_id': 'd00002' is already the id of line 3",
        ),
        ([*lines(5), '{"_id": " "}'], "corpus.jsonl:6: field '_id': empty"),
    ],
)
def test_a_malformed_corpus_leaves_no_bundle(
    content: list[str], reason: str, bundle: Path, tmp_path: Path
) -> None:
    path = corpus(tmp_path / "in", content)
    with pytest.raises(CollectionError, match=reason):
        index(bundle, path, tmp_path / "out", reporter=QUIET)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["A", "", "../x"])
def test_a_bad_bundle_name_is_refused_before_reading(
    name: str, bundle: Path, tmp_path: Path
) -> None:
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
def test_an_interrupted_indexing_leaves_no_bundle(
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


def stopped_after(
    batches: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = KeyboardInterrupt
) -> list[int]:
    """Let the next run fail after so many batches; return the rows that each later run begins at."""
    real, begun = indexing._encoded, []

    def encoded(*arguments: Any) -> Iterator[Any]:
        begun.append(arguments[-1])
        for done, batch in enumerate(real(*arguments)):
            if done == batches and len(begun) == 1:
                raise error
            yield batch

    monkeypatch.setattr(indexing, "_encoded", encoded)
    return begun


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError, FullrankError])
@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_indexing_goes_on(
    error: type[BaseException],
    processes: int,
    straight: Bundle,
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second run begins at the last checkpoint, and writes what an uninterrupted one writes."""
    monkeypatch.setattr(publish, "CHECKPOINT_EACH", 20)
    begun = stopped_after(5, monkeypatch, error)
    path, out = corpus(tmp_path / "in", random.Random(3).sample(lines(), COUNT)), tmp_path / "out"

    def run(batch: int) -> Bundle:
        result = index(bundle, path, out, batch=batch, processes=processes, reporter=QUIET)
        return open_bundle(result.path)

    with pytest.raises((error, BundleError)) as raised:
        run(10)
    [kept] = (out / "planted").iterdir()
    assert any(str(kept) in note for note in raised.value.__notes__)
    assert list_bundles(out) == []
    found = run(7)
    assert begun == [0, 40]
    assert found.bundle_id == straight.bundle_id
    assert found.manifest.files == straight.manifest.files
    assert found.manifest.columns == straight.manifest.columns
    assert [one.name for one in (out / "planted").iterdir()] == [found.version]


def test_other_documents_begin_anew(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "CHECKPOINT_EACH", 20)
    begun = stopped_after(5, monkeypatch)
    path, out = corpus(tmp_path / "in", lines()), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        index(bundle, path, out, batch=10, processes=1, reporter=QUIET)
    path = corpus(tmp_path / "in", [*lines()[:-1], '{"_id": "d99999", "text": "apple"}'])
    index(bundle, path, out, batch=10, processes=1, reporter=QUIET)
    assert begun == [0, 0]


def test_a_refused_document_leaves_nothing(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command would be refused again, so no checkpoint stays."""
    monkeypatch.setattr(publish, "CHECKPOINT_EACH", 20)
    deep = '{"_id": "d99999", "deep": ' + "[" * 300 + "]" * 300 + "}"
    path = corpus(tmp_path / "in", [*lines(), deep])
    with pytest.raises(BundleError, match="d99999"):
        index(bundle, path, tmp_path / "out", batch=10, processes=1, reporter=QUIET)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_two_runs_do_not_write_one_bundle(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = corpus(tmp_path / "in", lines()), tmp_path / "out"
    real = indexing._encoded

    def encoded(*arguments: Any) -> Iterator[Any]:
        monkeypatch.setattr(indexing, "_encoded", real)
        with pytest.raises(BundleError, match="another process is writing"):
            index(bundle, path, out, processes=1, reporter=QUIET)
        yield from real(*arguments)

    monkeypatch.setattr(indexing, "_encoded", encoded)
    assert index(bundle, path, out, processes=1, reporter=QUIET).documents == COUNT


KILLED = """
from pathlib import Path
from fullrank.bundle import write
from fullrank.progress import Reporter
from fullrank_trainer.indexing import index

write.CHECKPOINT_EACH = 20

def work(folder):
    [bundle] = folder.glob("parent/planted/planted-*")
    index(bundle, folder / "corpus.jsonl", folder / "out", batch=10, processes=1,
          reporter=Reporter(quiet=True))
"""


@pytest.mark.sweep
def test_a_run_killed_at_any_step_goes_on(straight: Bundle, bundle: Path, tmp_path: Path) -> None:
    """Before each step on files in turn: the next run has the same result, and nothing else stays."""
    with killing(KILLED) as program:
        for step in count(0, 3):
            folder = tmp_path / str(step)
            shutil.copytree(bundle.parent, folder / "parent/planted")
            corpus(folder, lines())
            is_killed = program.killed_before(step, folder)
            if is_killed and not ((folder / "out").exists() and list_bundles(folder / "out")):
                assert not program.killed_before(1 << 30, folder)
            [info] = list_bundles(folder / "out")
            assert open_bundle(info.path).bundle_id == straight.bundle_id
            assert [one.name for one in info.path.parent.iterdir()] == [info.version]
            shutil.rmtree(folder)
            if not is_killed:
                return


def test_a_dead_worker_is_reported(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dead(Worker):
        def __init__(self, target: str, task: str) -> None:
            super().__init__(target, task)
            self.kill()

    monkeypatch.setattr(indexing, "Worker", Dead)
    path = corpus(tmp_path / "in", lines())
    with pytest.raises(FullrankError, match=r"encodes documents \(pid \d+\) was killed by SIGKILL"):
        index(bundle, path, tmp_path / "out", batch=10, processes=2, reporter=QUIET)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


class Peaks(Reporter):
    """Records the peak memory between two events."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.after: dict[str, int] = {}
        self._last = "beginning"

    def log(self, event: str, **figures: object) -> None:
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


@pytest.mark.sweep
def test_memory_does_not_grow_with_the_documents(bundle: Path, tmp_path: Path) -> None:
    """Checking needs memory for ids; encoding and writing for columns, whose texts all differ here."""
    peaks(100, bundle, tmp_path / "warm")
    few, many = (peaks(n, bundle, tmp_path / str(n)) for n in (500, 3000))
    assert many["beginning"] - few["beginning"] < 2500 * 500
    assert many["documents"] - few["documents"] < 2500 * 250


@pytest.mark.sweep
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_indexing_leaves_no_visible_bundle(
    how: signal.Signals, bundle: Path, tmp_path: Path
) -> None:
    """After Ctrl-C no file is left, and the workers end with their parent."""
    many = [f'{{"_id": "d{i:06}", "text": "apple bread"}}' for i in range(100_000)]
    path, out = corpus(tmp_path / "in", many), tmp_path / "out"
    arguments = ["index", bundle, path, "--out", out, "--batch", "50", "--processes", "3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fullrank", *map(str, arguments)],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
    )
    dense = "planted/.resume-*/documents/dense.npy"
    until = time.monotonic() + 60
    while not any(file.stat().st_size > 10_000 for file in out.glob(dense)):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(how)
    _, output = process.communicate(timeout=60)
    assert process.returncode == (130 if how == signal.SIGINT else -9), output
    assert "Traceback" not in output
    if how == signal.SIGINT:
        assert not list(out.iterdir())
    else:
        assert list_bundles(out) == []
    until = time.monotonic() + 30
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.sweep
def test_ctrl_c_says_how_to_go_on(bundle: Path, tmp_path: Path) -> None:
    many = [
        f'{{"_id": "d{i:06}", "text": "apple bread"}}'
        for i in range(publish.CHECKPOINT_EACH + 30_000)
    ]
    path, out = corpus(tmp_path / "in", many), tmp_path / "out"
    command = [sys.executable, "-m", "fullrank", "index", str(bundle), str(path), "--out", str(out)]

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)

    process, until = started(), time.monotonic() + 120
    while not list(out.glob("planted/.resume-*/checkpoint.json")):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130, output
    [kept] = out.glob("planted/.resume-*")
    assert f"{kept} keeps what is done: run the same command again" in " ".join(output.split())
    again = started()
    assert again.stderr is not None
    resumed = f"resumed  documents {publish.CHECKPOINT_EACH}\n"
    assert resumed in iter(again.stderr.readline, "")
    again.kill()
    again.communicate()


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


_DEADLINE_S = 60


class Waiting:
    """A model that encodes a batch only when the worker has something to say."""

    def __init__(self) -> None:
        self.model, self.encoded, self.is_heard = planted_model(), 0, False
        self.workers: list[Worker] = []

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        self.encoded += 1
        until = time.monotonic() + _DEADLINE_S
        while not Worker.has_message(self.workers[0]):
            assert time.monotonic() < until, "the worker says nothing"
            time.sleep(0.01)
        self.is_heard = True
        return self.model.encode_documents(documents)


@pytest.mark.sweep
def test_a_worker_and_this_process_share_the_batches(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = Waiting()

    class Noted(Worker):
        """Says one thing after each batch that this process has encoded, however quick it is."""

        def __init__(self, target: str, task: str) -> None:
            super().__init__(target, task)
            model.workers.append(self)

        def has_message(self) -> bool:
            return model.is_heard and super().has_message()

        def receive(self) -> Any:
            model.is_heard = False
            return super().receive()

    monkeypatch.setattr(encoders, "Worker", Noted)
    rng = np.random.default_rng(3)
    batches = [
        [Document(f"d{b}-{i}", {"title": " ".join(rng.choice(WORDS, 4))}) for i in range(5)]
        for b in range(6)
    ]
    found = list(encode_batches(batches, model, bundle, 2))

    assert model.encoded == 3, "the worker has encoded the others"
    assert [documents for documents, _ in found] == batches
    for documents, encoded in found:
        alone = planted_model().encode_documents([{"title": d.fields["title"]} for d in documents])
        for name, array in alone.arrays().items():
            np.testing.assert_array_equal(encoded.arrays()[name], array)
