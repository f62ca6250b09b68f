"""Schemathesis over the whole OpenAPI document, as its own command line runs it: every phase, every check."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fullrank_service.http.middleware import OF_COLLECTIONS
from tests.api.support import KEY

REPOSITORY = Path(__file__).resolve().parents[2]
_CLI = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"


@dataclass(frozen=True)
class Outcome:
    """cases: requests that were made up and sent; output: all that the program printed."""

    code: int
    cases: int
    output: str


def fuzz(
    url: str, *, examples: int, seed: int, fit: bool, with_collections: bool = True
) -> Outcome:
    """Requests to every operation of a service, with a key that may do everything.

    fit  what depends on stored data is made to fit in requests that should be accepted, and then they must be; else all
         is as drawn, and whether it is accepted is not asked, nor whether deleting with a used idempotency key deletes
    with_collections  whether /v1/collections/{name}/search and so on are asked too: the routes of /v1/search and so on
    """
    arguments = [
        "--config-file", str(REPOSITORY / "tests" / "api" / "schemathesis.toml"), "run", f"{url}/openapi.json",
        "--header", f"Authorization: Bearer {KEY}",
        "--checks", "all",
        *([] if fit else ["--exclude-checks", "positive_data_acceptance,use_after_free"]),
        *([] if with_collections else ["--exclude-path-regex", f"^{OF_COLLECTIONS}"]),
        "--max-examples", str(examples),
        "--seed", str(seed),
        "--generation-database", "none",
        "--no-color",
    ]  # fmt: skip
    limit_s = 120 + 40 * examples
    with (
        tempfile.TemporaryDirectory() as folder,  # it leaves a folder where it runs
        subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", _CLI, *arguments],
            cwd=folder,
            env={
                **os.environ,
                "SCHEMATHESIS_HOOKS": "tests.api.schemathesis_hooks",
                "FULLRANK_FIT": str(int(fit)),
                "PYTHONPATH": str(REPOSITORY),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            output = "".join(process.communicate(timeout=limit_s))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it prints the stacks of its threads
            output = "".join(process.communicate(timeout=10))
            raise AssertionError(f"requests for {limit_s} s: {output[-20_000:]}") from None
    generated = re.search(r"([\d,]+) generated", output)
    cases = int(generated[1].replace(",", "")) if generated else 0
    return Outcome(process.returncode, cases, output)


def how_many(*, with_collections: bool = True) -> int:
    """How many operations the committed document has."""
    paths = json.loads((REPOSITORY / "docs" / "openapi.json").read_text())["paths"]
    return sum(
        len(methods)
        for path, methods in paths.items()
        if with_collections or not path.startswith(OF_COLLECTIONS)
    )
