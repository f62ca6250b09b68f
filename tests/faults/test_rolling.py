"""A rolling update: two services behind nginx are replaced one after the other, and no request fails."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.api.support import at, free_port, make_bundle
from tests.background import Background
from tests.faults.proxy import CONFIGURATION, proxy
from tests.faults.real import kill, start
from tests.waiting import LONG_S, wait_until


class Searching(Background):
    """Searches through the proxy, on kept and on new connections."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.statuses, self.errors = url, list[int](), list[str]()

    def _run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=LONG_S) as client:
            while not self._stop.wait(0.005):
                for headers in ({}, {"Connection": "close"}):
                    try:
                        reply = client.post("/v1/search", json={"query": "copy"}, headers=headers)
                        self.statuses.append(reply.status_code)
                    except httpx.TransportError as error:
                        self.errors.append(repr(error))


def test_a_rolling_update_fails_no_request(tmp_path: Path) -> None:
    root = tmp_path / "bundles"
    make_bundle(root, "docs", created=at(1))
    ports = [free_port(), free_port()]
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for port in ports:
            running[port] = start(root, port, FULLRANK_DRAIN_MS="1000")
        # nginx takes the next server where one refuses the connection. Without max_fails=0 it would avoid that one for
        # 10 s, and find none while the other is replaced.
        servers = ";\n server ".join(f"127.0.0.1:{port} max_fails=0" for port in ports)
        with proxy(tmp_path, servers) as url, Searching(url) as one, Searching(url) as two:
            for port in ports:
                before = len(one.statuses)
                running[port].terminate()
                assert running[port].wait(LONG_S) == 0
                running[port] = start(root, port, FULLRANK_DRAIN_MS="1000")
                wait_until(lambda n=before: len(one.statuses) > n + 50, "it has searched")  # type: ignore[misc]
    finally:
        for process in running.values():
            kill(process)
    for searches in (one, two):
        assert searches.errors == []
        assert set(searches.statuses) == {200}
        assert len(searches.statuses) > 100


def test_the_proxy_serves_tls(tmp_path: Path) -> None:
    root, port = tmp_path / "bundles", free_port()
    make_bundle(root, "docs", created=at(1))
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    made += [
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    tls = (CONFIGURATION.parent / "tls" / "nginx.conf").read_text()
    tls = tls.replace("/certificates/", f"{tmp_path}/").replace("8443", f"127.0.0.1:{port}")
    (tmp_path / "tls.conf").write_text(tls)
    service = free_port()
    process = start(root, service)
    try:
        with proxy(tmp_path, f"http://127.0.0.1:{service}"):
            trusted = ssl.create_default_context(cafile=str(certificate))
            with httpx.Client(verify=trusted, timeout=LONG_S) as client:
                reply = client.post(f"https://localhost:{port}/v1/search", json={"query": "copy"})
    finally:
        kill(process)
    assert reply.status_code == 200
