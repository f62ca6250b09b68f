"""The command line: what each command prints on stdout and stderr, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fullrank import cli
from fullrank.bundle import write_bundle
from fullrank.cli import output
from fullrank.encoding import Encoded, Rows
from fullrank.errors import TrainingError
from fullrank.measures import MEASURES, Estimate
from fullrank.models import registry as kinds
from fullrank.models.contract import Parts
from fullrank.scoring import TermShare
from fullrank.storage.documents import Document
from tests.planted import write_planted
from tests.ports import free_port
from trainer.recipes.recipe import recipe_names

WORDS = ["ant", "bee", "cat"]
DOCUMENTS = [
    Document("a", {"title": "ant", "text": "ant bee"}),
    Document("b", {"title": "bee", "text": "bee"}),
    Document("c", {"title": "cat [bold]", "text": "cat bee"}),
]


class CountingModel:
    """Counts words: a sparse part only."""

    config: dict[str, Any]
    n_dense, n_sparse = 0, len(WORDS)

    def __init__(self) -> None:
        self.config = {"kind": "counting"}

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        counts = np.array([[t.split().count(w) for w in WORDS] for t in texts], np.float32)
        rows, columns = np.nonzero(counts)
        return Encoded(
            np.zeros((len(texts), 0), np.float32),
            Rows(
                np.searchsorted(rows, np.arange(len(texts) + 1)).astype(np.int64),
                columns.astype(np.int32),
                counts[rows, columns],
                self.n_sparse,
            ),
            np.zeros(len(texts), np.float32),
        )

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        return self.encode_queries([document["text"] for document in documents])

    def query_text(self, fields: Mapping[str, Any]) -> str:
        return str(fields.get("text", ""))

    def query_terms(self, text: str) -> list[TermShare]:
        none = np.zeros(0, np.float32)
        return [TermShare(word, none, WORDS.index(word), 1.0) for word in text.split()]

    def scorer(self, documents: Encoded) -> None:
        return None

    def parts(self) -> Parts:
        return Parts(self.config, {}, {})


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of bundles that holds one version of one model."""
    monkeypatch.setitem(kinds.KINDS, "counting", lambda _: CountingModel())
    folder = tmp_path / "bundles"
    counting = CountingModel()
    encoded = counting.encode_documents([item.texts(["text"]) for item in DOCUMENTS])
    write_bundle(
        folder,
        "mine",
        model=counting,
        encoded=encoded,
        documents=DOCUMENTS,
        golden_queries=["ant", "bee cat"],
        card={"recipe": "counting", "author": "é", "metrics": {"mrr": 0.5}},
    )
    return folder


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""

    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fullrank", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured = capsys.readouterr()
        code = exit_.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call


def test_search_prints_json(run: Run, root: Path) -> None:
    got = run("search", root / "mine", "ant bee", "--limit", "2", "--explain", "--json")
    assert (got.code, got.err) == (0, "")
    answer = json.loads(got.out)
    assert answer.pop("took_ms") >= 0
    assert answer.pop("bundle").startswith("mine-")
    hits = answer.pop("hits")
    assert answer == {"query": "ant bee", "certified": True, "total": 3, "reordered": 0}
    assert [hit["id"] for hit in hits] == ["a", "b"]
    assert hits[0] == {
        "id": "a",
        "score": 2.0,
        "dense": 0.0,
        "lexical": 2.0,
        "bias": 0.0,
        "fields": {"title": "ant", "text": "ant bee"},
        "words": [
            {"word": "ant", "dense": 0.0, "lexical": 1.0},
            {"word": "bee", "dense": 0.0, "lexical": 1.0},
        ],
    }


def test_search_prints_a_table_that_keeps_brackets(run: Run, root: Path) -> None:
    got = run("search", root, "cat", "--explain")
    assert got.code == 0
    lines = got.out.splitlines()
    assert lines[0].split() == ["score", "dense", "lexical", "bias", "id", "title", "words"]
    assert "cat [bold]" in lines[1]
    assert "cat +1.00" in lines[1]


def test_search_applies_a_filter(run: Run, root: Path) -> None:
    got = run("search", root, "ant bee", "--filter", '{"not": {"title": {"lt": "b"}}}', "--json")
    assert (got.code, got.err) == (0, "")
    everything = json.loads(run("search", root, "ant bee", "--json").out)
    answer = json.loads(got.out)
    kept = [hit for hit in everything["hits"] if not hit["fields"].get("title", "z") < "b"]
    assert 0 < len(kept) < len(everything["hits"])
    assert (answer["hits"], answer["total"]) == (kept, len(kept))
    for asked, reason in (('{"title": 3}', "filter.title: this field has text"), ("{", "JSON")):
        got = run("search", root, "ant", "--filter", asked)
        assert (got.code, got.out) == (1, "")
        assert reason in got.err


def test_a_bundle_is_found_by_folder_name_and_version(run: Run, root: Path) -> None:
    version = next((root / "mine").iterdir()).name
    for path in (root / "mine" / version, root / "mine", root / version, root):
        got = run("search", path, "ant", "--json")
        assert (got.code, got.err) == (0, "")
        assert json.loads(got.out)["bundle"] == version


def test_a_missing_bundle_is_one_line_on_stderr(run: Run, root: Path) -> None:
    got = run("search", root.parent / "nowhere", "ant")
    assert (got.code, got.out) == (1, "")
    assert got.err.startswith("fullrank: ")
    assert len(got.err.splitlines()) == 1


def test_list_prints_bundles(run: Run, root: Path) -> None:
    got = run("bundles", "list", root, "--json")
    (listed,) = json.loads(got.out)
    assert listed["name"] == "mine"
    assert listed["version"].startswith("mine-")
    assert Path(listed["path"]).is_dir()
    table = run("bundles", "list", root).out.splitlines()
    assert listed["version"] in table[1]


def test_show_prints_the_model_card(run: Run, root: Path) -> None:
    shown = json.loads(run("bundles", "show", root / "mine", "--json").out)
    assert shown["model"] == {"kind": "counting"}
    assert shown["card"]["recipe"] == "counting"
    assert "card.metrics.mrr" in run("bundles", "show", root / "mine").out


def test_verify_names_the_damaged_file(run: Run, root: Path) -> None:
    good = run("bundles", "verify", root)
    assert good.code == 0
    assert good.out.rstrip().endswith(": ok")
    (version,) = (root / "mine").iterdir()
    golden = version / "golden.jsonl"
    golden.write_bytes(golden.read_bytes().replace(b"ant", b"and"))
    bad = run("bundles", "verify", root, "--json")
    assert bad.code == 1
    assert bad.err == "fullrank: 1 of 1 bundles failed verification\n"
    (verdict,) = json.loads(bad.out)
    assert verdict["ok"] is False
    assert "golden.jsonl" in verdict["error"]


def test_verify_reports_a_folder_without_a_manifest(run: Run, root: Path) -> None:
    (root / "mine" / "mine-half").mkdir()
    got = run("bundles", "verify", root)
    assert got.code == 1
    assert "mine-half" in got.out


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": item.id, **item.fields} for item in DOCUMENTS]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in corpus))
    queries = [{"_id": "q1", "text": "ant"}, {"_id": "q2", "text": "bee"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in queries))
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "test.tsv").write_text(header + "q1\ta\t1\nq2\tb\t1\nq2\tb\t1\n")
    (folder / "qrels" / "train.tsv").write_text(header + "q2\ta\t1\n")
    return folder


def test_evaluate_measures_a_split(run: Run, root: Path, collection: Path) -> None:
    got = run("evaluate", root / "mine", collection, "--json", "--run", root / "run.txt")
    assert got.code == 0
    # The repeated judgement is reported.
    assert "1 judgements given more than once" in got.err
    report = json.loads(got.out)
    # q1 finds a first; q2 ties over all three documents and b is second by id.
    assert report["measures"]["mrr"]["mean"] == 0.75
    assert report["queries"] == 2
    assert len((root / "run.txt").read_text().splitlines()) == 6
    excluded = run(
        "evaluate",
        root / "mine",
        collection,
        "--exclude-split",
        "train",
        "--split",
        "test",
        "--json",
    )
    assert json.loads(excluded.out)["measures"]["mrr"]["mean"] == 1.0
    table = run("evaluate", root / "mine", collection).out
    assert "rank_loss" in table
    assert "0.7500" in table


def test_evaluate_skips_a_judgement_of_a_deleted_document_unless_strict(
    run: Run, root: Path, collection: Path
) -> None:
    with (collection / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\tdeleted\t1\n")
    got = run("evaluate", root / "mine", collection)
    assert got.code == 0
    assert "1 judgement of unknown ids, skipped: 'deleted'" in got.err
    got = run("evaluate", root / "mine", collection, "--strict")
    assert (got.code, got.out) == (1, "")
    assert "'deleted'" in got.err


def test_evaluate_names_file_line_and_field(run: Run, root: Path, collection: Path) -> None:
    (collection / "corpus.jsonl").write_text('{"_id": "a", "text": 7}\n')
    got = run("evaluate", root / "mine", collection)
    assert got.code == 1
    assert "corpus.jsonl:1: field 'text': expected a string, got int" in got.err


def test_index_writes_a_new_bundle(run: Run, root: Path, collection: Path, tmp_path: Path) -> None:
    out = tmp_path / "indexed"
    one = ("--batch", "2", "--processes", "1")  # others would not know this test's model
    got = run("index", root / "mine", collection, "--out", out, *one, "--json")
    assert got.code == 0
    events = [json.loads(line) for line in got.err.splitlines()]
    assert events[0]["event"] == "read"
    assert events[0]["documents"] == 3
    assert events[-1]["event"] == "written"
    answer = json.loads(got.out)
    assert answer["documents"] == 3
    assert answer["parent"].startswith("mine-")
    assert answer["version"] == Path(answer["bundle"]).name
    hits = json.loads(run("search", out, "ant bee", "--json").out)["hits"]
    assert [hit["id"] for hit in hits] == ["a", "b", "c"]
    file = collection / "corpus.jsonl"
    plain = run("index", root, file, "--out", out, "--name", "other", *one)
    assert plain.code == 0
    assert " ".join(plain.out.split()).endswith("3 documents in 0 s")
    assert (out / "other").is_dir()


def test_index_refuses_in_one_line(run: Run, root: Path, collection: Path, tmp_path: Path) -> None:
    file = collection / "corpus.jsonl"
    file.write_text(file.read_text() * 2)
    got = run("index", root / "mine", file, "--out", tmp_path / "indexed")
    assert (got.code, got.out) == (1, "")
    assert got.err == f"fullrank: {file}:4: field '_id': 'a' is already the id of line 1\n"
    assert run("index", root, file).code == 2
    assert not (tmp_path / "indexed").exists()


def stub_training(monkeypatch: pytest.MonkeyPatch, train: Callable[..., object]) -> None:
    training = ModuleType("trainer.train")
    training.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trainer.train", training)


def test_train_passes_every_option_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[Any, Any]] = []

    row = SimpleNamespace(
        system="bm25",
        split="valid",
        queries=9,
        measures={name: Estimate(0.25, 0.125) for name in MEASURES},
    )

    def fake_train(*args: object, **options: object) -> object:
        calls.append((args, options))
        return SimpleNamespace(
            path=tmp_path / "mine" / "mine-1",
            table=[row],
            seconds=1.5,
            as_dict=lambda: {"version": "mine-1", "table": [{"system": "bm25"}]},
        )

    stub_training(monkeypatch, fake_train)
    got = run(
        *("train", tmp_path / "c", "--out", tmp_path, "--name", "mine", "--recipe", "ssi"),
        *(
            "--set",
            "a=1",
            "--set",
            "b=2",
            "--init",
            "words.vec",
            "--seed",
            "7",
            "--threads",
            "2",
            "--resume",
            "--fields",
            "title, brand",
            "--strict",
            "--json",
        ),
    )
    assert got.code == 0
    ((args, options),) = calls
    assert args == (tmp_path / "c", tmp_path, "mine")
    options.pop("reporter")
    assert options == {
        "recipe": "ssi",
        "overrides": ["a=1", "b=2", "train.vectors=words.vec"],
        "seed": 7,
        "threads": 2,
        "resume": True,
        "strict": True,
        "rerank": False,
        "exported_from": None,
        "fields": ["title", "brand"],
    }
    assert json.loads(got.out) == {"version": "mine-1", "table": [{"system": "bm25"}]}
    table = run("train", tmp_path / "c", "--out", tmp_path, "--name", "mine")
    assert "mine-1 on 9 queries of valid" in table.out
    assert "0.250 ± 0.125" in table.out
    assert "mine-1 in 2 s" in table.out


def test_a_training_error_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TrainingError("nothing to learn from:\n no train split")

    stub_training(monkeypatch, fail)
    got = run("train", tmp_path, "--out", tmp_path, "--name", "mine")
    assert got.code == 1
    assert got.err == "fullrank: nothing to learn from: no train split\n"


def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "service.process.run", None)
    got = run("serve", "--bundles", tmp_path)
    assert got.code == 1
    assert "pip install 'fullrank[service]'" in got.err


def test_a_second_stage_without_lightgbm_names_the_extra_before_any_training(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("trained")

    stub_training(monkeypatch, fail)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    monkeypatch.delitem(sys.modules, "trainer.rerank.boosting", raising=False)
    got = run("train", tmp_path, "--out", tmp_path, "--name", "mine", "--rerank")
    assert got.code == 1
    assert got.err == "fullrank: needs lightgbm; install it with: pip install 'fullrank[rerank]'\n"


def test_a_second_stage_without_openmp_names_the_package_of_the_system(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "lightgbm"
    folder.mkdir()
    reason = "libgomp.so.1: cannot open shared object file"
    (folder / "__init__.py").write_text(f"raise OSError({reason!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("lightgbm", "trainer.rerank.boosting"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    got = run("train", tmp_path, "--out", tmp_path, "--name", "mine", "--rerank")
    assert got.code == 1
    assert got.err == (
        f"fullrank: LightGBM cannot be loaded: {reason}; on Debian: apt-get install libgomp1\n"
    )


def test_an_interrupt_ends_with_130(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    stub_training(monkeypatch, interrupt)
    assert run("train", tmp_path, "--out", tmp_path, "--name", "mine").code == 130


def test_serve_passes_its_options_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[object, ...]] = []
    service = ModuleType("service.process.run")
    service.serve = lambda *args: calls.append(args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "service.process.run", service)
    assert run("serve", "--bundles", tmp_path, "--port", "9000", "--workers", "2").code == 0
    assert run("serve").code == 0
    assert calls == [(tmp_path, None, 9000, 2), (None, None, None, None)]


def test_json_output_has_numbers_of_any_size_and_any_path(run: Run, root: Path) -> None:
    """What documents hold, and what folders are called, is not for this command to choose."""
    assert json.loads(output.as_json({"n": 2**70, "path": "\udcff"})) == {
        "n": 2**70,
        "path": "\udcff",
    }
    for seed in ("-1", str(2**63)):
        assert run("train", root, "--out", root, "--name", "x", "--seed", seed).code == 2
    assert run("index", root, root, "--out", root, "--batch", str(2**63)).code == 2


@pytest.mark.parametrize(
    "arguments",
    [["search"], ["nonsense"], ["search", "x", "y", "--limit", "0"], ["train", "x"], ["bundles"]],
)
def test_wrong_usage_exits_with_2(run: Run, arguments: list[str]) -> None:
    got = run(*arguments)
    assert got.code == 2


def test_help_imports_no_numerical_library_and_lists_every_command() -> None:
    code = (
        "import sys\n"
        "from fullrank.cli import main\n"
        "assert not {'trainer', 'service'} & set(sys.modules)\n"
        "sys.argv = ['fullrank', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        "heavy = {'numba', 'fastapi', 'pydantic', 'faiss', 'numpy', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *help_text, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    listed = {line.split()[1] for line in help_text if re.match(r"│ \w", line)}
    assert {"search", "bundles", "train", "evaluate", "index", "related", "recipes"} <= listed
    assert {"demo", "serve", "keys"} <= listed


def test_a_time_limit_is_given_as_time(run: Run) -> None:
    """Typer would take the name of an option without one of its own from its metavar."""
    got = run("train", "missing", "--out", "x", "--name", "x", "--time", "2 d")
    assert (got.code, got.err) == (1, "fullrank: --time '2 d' is no time; write 30s, 2m or 1h\n")


def test_python_dash_m_fullrank_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fullrank", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"fullrank {version('fullrank')}\n"


def test_a_command_whose_package_is_missing_is_listed_and_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trainer.commands.train", None)
    monkeypatch.setitem(sys.modules, "service.commands.activate", None)
    assert re.search(r"│ train .*needs the extra 'trainer'", run("--help").out)
    assert re.search(r"│ activate .*needs the extra 'service'", run("bundles", "--help").out)
    got = run("train", "collection", "--out", "x")
    assert (got.code, got.out) == (1, "")
    assert got.err.startswith(
        "fullrank: needs trainer.commands.train; install it with: pip install"
    )
    assert run("bundles", "list", "nowhere").err == "fullrank: nowhere: no such folder\n"


def show_json(root: Path, stdout: int, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fullrank", "bundles", "show", root / "mine", "--json"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )


def test_json_is_ascii_where_stdout_is(root: Path) -> None:
    done = show_json(root, subprocess.PIPE, "ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["card"]["author"] == "é"
    assert done.stdout.isascii()


def test_json_into_a_full_disk_is_one_line(root: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = show_json(root, full.fileno())
    assert (done.returncode, done.stderr) == (1, "fullrank: No space left on device\n")


def test_json_into_a_pipe_that_nobody_reads_ends_quietly(root: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = show_json(root, writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_json_into_a_closed_stdout_is_one_line(root: Path) -> None:
    command = shlex.join(
        [sys.executable, "-m", "fullrank", "bundles", "show", str(root / "mine"), "--json"]
    )
    done = subprocess.run(
        ["sh", "-c", f"{command} >&-"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "fullrank: stdout is closed; nothing can be printed\n"


def test_recipes_take_one_line_each_at_80_columns(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("recipes").out.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert [line.split()[0] for line in lines[1:-1]] == recipe_names()
    assert "BM25 over all text fields." in lines[recipe_names().index("bm25") + 1]


def test_recipes_are_listed_with_what_their_models_can_do(run: Run) -> None:
    lines = json.loads(run("recipes", "--json").out)
    assert [line["recipe"] for line in lines] == recipe_names()
    for line in lines:
        assert line["about"].endswith(".")
        assert {line["new_queries"], line["new_documents"]} <= {True, False}


def test_related_prints_the_nearest_frequent_words(run: Run, collection: Path) -> None:
    """As a table and as JSON; an unknown word is one line on stderr."""
    got = run("related", collection, "ant", "--top", "1")
    assert got.code == 0
    assert got.out.splitlines()[1].split() == ["ant", "1", "bee", "0.50"]
    answer = json.loads(run("related", collection, "ant", "--top", "1", "--json").out)
    assert answer["related"] == [
        {"term": "ant", "occurs": 1, "nearest": [{"word": "bee", "dice": 0.5}]}
    ]
    bad = run("related", collection, "dragon")
    assert (bad.code, bad.out) == (1, "")
    assert "'dragon' occurs in no document" in bad.err


@pytest.mark.parametrize("days", ["inf", "nan", "0", "1e10"])
def test_keys_refuse_days_that_are_not_a_positive_number(
    run: Run, tmp_path: Path, days: str
) -> None:
    file = tmp_path / "keys.json"
    got = run("keys", "create", "--scope", "search", "--days", days, "--file", file)
    assert (got.code, got.out) == (2, "")
    assert "--days" in got.err
    assert not file.exists()


def test_demo_finds_its_port_taken_before_it_touches_anything(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        got = run("demo", "--port", str(port), "--out", tmp_path / "demo")
    assert (got.code, got.out) == (1, "")
    assert got.err.startswith(f"fullrank: port {port}: Address already in use")
    assert len(got.err.splitlines()) == 1
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_a_second_demo_uses_what_the_first_trained_and_serves_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It retrains only what is missing or damaged, and deletes nothing."""
    served: list[tuple[object, ...]] = []
    service = ModuleType("service.process.run")
    service.serve = lambda *args: served.append(args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "service.process.run", service)
    monkeypatch.setattr("trainer.collection.demo.write_demo_collection", write_planted)
    folder = tmp_path / "demo"
    port = str(free_port())
    first = run("demo", "--port", port, "--out", folder, "--seconds", "5")
    assert first.code == 0, first.err
    assert served == [(folder / "bundles", "127.0.0.1", int(port), 1)]
    (folder / "bundles" / "documents.sqlite").write_text("acknowledged writes")
    trained = sorted((folder / "bundles").glob("*/*"))
    assert [path.parent.name for path in trained] == ["bm25", "demo"]
    second = run("demo", "--port", port, "--out", folder, "--seconds", "5")
    assert second.code == 0
    assert second.err.count("trained before on the same collection") == 2
    assert sorted((folder / "bundles").glob("*/*")) == trained
    assert (folder / "bundles" / "documents.sqlite").read_text() == "acknowledged writes"
    (trained[0] / "golden.jsonl").chmod(0o644)
    (trained[0] / "golden.jsonl").write_text("")
    third = run("demo", "--no-serve", "--out", folder, "--seconds", "5")
    assert third.err.count("trained before on the same collection") == 1
    assert len(sorted((folder / "bundles" / "bm25").iterdir())) == 2
