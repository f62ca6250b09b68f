"""Draw where a worker under load spends its time, as a flame graph.

    python -m benchmarks.performance.flame --bundles FOLDER [--mode fast] [--out FILE.svg]

The service runs with its default settings and one worker, as in http.py; wrk sends distinct queries, and py-spy
(pip install py-spy) samples the Python stack of the worker. Compiled kernels count for the function that calls them. A
frame is as wide as its share of the samples; frames below half a percent are left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import orjson

from benchmarks.performance.http import read_queries
from benchmarks.performance.servers import Server, serving
from benchmarks.performance.wrk import Wrk

# The frames outside of these are the same in every stack: of the event loop, and of a thread that ranks.
_ENTRIES = ("BaseEventLoop._run_once", "_WorkItem.run")

_WIDTH, _ROW, _FONT = 1200, 17, 11
_SMALLEST = 0.005
_COLOURS = {"fullrank_service": "#f4a259", "fullrank": "#8cb369", "other": "#c9c9d4"}


@dataclass
class Frame:
    """A function in the stack of its callers, and the samples in which it ran."""

    name: str
    samples: int = 0
    calls: dict[str, Frame] = field(default_factory=dict)

    def add(self, stack: Sequence[str], samples: int) -> None:
        """Add the samples of one stack, the outermost call first."""
        self.samples += samples
        if stack:
            below = self.calls.setdefault(stack[0], Frame(stack[0]))
            below.add(stack[1:], samples)

    @property
    def depth(self) -> int:
        """Number of frames from this one to the innermost."""
        return 1 + max((frame.depth for frame in self.calls.values()), default=0)


def fold(lines: Sequence[str]) -> Frame:
    """Read the raw output of py-spy, "caller (path);callee (path) samples" a line.

    Returns:
        The calls below the event loop and below the threads that rank; other threads are left out.
    """
    root = Frame("worker")
    for line in lines:
        stack, _, samples = line.rpartition(" ")
        frames = stack.split(";")
        begins = [i for i, name in enumerate(frames) if name.startswith(_ENTRIES)]
        if begins:
            root.add(frames[begins[0] + 1 :], int(samples))
    return root


def draw(root: Frame) -> str:
    """Return the graph as SVG. Without samples it has no frame but the root."""
    height = _ROW * root.depth
    body = "\n".join(_frames(root, 0.0, 0, root.samples or 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="{_FONT}">\n{body}\n</svg>\n'
    )


def _frames(frame: Frame, left: float, row: int, total: int) -> Iterator[str]:
    width = frame.samples / total * _WIDTH
    share = frame.samples / total
    label = frame.name[: int(width / _FONT * 1.8)] if width > 3 * _FONT else ""
    yield (
        f"<g><title>{escape(frame.name)}: {share:.1%}</title>"
        f'<rect x="{left:.1f}" y="{row * _ROW}" width="{width:.1f}" height="{_ROW - 1}" '
        f'fill="{_COLOURS[_owner(frame.name)]}"/>'
        f'<text x="{left + 3:.1f}" y="{row * _ROW + 12}">{escape(label)}</text></g>'
    )
    for below in sorted(frame.calls.values(), key=lambda found: -found.samples):
        if below.samples / total >= _SMALLEST:
            yield from _frames(below, left, row + 1, total)
        left += below.samples / total * _WIDTH


def _owner(name: str) -> str:
    """The package of a frame, "function (path)"; py-spy shortens paths to the package."""
    return next(
        (owner for owner in ("fullrank_service", "fullrank") if f"({owner}/" in name), "other"
    )


def sample(server: Server, requests: Path, seconds: int, folder: Path) -> Frame:
    """Load the first worker of a server and sample its stack."""
    raw = folder / "stacks.txt"
    wrk, cores = Wrk(folder), sorted(os.sched_getaffinity(0))
    others = tuple(cores[1:] or cores)
    command = ["py-spy", "record", "--format", "raw", "--nolineno", "--rate", "250"]
    command += ["--duration", str(seconds), "--output", str(raw), "--pid", str(server.workers[0])]
    wrk.run(server.url, requests, 0, connections=16, seconds=2, cores=others)
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(
            wrk.run,
            server.url,
            requests,
            5_000,
            connections=16,
            seconds=seconds + 1,
            cores=others,
        )
        subprocess.run(command, check=True, capture_output=True)
        load.result()
    return fold(raw.read_text("utf-8").splitlines())


def main(arguments: Sequence[str] | None = None) -> None:
    """Start a worker, sample it and write the graph."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--bundles", type=Path, required=True, help="folder with a bundle of debian"
    )
    parser.add_argument("--mode", choices=("fast", "exact"), default="fast")
    parser.add_argument("--seconds", type=int, default=20, help="of sampling; default 20")
    parser.add_argument("--out", type=Path, default=Path("docs/results/plots/http-flame.svg"))
    given = parser.parse_args(arguments)
    if shutil.which("py-spy") is None:
        sys.exit("py-spy is not on PATH: pip install py-spy")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests = folder / "requests.jsonl"
        bodies = ({"query": text, "mode": given.mode} for text in read_queries(20_000, 1))
        requests.write_bytes(b"".join(orjson.dumps(body) + b"\n" for body in bodies))
        settings = {"FULLRANK_BUNDLES": str(given.bundles.resolve())}
        cores = sorted(os.sched_getaffinity(0))[:1]
        with serving("fullrank_service.process.run", settings, "/readyz", cores) as server:
            root = sample(server, requests, given.seconds, folder)
    given.out.write_text(draw(root), "utf-8")
    print(f"{given.out}: {root.samples} samples")


if __name__ == "__main__":
    main()
