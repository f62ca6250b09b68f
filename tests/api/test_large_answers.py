"""Large answers: they are bounded, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from fullrank.storage.documents import Document
from tests.api.support import make_bundle, running

pytestmark = pytest.mark.anyio


async def test_others_are_answered_between_the_pieces_of_a_large_answer(tmp_path: Path) -> None:
    size = 8 << 20
    make_bundle(tmp_path, "large", [Document("large", {"title": "large", "blob": "x" * size})])
    sent: list[int] = []
    async with running(tmp_path) as client:

        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            if not sent:
                tracemalloc.start()
            sent.append(len(message.get("body", b"")))

        app = client._transport.app  # type: ignore[attr-defined]
        scope = {
            "type": "http", "method": "GET", "path": "/v1/documents/large", "query_string": b"",
            "raw_path": b"/v1/documents/large", "headers": [],
        }  # fmt: skip
        large = asyncio.create_task(app(scope, receive, send))
        while not sent:
            await asyncio.sleep(0)
        assert (await client.get("/livez")).status_code == 200
        assert not large.done()
        await large
        # Copying the rest for every piece would take the square of the length.
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert sum(sent) > size
    assert peak < size / 4
