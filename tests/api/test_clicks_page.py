"""docs/clicks.md: its curl commands run against a server as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank_service.models.swap import Swap
from tests.api.conftest import Root
from tests.api.support import KEY, served

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clicks.md"
BLOCKS = re.findall(r"(?:^ {4}.*\n)+", PAGE.read_text("utf-8"), re.MULTILINE)
COMMAND = re.compile(r"^ {4}(curl .*\n(?:(?! {4}(?:curl|fullrank) ) {4}.*\n)*)", re.MULTILINE)
COMMANDS = [command for block in BLOCKS for command in COMMAND.findall(block)]


def curl(command: str, url: str, folder: Path) -> Any:
    """Run a command in a shell, with another address; return what it prints. An error status fails."""
    text = command.replace("localhost:8000", url.removeprefix("http://"))
    assert text != command
    done = subprocess.run(
        ["bash", "-c", text.replace("curl -s", "curl -sS --fail-with-body", 1)],
        env={"KEY": KEY, "PATH": "/usr/bin:/bin"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (text, done.stdout, done.stderr)
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl on PATH")
def test_the_requests_of_the_page_are_answered(root: Root) -> None:
    swap = Swap(root.path)
    swap.activate(root.learned)
    swap.start_experiment(root.bm25, 0.2, 14)
    report, experiment, analytics, erase = COMMANDS
    with served(root.path) as url:
        found = httpx.post(f"{url}/v1/search", json={"query": "copy files", "user_id": "ann"})
        # The page shows an example of an id, a time and a document.
        report = report.replace('"query_id": "…"', f'"query_id": "{found.json()["query_id"]}"')
        report = report.replace("2026-11-23T12:00:00Z", datetime.now(UTC).isoformat())
        report = report.replace('"d1"', f'"{found.json()["hits"][0]["id"]}"')
        assert curl(report, url, root.path)["kept"] == 1
        votes = curl(experiment, url, root.path)
        assert (votes["active"], votes["candidate"]) == (root.learned, root.bm25)
        assert votes["verdict"] == "open"
        counted = curl(analytics, url, root.path)
        assert counted["days"] == 7
        assert counted["complete"]
        assert curl(erase, url, root.path) == {"erased": True}
