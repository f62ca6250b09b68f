"""Clients that send slowly, never end, do not read, or send rubbish: they are cut off, others do not notice."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import httpx
import pytest

from tests.api.support import at, make_bundle, served

BODY = b'{"query": "copy files"}'
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
# What a test waits for at most: the time-outs below are one second, connections are looked at once a second.
SOON = 10.0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("bundles")
    make_bundle(root, "learned", n_dense=4, created=at(2))
    with served(
        root,
        FULLRANK_HEAD_TIMEOUT_S="1",
        FULLRANK_BODY_TIMEOUT_S="1",
        FULLRANK_ANSWER_TIMEOUT_S="1",
        FULLRANK_KEEP_ALIVE_S="2",
        FULLRANK_MAX_CONNECTIONS="60",
    ) as address:
        yield address


def connect(url: str, *, receive_buffer: int = 0) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(SOON)
    connection.connect((host, int(port)))
    return connection


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server closes. Raises TimeoutError when it does not, soon."""
    received = b""
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def answers(connection: socket.socket, count: int) -> list[tuple[int, Any]]:
    """So many answers with a Content-Length, as status and JSON."""
    received, found = b"", []
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


def check(raw: bytes, status: int, slug: str) -> None:
    """The bytes are one answer: this problem, and the end of the connection."""
    head, _, body = raw.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status, raw
    assert b"connection: close" in head.lower()
    assert b"application/problem+json" in head
    problem = json.loads(body)
    assert problem["type"] == f"urn:fullrank:problem:{slug}"
    assert f"x-request-id: {problem['request_id']}".encode() in head.lower()


def test_what_is_sent_too_slowly_is_cut_off(url: str) -> None:
    """Head, body, chunks: nothing more, or a byte now and then."""
    slow = [
        (b"POST /v1/sea", b""),
        (HEAD, b"x"),
        (HEAD + b"Content-Length: 23\r\n\r\n{", b""),
        (HEAD + b"Content-Length: 23000\r\n\r\n{", b" "),
        (HEAD + b"Content-Length: 200000\r\n\r\n{", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n \r\n"),
    ]
    with ExitStack() as stack:
        waiting = {}
        for sent, drip in slow:
            connection = stack.enter_context(closing(connect(url)))
            connection.sendall(sent)
            waiting[connection] = drip
        end = time.monotonic() + SOON
        while waiting:
            assert time.monotonic() < end, waiting
            ended, _, _ = select.select(list(waiting), [], [], 0.1)
            for connection in ended:
                drip = waiting.pop(connection)
                received = rest(connection)
                # What is still on its way to a closed socket may take the answer with it.
                if received or not drip:
                    check(received, 408, "timed-out")
            for connection, drip in waiting.items():
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(drip)


def test_a_connection_that_says_nothing_is_closed(url: str) -> None:
    with closing(connect(url)) as silent, closing(connect(url)) as idle:
        idle.sendall(WHOLE)
        assert answers(idle, 1)[0][0] == 200
        assert rest(silent) == b""
        assert rest(idle) == b""


def test_who_does_not_read_is_cut_off(url: str) -> None:
    with closing(connect(url, receive_buffer=4096)) as connection:
        wanted = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 400
        connection.sendall(wanted)
        time.sleep(3)
        started = time.monotonic()
        received = rest(connection)
        assert time.monotonic() - started < SOON
    whole = len(httpx.get(f"{url}/openapi.json").content) * 400
    assert 0 < len(received) < whole


def test_slow_clients_hold_nobody_up(url: str) -> None:
    """40 of three kinds at once: every search of somebody else is answered within a second."""
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
                assert time.monotonic() - started < 1
            assert client.get("/readyz").status_code == 200


def test_idle_connections_make_room(url: str) -> None:
    """The service takes 60 connections; 100 idle ones cannot keep anybody out."""
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(closing(connect(url)))
            connection.sendall(WHOLE)
            assert answers(connection, 1)[0][0] == 200


def test_a_head_without_end_is_refused(url: str) -> None:
    with closing(connect(url)) as connection:
        connection.sendall(HEAD)
        sent = 0
        while not select.select([connection], [], [], 0.01)[0]:
            sent += connection.send(b"x-padding: " + b"x" * 5_000 + b"\r\n")
            assert sent < 1 << 20
        # What is still on its way to a closed socket may take the answer with it.
        if received := rest(connection):
            check(received, 431, "head-too-large")


@pytest.mark.parametrize(
    "sent",
    [
        b"rubbish\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/search HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /v1/search HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/search HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_problem(url: str, sent: bytes) -> None:
    with closing(connect(url)) as connection:
        connection.sendall(sent)
        check(rest(connection), 400, "bad-request")


def test_requests_sent_together_are_answered_in_order(url: str) -> None:
    with closing(connect(url)) as connection:
        wrong = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
        probe = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.sendall(WHOLE + wrong + probe + WHOLE[:-4])
        first = answers(connection, 3)
        assert [status for status, _ in first] == [200, 415, 200]
        connection.sendall(WHOLE[-4:] + WHOLE)
        assert [status for status, _ in answers(connection, 2)] == [200, 200]


def test_a_body_may_come_in_chunks_and_wait_to_be_asked_for(url: str) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    with closing(connect(url)) as connection:
        connection.sendall(HEAD + chunked)
        assert answers(connection, 1)[0][0] == 200
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 23\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert answers(connection, 1)[0][0] == 200


def test_what_is_refused_before_it_is_there_ends_the_connection(url: str) -> None:
    with closing(connect(url)) as connection:
        connection.sendall(HEAD + b"Content-Length: 99999999\r\n\r\n")
        assert answers(connection, 1)[0][0] == 413
        started = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - started < SOON:
                connection.sendall(b"x" * 1000)
                time.sleep(0.02)
        assert time.monotonic() - started < SOON
