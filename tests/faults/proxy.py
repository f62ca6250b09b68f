"""The shipped reverse proxy, deploy/nginx.conf, as a process of a test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.support import free_port, wait_for

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "nginx.conf"


@contextmanager
def proxy(folder: Path, service: str, **directives: str) -> Iterator[str]:
    """Run nginx in front of a service, with other values of some directives; skips the test without nginx."""
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("nginx is not installed (apt-get install nginx-light)")
    port = free_port()
    path = folder / "nginx.conf"
    path.write_text(
        configuration(
            {"listen": f"127.0.0.1:{port}", "server": service.removeprefix("http://"), **directives}
        ).replace("/tmp/", f"{folder}/")
    )
    options = "daemon off; master_process off;" + (" user root;" if os.geteuid() == 0 else "")
    process = subprocess.Popen([nginx, "-p", folder, "-c", path, "-g", options])
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{url}/livez", process)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def configuration(directives: Mapping[str, str]) -> str:
    """The shipped file with other values. Every directive must be there."""
    text = CONFIGURATION.read_text()
    for name, value in directives.items():
        text, count = re.subn(rf"^(\s+{name} )[^{{;]+;", rf"\g<1>{value};", text, flags=re.M)
        assert count, name
    return text
