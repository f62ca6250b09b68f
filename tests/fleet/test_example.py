"""The example of docs/guides/operate/several-machines.md: three nodes on a machine of its own, index, serve."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fullrank.bundle import open_bundle
from fullrank_trainer.indexing import index
from tests.fleet.support import REPOSITORY
from tests.golden.test_golden import WORDS
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle

PAGE = REPOSITORY / "docs" / "guides" / "operate" / "several-machines.md"
# No process and no port of other clusters is visible inside, so `ray stop` ends the nodes of this one alone.
ALONE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
ASK = """
import json, sys, time
import httpx

def ask():
    for _ in range(120):
        try:
            found = httpx.get("http://127.0.0.1:8000/readyz")
            if found.is_success:
                break
        except httpx.TransportError:
            pass
        time.sleep(1)
    body = {"query": sys.argv[1], "limit": 20}
    return httpx.post("http://127.0.0.1:8000/v1/search", json=body).json()

print("answer", json.dumps(ask()))
"""


def commands() -> list[str]:
    """Return the lines of the example, but for `ray stop`, which ends it."""
    section = PAGE.read_text("utf-8").split("\n## Try it on this machine\n")[1]
    lines = section.split('```bash title="try-a-fleet.sh"\n')[1].split("\n```")[0].splitlines()
    assert lines.pop() == "ray stop"
    return lines


def test_every_line_of_the_example_runs(tmp_path: Path) -> None:
    if shutil.which("ip") is None:
        pytest.skip("needs ip (Debian: apt-get install iproute2)")
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no namespaces")
    bundle = planted_bundle(tmp_path / "bundles")
    corpus = corpus_of(tmp_path, 60)
    whole = open_bundle(index(bundle, corpus, tmp_path / "whole", reporter=QUIET).path)
    *before, serve = commands()
    assert serve.startswith("fullrank serve ")
    (tmp_path / "ask.py").write_text(ASK)
    script = ["set -e", "ip link set lo up", *before, f"{serve} &"]
    script += [f"{sys.executable} ask.py {WORDS[0]}", "ray stop"]
    own = {"HOME": str(tmp_path), "FULLRANK_ANONYMOUS": "search"}
    own["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*ALONE, "bash", "-c", "\n".join(script).replace("bundles/docs", "bundles/planted")],
        cwd=tmp_path,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
    found = json.loads(line.removeprefix("answer "))
    assert found["certified"], found
    expected = [(hit.id, hit.score) for hit in whole.search(WORDS[0], 20)]
    assert [(hit["id"], hit["score"]) for hit in found["hits"]] == expected
