"""Run the blocks of a page: one bash for all commands, one namespace for all Python."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Self

import httpx

from tests.docs.forking import THREADS
from tests.docs.pages import ROOT, Block
from tests.ports import free_port

BIN = Path(__file__).parent / "bin"
_PRELUDE = Path(__file__).parent / "prelude.bash"
_PORT = re.compile(r"((?:localhost|127\.0\.0\.1):|--port[ =]|FULLRANK_PORT=)(8\d{3})\b")
_SERVES = re.compile(
    r"^((?:\w+=\S+ +)*fullrank (?:serve|demo)\b(?:[^\n]*\\\n)*[^\n&|;]*)(?: &)?$", re.MULTILINE
)


class Failed(Exception):
    """A block failed, or printed something else than the page shows."""


class Shell:
    """Runs blocks in a folder.

    A port of a page (8000 to 8999) is replaced by a free one. `fullrank serve` goes on in the background once it is
    ready, and ends where the page serves the same port again, or at the end of the page.

    Attributes:
        environment: Of commands; changes count until the first command.
        out, err: What the last block has printed, with the ports of the page.
    """

    def __init__(self, folder: Path, socket: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.out = self.err = ""
        self._work = folder.with_name(f"{folder.name}.work")
        self._work.mkdir()
        home = self._work / "home"
        home.mkdir()
        self._ports: dict[str, str] = {}
        self._python: dict[str, Any] = {"__name__": "__main__"}
        self._bash: subprocess.Popen[str] | None = None
        self._count = 0
        self.environment = {
            "PATH": f"{BIN}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC", "COLUMNS": "100", "TERM": "dumb",
            "TMPDIR": str(self._work), "FORK_SOCKET": str(socket), "REPOSITORY": str(ROOT),
            "PORT": self.port("8000"), "FULLRANK_PORT": self.port("8000"),
            # A busy machine makes requests slow, and a service refuses what it expects to miss the deadline.
            "FULLRANK_DEADLINE_MS": "60000",
            **THREADS, **environment,
        }  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bash is not None:
            try:
                if self._bash.poll() is None:
                    self.run("end_all")
            finally:
                with_group = self._bash.pid
                if self._bash.poll() is None:
                    os.killpg(with_group, signal.SIGKILL)
                self._bash.communicate()
        shutil.rmtree(self._work)

    def port(self, shown: str) -> str:
        """Return the port that replaces one of the page."""
        if shown not in self._ports:
            self._ports[shown] = str(free_port())
        return self._ports[shown]

    def replaced(self, text: str) -> str:
        """Return a text of the page with real ports."""
        return _PORT.sub(lambda match: match[1] + self.port(match[2]), text)

    def run(self, commands: str) -> None:
        """Run commands. Raises Failed."""
        if self._bash is None:
            self._bash = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-e"],
                cwd=self.folder, env=self.environment, stdin=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            self._run(_PRELUDE.read_text("utf-8"))
        self._run(_SERVES.sub(self._served, self.replaced(commands)))

    def _served(self, match: re.Match[str]) -> str:
        port = re.search(r"(?:--port[ =]|FULLRANK_PORT=)(\d+)", match[1])
        number = port[1] if port else self.port("8000")
        return f"end {number}\n{match[1]} &\nbegun {number} $!"

    def _run(self, commands: str) -> None:
        assert self._bash is not None
        assert self._bash.stdin is not None
        self._count += 1
        block, out, err, done = (
            self._work / f"{self._count}.{end}" for end in ("sh", "out", "err", "done")
        )
        block.write_text(commands, "utf-8")
        self._bash.stdin.write(f"source {block} >{out} 2>{err} </dev/null; : >{done}\n")
        self._bash.stdin.flush()
        while not done.exists() and self._bash.poll() is None:
            time.sleep(0.005)
        self.out, self.err = (
            self._shown(path.read_text("utf-8", "replace")) for path in (out, err)
        )
        if not done.exists():
            code = self._bash.returncode
            raise Failed(f"{commands}\nended the shell with code {code}:\n{self.out}{self.err}")

    def logged(self) -> str:
        """Return what all blocks so far have printed to stderr, services of the page included."""
        texts = [self._work / f"{number + 1}.err" for number in range(self._count)]
        return self._shown("".join(path.read_text("utf-8", "replace") for path in texts))

    def _shown(self, text: str) -> str:
        for shown, real in self._ports.items():
            text = re.sub(rf"\b{real}\b", shown, text)
        return text

    def python(self, code: str, name: str) -> None:
        """Run Python in this process."""
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(self.replaced(code), name, "exec"), self._python)
        self.out, self.err = self._shown(printed.getvalue()), ""

    def request(self, method: str, path: str, body: str) -> httpx.Response:
        """Send a body to the service of the page, with its key if it has one."""
        key = self.environment.get("SHOP_KEY")
        response = httpx.request(
            method, f"http://127.0.0.1:{self.port('8000')}{path}", content=body, timeout=60,
            headers={"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {}),
        )  # fmt: skip
        self.out, self.err = self._shown(response.text), ""
        return response

    def write(self, block: Block) -> None:
        """Write the file that a block is."""
        path = self.folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.replaced(block.text), "utf-8")
