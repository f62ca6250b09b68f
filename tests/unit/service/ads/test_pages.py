"""The file of pages: bounded, and pages that were put leave last."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fullrank_service.ads.pages import Content, Pages, PagesError, PageStore


def content(size: int) -> Content:
    return Content("t", "x" * size, ("k",))


@pytest.mark.parametrize("seed", range(3))
def test_the_oldest_leave_and_those_put_leave_last(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    limit = 60_000
    store = PageStore(tmp_path / "pages.sqlite", limit)
    kept: dict[str, tuple[bool, Content]] = {}
    for _ in range(300):
        is_put = rng.random() < 0.1
        new = {f"u{rng.randrange(60)}": content(rng.randrange(3000)) for _ in range(2)}
        store.put(new, is_put=is_put)
        for url, found in new.items():
            if is_put or not kept.get(url, (False,))[0]:
                kept.pop(url, None)
                kept[url] = (is_put, found)
        # Text, JSON around it, the URL and a constant.
        sizes = {
            u: len(c.text) + len('["t","",["k"]]') + len(u) + 128 for u, (_, c) in kept.items()
        }
        while sum(sizes[url] for url in kept) > limit:
            del kept[next((u for u, (was_put, _) in kept.items() if not was_put), next(iter(kept)))]
    store.close()
    again = PageStore(tmp_path / "pages.sqlite", limit)
    left = {url: again.get(url) for url in (f"u{number}" for number in range(60))}
    assert {url: page for url, page in left.items() if page} == {u: c for u, (_, c) in kept.items()}
    again.close()
    assert 10 < len(kept) < 60


def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pages.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(PagesError, match=r"pages\.sqlite"):
        PageStore(path, 1000).get("u")
    with pytest.raises(PagesError):
        PageStore(tmp_path / "missing" / "pages.sqlite", 1000).get("u")


@pytest.mark.anyio
@pytest.mark.parametrize("is_put", [True, False])
async def test_a_page_is_read_after_what_matches_brought(tmp_path: Path, is_put: bool) -> None:
    """Another worker writes, so the text of a match waits; it does not stand in for one that was put."""
    path = tmp_path / "pages.sqlite"
    pages = Pages(path, 1 << 20)
    await pages.put("put" if is_put else "other", content(10))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        pages.note("put", "t", "brought", ["k"])
        asked = asyncio.create_task(pages.get("put"))
        await asyncio.sleep(0.05)
        assert not asked.done()
        other.execute("ROLLBACK")
    assert await asked == (content(10) if is_put else Content("t", "brought", ("k",)))
    await pages.close()
