"""Install the wheel, with each extra alone and run every command that the extra promises."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.planted import write_planted
from tests.ports import free_port
from tests.walls.test_commands import Pin, environment_of, pins

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = "bundles/planted"
TRAINER_COMMANDS = ("import", "train", "evaluate", "index", "recipes", "demo")
BUNDLES_COMMANDS = ("activate", "rollback", "compact", "prune")
SERVICE_COMMANDS = (
    "serve",
    "keys",
    "documents",
    "backup",
    "restore",
    *(f"bundles {name}" for name in BUNDLES_COMMANDS),
)
CORE_COMMANDS = ("search", "bundles list", "bundles verify", "bundles show", "bundles export")


class Installed:
    """The wheel with one extra, and a folder with bundles to work in."""

    def __init__(self, venv: Path, folder: Path) -> None:
        self.venv, self.folder = venv, folder
        shutil.copytree(ROOT / "tests" / "golden" / "bundles", folder / "bundles")

    def command(self, line: str) -> list[str | Path]:
        return [self.venv / "bin" / "fullrank", *line.split()]

    def fails(self, line: str) -> str:
        """Run a command that ends with 1 and give its one line of error."""
        done = subprocess.run(self.command(line), cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 1, done
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def run(self, line: str) -> str:
        """Run a command that succeeds and give what it prints."""
        done = subprocess.run(self.command(line), cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, f"fullrank {line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, line: str) -> object:
        return json.loads(self.run(f"{line} --json"))

    @contextmanager
    def serving(self, *, scope: str) -> Iterator[str]:
        """Run `fullrank serve` over the bundles and give its address."""
        port = free_port()
        process = subprocess.Popen(
            self.command(f"serve --bundles bundles --port {port} --workers 1"),
            cwd=self.folder,
            env={"FULLRANK_ANONYMOUS": scope},
        )
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                assert process.poll() is None, "fullrank serve ended"
                try:
                    urllib.request.urlopen(f"{url}/readyz", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist from a copy, so that nothing is left in the repository, and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("fullrank", "trainer", "service", "fleet"):
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        folder / "dist",
    ]
    subprocess.run(build, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    [found] = (folder / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def venv(wheel: Path) -> Path:
    """An environment with the wheel and no extra."""
    folder = wheel.parent.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    environment = environment_of(platform.python_version())
    pinned: dict[str, Pin] = {}
    for name in ("integrations", "dev"):
        pinned |= pins(ROOT / "requirements" / f"{name}.txt", environment)
    lines = [f"{name}=={pin.version}\n" for name, pin in pinned.items()]
    (folder / "constraints.txt").write_text("".join(lines), "utf-8")
    pip(folder, "install", "--no-compile", "--constraint", folder / "constraints.txt", wheel)
    share_machine_code(folder)
    return folder


def share_machine_code(venv: Path) -> None:
    """Copy the compiled kernels of this checkout; numba takes them for sources of the same time and size.

    Compiling them again would take longer than all commands of the tests.
    """
    [site] = venv.glob("lib/*/site-packages")
    for package in (ROOT / "fullrank", *ROOT.glob("*/fullrank_*")):
        for code in package.rglob("__pycache__/*.nb[ci]"):
            source = code.parents[1] / f"{code.name.split('.')[0]}.py"
            target = site / source.relative_to(package.parent)
            if source.exists() and target.exists():
                shutil.copystat(source, target)
                (target.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy(code, target.parent / "__pycache__")


def pip(venv: Path, *arguments: str | Path) -> str:
    command = [venv / "bin" / "python", "-m", "pip", "--quiet", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def installed(
    request: pytest.FixtureRequest, venv: Path, wheel: Path, tmp_path: Path
) -> Iterator[Installed]:
    """Add the packages of an extra; remove them afterwards."""
    before = set(pip(venv, "freeze").splitlines())
    if request.param:
        constraint = ("--no-compile", "--constraint", venv / "constraints.txt")
        pip(venv, "install", *constraint, f"{wheel}[{request.param}]")
    yield Installed(venv, tmp_path)
    if added := set(pip(venv, "freeze").splitlines()) - before:
        pip(venv, "uninstall", "--yes", *(line.split("==")[0] for line in sorted(added)))


def with_extra(extra: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("installed", [extra], indirect=True)


def core_commands_run(installed: Installed) -> None:
    """Run the commands that need no extra."""
    assert re.fullmatch(r"fullrank \d+\.\d+\.\d+\n", installed.run("--version"))
    assert installed.json("bundles list bundles")
    assert "ok" in installed.run(f"bundles verify {BUNDLE}")
    assert installed.json(f"bundles show {BUNDLE}")
    assert installed.json(f"search {BUNDLE} a")
    installed.run(f"bundles export {BUNDLE} exported.jsonl")
    assert (installed.folder / "exported.jsonl").stat().st_size
    installed.run(f"export {BUNDLE} --to vespa-feed:feed.jsonl")
    installed.run(f"export {BUNDLE} --to opensearch-bulk:bulk.ndjson")
    assert (installed.folder / "feed.jsonl").stat().st_size


@with_extra("")
def test_without_an_extra_bundles_are_searched_and_exported(
    installed: Installed, tmp_path: Path
) -> None:
    core_commands_run(installed)
    for command in ("serve --bundles bundles", f"bundles compact {BUNDLE}"):
        assert "fullrank[service]" in installed.fails(command), command
    assert "fullrank[client]" in installed.fails("search --url http://127.0.0.1:9 a")
    for address, extra in (("qdrant:///nowhere", "qdrant"), ("postgresql://nowhere", "postgresql")):
        assert f"fullrank[{extra}]" in installed.fails(f"export {BUNDLE} --to {address}")
    for source in ("x.parquet", "sqlite:///x.db --query q"):
        assert "fullrank[import]" in installed.fails(f"import {source} out")
    write_planted(tmp_path / "collection")
    for command in (
        f"index {BUNDLE} collection --out sets --ray local --shards 2",
        "train collection --out bundles --name mine --ray local",
    ):
        assert "fullrank[ray]" in installed.fails(command), command
    # The base install has all that the trainer needs.
    assert "ssi" in installed.run("recipes")


@with_extra("client")
def test_the_client_extra_asks_a_service(installed: Installed, tmp_path: Path) -> None:
    assert "127.0.0.1:9" in installed.fails("search --url http://127.0.0.1:9 a")


@with_extra("import")
def test_the_import_extra_reads_parquet_and_databases(installed: Installed) -> None:
    make = "import pyarrow as a, pyarrow.parquet as p; rows = [{'id': 'a', 'title': 'x'}];"
    make += "p.write_table(a.Table.from_pylist(rows), 't.parquet')"
    subprocess.run(
        [installed.venv / "bin" / "python", "-c", make], cwd=installed.folder, check=True
    )
    installed.run("import t.parquet out")
    installed.run("import sqlite:// other --query VALUES(1) --id column1")


@with_extra("qdrant")
def test_the_qdrant_extra_exports(installed: Installed, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    installed.run(f"export {BUNDLE} --to qdrant://{folder}")
    assert list(folder.glob("*/edge_config.json"))
    assert "127.0.0.1:9" in installed.fails(f"export {BUNDLE} --to qdrant://127.0.0.1:9")


@with_extra("postgresql")
def test_the_postgresql_extra_exports(installed: Installed) -> None:
    assert "127.0.0.1" in installed.fails(f"export {BUNDLE} --to postgresql://127.0.0.1:9")


@with_extra("trainer")
def test_the_trainer_extra_trains_measures_and_indexes(
    installed: Installed, tmp_path: Path
) -> None:
    for command in TRAINER_COMMANDS:
        installed.run(f"{command} --help")
    write_planted(tmp_path / "collection")
    assert "bm25" in installed.run("recipes")
    installed.run("train collection --out bundles --name mine --recipe bm25")
    assert installed.json("evaluate bundles/mine collection")
    installed.run("index bundles/mine collection --out bundles --name again")
    assert "bundles" in installed.run("demo --no-serve --seconds 5 --out demo")
    assert "fullrank[service]" in installed.fails("serve --bundles bundles")


@with_extra("service")
def test_the_service_extra_serves_compacts_and_exports(
    installed: Installed, tmp_path: Path
) -> None:
    for command in SERVICE_COMMANDS:
        installed.run(f"{command} --help")
    installed.run("keys create --scope search --id shop --bundles bundles")
    assert "shop" in installed.run("keys list --bundles bundles")
    installed.run("keys revoke shop --bundles bundles")
    assert "shop" not in installed.run("keys list --bundles bundles")
    [model] = {
        path.parent.name for path in (tmp_path / "bundles").glob("planted/*/manifest.json")
    } & {
        str(row["version"]) for row in json.loads(installed.run("bundles list bundles --json"))[:1]
    }
    installed.run(f"bundles activate bundles/planted/{model}")
    with installed.serving(scope="search,ingest") as url:
        put = urllib.request.Request(
            f"{url}/v1/documents/new", b'{"title": "new", "text": "new"}', method="PUT"
        )
        put.add_header("Content-Type", "application/json")
        urllib.request.urlopen(put, timeout=30).close()
    compacted = installed.json("bundles compact bundles/planted")
    assert isinstance(compacted, dict)
    installed.run("bundles rollback bundles")
    installed.run("bundles export bundles/planted compacted.jsonl")
    assert '"new"' in (tmp_path / "compacted.jsonl").read_text("utf-8")


@with_extra("all")
def test_all_is_every_extra_of_one_machine(installed: Installed) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    whole = set(Requirement(extras["all"][0]).extras)
    frameworks = {"dev", "site", "haystack", "langchain", "llamaindex", "mcp"}
    assert whole == extras.keys() - frameworks - {"all", "ray", "trainer"}
    for command in (*CORE_COMMANDS, *TRAINER_COMMANDS, *SERVICE_COMMANDS):
        installed.run(f"{command} --help")
    for module in ("httpx", "lightgbm", "psycopg", "pyarrow", "qdrant_client", "opentelemetry.sdk"):
        subprocess.run([installed.venv / "bin" / "python", "-c", f"import {module}"], check=True)
    with installed.serving(scope="search") as url:
        assert installed.json(f"search --url {url} a")
    assert "bundles" in installed.run("demo --no-serve --seconds 5 --out demo")


@pytest.mark.parametrize("runner", ["uvx", "pipx"])
def test_a_runner_of_tools_runs_the_demo(
    runner: str, wheel: Path, venv: Path, tmp_path: Path
) -> None:
    package = f"{wheel}[service]"
    how = ["run", "--spec", package] if runner == "pipx" else ["--from", package]
    program = str(Path(sys.executable).with_name(runner))
    command = [program, *how, "fullrank", "demo", "--no-serve", "--seconds", "5", "--out", "demo"]
    limits = {"PIP_CONSTRAINT": str(venv / "constraints.txt")}
    limits["UV_CONSTRAINT"] = limits["PIP_CONSTRAINT"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **limits}, check=True)
    assert list(tmp_path.glob("demo/bundles/demo/*/manifest.json"))


@with_extra("service,client,langchain,llamaindex,haystack,mcp")
def test_other_frameworks_find_the_same_documents_and_their_pages_run(
    installed: Installed,
) -> None:
    version = next((installed.folder / "bundles" / "planted").glob("*1z-*"))
    python, chains = installed.venv / "bin" / "python", ROOT / "tests" / "wheel" / "chains.py"

    def found_by_each(source: str | Path, filter: str) -> dict[str, list[list[str]]]:
        command: list[str | Path] = [python, chains, str(source), "red apple", filter]
        done = subprocess.run(command, cwd=installed.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    with installed.serving(scope="search") as url:
        for filter, ids in (
            ("{}", ["apple", "ringo", "apple-pie"]),
            ('{"tags": "sweet"}', ["apple-pie"]),
        ):
            for source in (version, url):
                assert found_by_each(source, filter) == {
                    "langchain": [ids, ids],
                    "llamaindex": [ids, ids],
                    "haystack": [ids, ids],
                    "mcp": [ids],
                }
    pip(
        installed.venv, "install", "--no-compile",
        "--constraint", installed.venv / "constraints.txt",
        "hypothesis", "pytest", "pytest-timeout", "pytest-xdist",
    )  # fmt: skip
    pages = ["tests/docs/test_pages.py", "-k", "langchain-and-others or mcp"]
    done = subprocess.run(
        [python, "-m", "pytest", *pages], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


@with_extra("ray")
def test_the_ray_extra_indexes_and_trains_on_a_cluster(
    installed: Installed, tmp_path: Path
) -> None:
    write_planted(tmp_path / "collection")
    written = installed.json(f"index {BUNDLE} collection --out sets --ray local --shards 2")
    assert isinstance(written, dict)
    assert written["shards"] == 2
    assert Path(written["bundle"], "set.json").exists()
    few = "--set dimension=8 --set epochs=2 --set batch=32 --set train.candidates=30"
    train = f"train collection --out bundles --name mine --recipe fielded {few}"
    installed.run(f"{train} --ray local --slices 2")
    assert installed.json("evaluate bundles/mine collection")
