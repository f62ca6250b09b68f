"""Which bytes are a request that may be turned away without taking it apart."""

from __future__ import annotations

import pytest

from service.edge.protocol import _whole_ranking_request

PLAIN = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        PLAIN.replace(b"/v1/search", b"/v1/match"),
        PLAIN.replace(b"Content-Length: 2", b"content-LENGTH:2"),
        PLAIN.replace(b"Host: x", b"Host: x\r\nConnection: keep-alive"),
        PLAIN.replace(b"2\r\n\r\n{}", b"0\r\n\r\n"),
    ],
)
def test_a_plain_request_is(data: bytes) -> None:
    assert _whole_ranking_request(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PLAIN[:-1],
        PLAIN + b"P",
        PLAIN + PLAIN,
        PLAIN[:40],
        PLAIN.replace(b"POST", b"GET"),
        PLAIN.replace(b"/v1/search", b"/v1/searches"),
        PLAIN.replace(b"/v1/search", b"/v1/models/x:load"),
        PLAIN.replace(b"1.1", b"1.0"),
        PLAIN.replace(b": 2", b": +2"),
        PLAIN.replace(b": 2", b": 2, 2"),
        PLAIN.replace(b": 2", b": \xb2"),
        PLAIN.replace(b": 2", b": "),
        PLAIN.replace(b"Content-Length: 2", b"X: 2"),
        PLAIN.replace(b"Host: x", b"Content-Length: 2"),
        PLAIN.replace(b"Host: x", b"Transfer-Encoding: chunked"),
        PLAIN.replace(b"Host: x", b"Expect: 100-continue"),
        PLAIN.replace(b"Host: x", b"Connection: Close"),
        PLAIN.replace(b"Host: x", b"Connection: x, close"),
        PLAIN.replace(b"Host: x", b"Connection:close"),
        PLAIN.replace(b"Host: x", b"X-Request-Id: mine"),
    ],
)
def test_anything_else_goes_the_long_way(data: bytes) -> None:
    assert not _whole_ranking_request(data)
