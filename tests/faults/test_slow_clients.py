"""Clients that send slowly, never stop sending, do not read, or send garbage: no other client notices them.

Silent connections, bodies and responses are bounded by the service itself; the size of headers and the connections of a
client by the reverse proxy that is shipped with it. The tests of the first kind run against both.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.support import at, make_bundle, served
from tests.faults.proxy import proxy

BODY = b'{"query": "copy files"}'
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
# Longest wait of a test. The timeouts below are one and two seconds.
SOON = 10.0


@pytest.fixture(scope="module")
def service_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("bundles")
    make_bundle(root, "learned", n_dense=4, created=at(2))
    with served(
        root,
        FULLRANK_BODY_TIMEOUT_S="1",
        FULLRANK_RESPONSE_TIMEOUT_S="1",
        FULLRANK_KEEP_ALIVE_S="2",
        FULLRANK_MAX_CONNECTIONS="200",
    ) as address:
        yield address


@pytest.fixture(scope="module")
def proxy_url(service_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with proxy(
        tmp_path_factory.mktemp("proxy"),
        service_url,
        client_header_timeout="1s",
        client_body_timeout="1s",
        send_timeout="1s",
        keepalive_timeout="2s",
        lingering_time="1s",
        limit_conn="clients 60",
    ) as address:
        yield address


@pytest.fixture(params=["service_url", "proxy_url"])
def url(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(request.param)
    return address


def connect(url: str, *, receive_buffer: int = 0) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(SOON)
    connection.connect((host, int(port)))
    return connection


def read_until_closed(connection: socket.socket) -> bytes:
    """All bytes until the server closes. Raises TimeoutError if it does not close soon."""
    received = b""
    with suppress(ConnectionResetError):
        while chunk := connection.recv(1 << 16):
            received += chunk
    return received


def read_responses(connection: socket.socket, count: int) -> list[tuple[int, Any]]:
    """Read responses with a Content-Length: status and JSON of each."""
    received = b""
    found: list[tuple[int, Any]] = []
    while len(found) < count:
        head, end, body = received.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")),
            None,
        )  # fmt: skip
        if end and length is not None and len(body) >= length:
            found.append((int(head.split()[1]), json.loads(body[:length])))
            received = body[length:]
            continue
        chunk = connection.recv(1 << 16)
        assert chunk, received
        received += chunk
    assert received == b""
    return found


def check_problem(raw: bytes, status: int, slug: str) -> None:
    """The bytes are one problem document, after which the connection is closed."""
    head, _, body = raw.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status, raw
    assert b"connection: close" in head.lower()
    assert b"application/problem+json" in head
    assert json.loads(body)["type"] == f"urn:fullrank:problem:{slug}"


def drip_until_closed(url: str, requests: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Send beginnings of requests, then a few bytes of each now and then, until all are closed; give what came back."""
    received = []
    with ExitStack() as stack:
        waiting = {}
        for sent, drip in requests:
            connection = stack.enter_context(closing(connect(url)))
            connection.sendall(sent)
            waiting[connection] = drip
        end = time.monotonic() + SOON
        while waiting:
            assert time.monotonic() < end, waiting
            readable, _, _ = select.select(list(waiting), [], [], 0.1)
            for connection in readable:
                waiting.pop(connection)
                received.append(read_until_closed(connection))
            for connection, drip in waiting.items():
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(drip)
    return received


def test_the_service_answers_408_to_a_body_that_arrives_too_slowly(service_url: str) -> None:
    received = drip_until_closed(
        service_url,
        [
            (HEAD + b"Content-Length: 23\r\n\r\n{", b""),
            (HEAD + b"Content-Length: 23000\r\n\r\n{", b" "),
            (HEAD + b"Content-Length: 200000\r\n\r\n{", b" "),
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n \r\n"),
        ],
    )
    # Bytes that are still on their way to a closed socket reset the connection, and the response may be lost.
    answered = [raw for raw in received if raw]
    assert answered
    for raw in answered:
        check_problem(raw, 408, "request-timeout")


def test_a_connection_that_is_silent_or_stalls_in_a_head_is_closed(url: str) -> None:
    requests = [(b"", b""), (b"", b"\r\n"), (b"POST /v1/sea", b""), (HEAD, b"x")]
    assert drip_until_closed(url, requests) == [b""] * 4


def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """120 silent connections of 50 that are allowed: probes and searches are answered, on kept connections too."""
    make_bundle(tmp_path / "bundles", "learned", n_dense=4, created=at(2))
    with served(tmp_path / "bundles", FULLRANK_MAX_CONNECTIONS="50") as url, ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=url, timeout=SOON))
        for _ in range(4):
            assert client.post("/v1/search", json={"query": "copy files"}).status_code == 200
            for _ in range(30):
                stack.enter_context(closing(connect(url)))
            assert httpx.get(f"{url}/livez").status_code == 200
        # Requests in progress do count; only the probe of a live worker is answered beyond them.
        answers = []
        for _ in range(51):
            connection = stack.enter_context(closing(connect(url)))
            connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 23\r\n\r\n")
            answers.append(connection.recv(12))
        assert answers == [b"HTTP/1.1 100"] * 50 + [b"HTTP/1.1 503"]
        assert httpx.post(f"{url}/v1/search", json={"query": "copy files"}).status_code == 503
        assert httpx.get(f"{url}/livez").status_code == 200


def test_the_proxy_closes_connections_that_stall_in_a_body(proxy_url: str) -> None:
    received = drip_until_closed(
        proxy_url,
        [
            (HEAD + b"Content-Length: 23\r\n\r\n{", b""),
            (HEAD + b"Content-Length: 200000\r\n\r\n{", b""),
        ],
    )
    assert received == [b""] * 2


def test_an_idle_connection_is_closed(url: str) -> None:
    with closing(connect(url)) as idle:
        idle.sendall(WHOLE)
        assert read_responses(idle, 1)[0][0] == 200
        assert read_until_closed(idle) == b""


def test_a_client_that_does_not_read_is_cut_off(url: str) -> None:
    with closing(connect(url, receive_buffer=4096)) as connection:
        requests = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 400
        connection.sendall(requests)
        time.sleep(5)
        started = time.monotonic()
        received = read_until_closed(connection)
        assert time.monotonic() - started < SOON
    whole = len(httpx.get(f"{url}/openapi.json").content) * 400
    assert 0 < len(received) < whole


@pytest.mark.parametrize("limit_s", [SOON, pytest.param(1, marks=pytest.mark.slow)])
def test_slow_clients_do_not_delay_others(url: str, limit_s: float) -> None:
    """40 slow clients of three kinds: every search of another client is answered within the limit."""
    with ExitStack() as stack:
        for i in range(40):
            connection = stack.enter_context(closing(connect(url)))
            connection.sendall(
                [b"POST /v1", WHOLE[:-1], HEAD + b"Content-Length: 99999\r\n\r\n"][i % 3]
            )
        with httpx.Client(base_url=url, timeout=SOON) as client:
            for _ in range(30):
                started = time.monotonic()
                response = client.post("/v1/search", json={"query": "copy files"})
                assert response.status_code == 200
                assert time.monotonic() - started < limit_s
            assert client.get("/readyz").status_code == 200


def test_the_proxy_limits_the_connections_of_a_client(proxy_url: str) -> None:
    """The limit is 60 requests in progress; the service stays ready for others."""
    with ExitStack() as stack:
        statuses = []
        for _ in range(70):
            connection = stack.enter_context(closing(connect(proxy_url)))
            connection.sendall(HEAD + b"Content-Length: 23\r\n\r\n{")
            readable, _, _ = select.select([connection], [], [], 0.01)
            if readable:
                statuses.append(read_responses(connection, 1)[0])
        assert statuses
        assert {status for status, _ in statuses} == {429}
        assert statuses[0][1]["type"] == "urn:fullrank:problem:too-many-requests"


def test_the_proxy_refuses_headers_without_end(proxy_url: str) -> None:
    with closing(connect(proxy_url)) as connection:
        connection.sendall(HEAD)
        sent = 0
        while not select.select([connection], [], [], 0.01)[0]:
            sent += connection.send(b"x-padding: " + b"x" * 5_000 + b"\r\n")
            assert sent < 1 << 20
        # Bytes that are still on their way to a closed socket reset the connection, and the response may be lost.
        if received := read_until_closed(connection):
            check_problem(received, 431, "headers-too-large")


@pytest.mark.parametrize(
    "sent",
    [
        b"rubbish\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_a_request_that_is_not_http_gets_400_and_ends_the_connection(url: str, sent: bytes) -> None:
    with closing(connect(url)) as connection:
        connection.sendall(sent)
        received = read_until_closed(connection)
        assert received.startswith(b"HTTP/1.1 400 "), received
        assert b"connection: close" in received.lower()


def test_the_proxy_answers_its_own_errors_with_problem_documents(proxy_url: str) -> None:
    with closing(connect(proxy_url)) as connection:
        connection.sendall(b"rubbish\r\n\r\n")
        check_problem(read_until_closed(connection), 400, "bad-request")
    with httpx.Client(base_url=proxy_url) as client:
        response = client.post("/v1/search", content=b" " * (17 << 20))
        assert response.status_code == 413
        assert response.json()["type"] == "urn:fullrank:problem:too-large"


def test_requests_sent_together_are_answered_in_order(url: str) -> None:
    with closing(connect(url)) as connection:
        wrong = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
        probe = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.sendall(WHOLE + wrong + probe + WHOLE[:-4])
        first = read_responses(connection, 3)
        assert [status for status, _ in first] == [200, 415, 200]
        connection.sendall(WHOLE[-4:] + WHOLE)
        assert [status for status, _ in read_responses(connection, 2)] == [200, 200]


def test_a_body_may_be_chunked_or_wait_for_100_continue(url: str) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    with closing(connect(url)) as connection:
        connection.sendall(HEAD + chunked)
        assert read_responses(connection, 1)[0][0] == 200
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 23\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert read_responses(connection, 1)[0][0] == 200


def test_a_body_that_is_refused_early_ends_the_connection(url: str) -> None:
    with closing(connect(url)) as connection:
        connection.sendall(HEAD + b"Content-Length: 99999999\r\n\r\n")
        assert read_responses(connection, 1)[0][0] == 413
        started = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - started < SOON:
                connection.sendall(b"x" * 1000)
                time.sleep(0.02)
        assert time.monotonic() - started < SOON


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


def test_the_proxy_serves_clients_that_ask_for_http_2(proxy_url: str) -> None:
    """HTTP clients of Java and `curl --http2` send such an upgrade with every request."""
    with closing(connect(proxy_url)) as connection:
        connection.sendall(WHOLE.replace(b"Host: x\r\n", b"Host: x\r\n" + UPGRADE))
        assert read_responses(connection, 1)[0][0] == 200


def test_the_service_alone_refuses_a_body_with_an_upgrade(service_url: str) -> None:
    """uvicorn drops such a body; an empty one must not be taken for what the client sent."""
    with closing(connect(service_url)) as connection:
        connection.sendall(WHOLE.replace(b"Host: x\r\n", b"Host: x\r\n" + UPGRADE))
        check_problem(read_until_closed(connection), 400, "bad-request")
