"""Build each image and run it: the service on a volume, as no root, on a root file system that nothing writes.

Needs docker, podman or buildah, the base image, and a package index.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from fullrank_service.models.workers import reports
from tests.api.support import CORPUS, at, free_port, make_bundle, wait_for
from tests.waiting import LONG_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
USER = 10001
TARGETS = {
    "trainer": ["fullrank", "recipes"],
    "loop": ["fullrank", "loop", "--help"],
    "fleet": ["python", "-c", "import fullrank_fleet.serving, ray"],
    "demo": ["fullrank", "demo", "--help"],
    "service": ["fullrank", "backup", "--help"],
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Service:
    """A running container; `inside` runs a command in it, which finds the bundles at `bundles`."""

    bundles: str
    process: subprocess.Popen[bytes]
    inside: Callable[..., str]
    terminate: Callable[[], object]


class Engine:
    """Builds and runs images with docker or podman."""

    build_options: tuple[str, ...] = ()

    def __init__(self, program: str) -> None:
        self.program = program
        self._built: set[str] = set()

    def __call__(self, *arguments: str | Path) -> str:
        done = subprocess.run(
            [self.program, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()

    def build(self, target: str) -> str:
        tag = f"localhost/fullrank-test-{target}"
        if target not in self._built:
            self("build", *self.build_options, "--target", target, "-t", tag, ".")
            self._built.add(target)
        return tag

    def run(self, image: str, *command: str) -> str:
        return self("run", "--rm", "--read-only", "--entrypoint", command[0], image, *command[1:])

    @contextmanager
    def serve(self, image: str, root: Path, port: int, **settings: str) -> Iterator[Service]:
        name = f"fullrank-test-{port}"
        given = [f"--env={key}={value}" for key, value in settings.items()]
        options = ["--rm", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", f"--name={name}"]
        options += ["--security-opt=no-new-privileges", f"--volume={root}:/bundles"]
        command = [self.program, "run", *options, f"--publish=127.0.0.1:{port}:8000", *given, image]
        with subprocess.Popen(command) as process:
            try:
                yield Service(
                    "/bundles",
                    process,
                    lambda *inside: self("exec", name, *inside),
                    lambda: self("kill", "--signal=TERM", name),
                )
            finally:
                with suppress(AssertionError):
                    self("kill", name)


class Buildah(Engine):
    """Builds and runs images in a chroot, where no container engine runs; what is written to the root is looked for."""

    build_options = ("--isolation", "chroot")

    def run(self, image: str, *command: str) -> str:
        container = self("from", "--pull-never", image)
        try:
            return self("run", "--isolation", "chroot", container, "--", *command)
        finally:
            self("rm", container)

    @contextmanager
    def serve(self, image: str, root: Path, port: int, **settings: str) -> Iterator[Service]:
        container = self("from", "--pull-never", image)
        # In a chroot, the volumes that an image declares hide those that are given.
        settings |= {"FULLRANK_PORT": str(port), "FULLRANK_BUNDLES": "/data"}
        given = [f"--env={key}={value}" for key, value in settings.items()]
        run = ["run", "--isolation=chroot", f"--volume={root}:/data", *given, container, "--"]
        place = Path(self("mount", container))
        before = state_of(place)

        def terminate() -> None:
            worker = reports(root)[0].pid
            parent = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1]
            os.kill(int(parent), signal.SIGTERM)

        try:
            command = [self.program, *run, "fullrank", "serve"]
            with subprocess.Popen(command, start_new_session=True) as process:
                try:
                    yield Service("/data", process, lambda *inside: self(*run, *inside), terminate)
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
            assert state_of(place) == before
        finally:
            self("rm", container)


def state_of(place: Path) -> dict[Path, tuple[int, int]]:
    """Return time and size of the files of a root file system, but of those that the engine mounts."""
    found = {}
    for path in place.rglob("*"):
        part = path.relative_to(place).parts[0]
        if (
            part not in ("proc", "sys", "dev", "tmp", "bundles", "data", "etc", "run")
            and path.is_file()
        ):
            found[path] = path.stat().st_mtime_ns, path.stat().st_size
    return found


@pytest.fixture(scope="module")
def engine() -> Engine:
    for program, kind in (("docker", Engine), ("podman", Engine), ("buildah", Buildah)):
        if shutil.which(program) is None:
            continue
        # A client without its engine is there, too.
        if subprocess.run([program, "info"], capture_output=True).returncode == 0:
            return kind(program)
    pytest.skip("needs docker, podman or buildah")


@pytest.mark.parametrize("target", TARGETS)
def test_every_image_has_its_commands_and_no_root(target: str, engine: Engine) -> None:
    image = engine.build(target)
    engine.run(image, *TARGETS[target])
    assert engine.run(image, "id", "-u") == str(USER)


def test_the_image_of_the_service_serves(engine: Engine, tmp_path: Path) -> None:
    root, port = tmp_path / "bundles", free_port()
    first = make_bundle(root, "docs", created=at(1))
    for path in (tmp_path, root, *root.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    image = engine.build("service")
    settings = {"FULLRANK_ANONYMOUS": "search,ingest,events", "FULLRANK_DRAIN_MS": "3000"}
    started = time.monotonic()
    with engine.serve(image, root, port, **settings) as service:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/readyz", service.process)
        print(f"ready after {time.monotonic() - started:.1f} s")  # noqa: T201
        with httpx.Client(base_url=url, timeout=LONG_S) as client:

            def model() -> str:
                return str(client.post("/v1/search", json={"query": "copy"}).json()["model"])

            assert model() == first
            written = client.put("/v1/documents/new", json={"title": "new", "text": "copy"}).json()
            asked = {"query": "new", "min_seq": written["seq"]}
            assert client.post("/v1/search", json=asked).json()["hits"][0]["id"] == "new"
            # Live documents become a version, which is swapped in; then back.
            service.inside("fullrank", "bundles", "compact", f"{service.bundles}/docs")
            wait_until(lambda: model() != first, "the compacted version serves")
            assert len(client.post("/v1/search", json={"query": ""}).json()["hits"]) > len(CORPUS)
            service.inside("fullrank", "bundles", "rollback", service.bundles)
            wait_until(lambda: model() == first, "the first version serves again")
            service.inside("fullrank", "backup", service.bundles, f"{service.bundles}/b.tar")
            assert (root / "b.tar").exists()
            # SIGTERM: not ready at once, and still answering until the end.
            service.terminate()
            wait_until(lambda: client.get("/readyz").status_code == 503, "it is not ready")
            assert model() == first
        assert service.process.wait(LONG_S) == 0
