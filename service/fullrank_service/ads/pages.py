"""Texts of pages by address, so that a match can name a page by its URL alone. Nothing is ever fetched.

One SQLite file for all workers of a machine, bounded in bytes. The texts that ``PUT /v1/pages`` brought are never
replaced by those of matches, and leave last; among equals, the oldest leave first. Commits are not synced: a power cut
may lose the last ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urldefrag

import orjson
from cachetools import TTLCache

from fullrank.errors import FullrankError
from fullrank_service.base.sqlite import SqliteFile

FILE = "pages.sqlite"
# Pages of matches that wait to be written; beyond them pages are not kept.
_MAX_WAITING = 256
# Pages whose text this worker has written lately, and for how long it does not write it again.
_KNOWN, _KNOWN_S = 10_000, 60.0
# Bytes that a page takes besides its text.
_OVERHEAD_BYTES = 128
_REMOVED_AT_ONCE = 64
_TABLES = """
CREATE TABLE IF NOT EXISTS pages (
    url TEXT PRIMARY KEY,
    content BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    is_put INTEGER NOT NULL,
    written REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pages_by_age ON pages (is_put, written, bytes);
CREATE TABLE IF NOT EXISTS total (one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL);
INSERT OR IGNORE INTO total VALUES (1, 0);
"""
Result = TypeVar("Result")
_log = getLogger(__name__)


class PagesError(FullrankError):
    """The file of pages cannot be read or written; the message says why."""


class Content(NamedTuple):
    """The text of a page."""

    title: str
    text: str
    keywords: tuple[str, ...]


class PageStore:
    """The file, for one thread at a time; it need not exist."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._file = SqliteFile(path, _TABLES, PagesError)

    def get(self, url: str) -> Content | None:
        """Return the text of a page; None if it is unknown. Raises PagesError."""
        with self._file.reading() as file:
            found = file.execute("SELECT content FROM pages WHERE url = ?", (url,)).fetchone()
        if found is None:
            return None
        title, text, keywords = orjson.loads(found[0])
        return Content(title, text, tuple(keywords))

    def put(self, pages: Mapping[str, Content], *, is_put: bool) -> None:
        """Add or replace pages by URL; only those with `is_put` replace those with it. Raises PagesError."""
        with self._file.changing() as file:
            for url, content in pages.items():
                self._put(file, url, content, is_put)
            self._shrink(file)

    def close(self) -> None:
        self._file.close()

    def _put(self, file: sqlite3.Connection, url: str, content: Content, is_put: bool) -> None:
        query = "SELECT bytes, is_put FROM pages WHERE url = ?"
        old, was_put = file.execute(query, (url,)).fetchone() or (0, False)
        if was_put and not is_put:
            return
        line = orjson.dumps([*content])
        size = len(line) + len(url.encode()) + _OVERHEAD_BYTES
        row = (url, line, size, is_put, time.time())
        file.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)", row)
        file.execute("UPDATE total SET bytes = bytes + ?", (size - old,))

    def _shrink(self, file: sqlite3.Connection) -> None:
        while True:
            [total] = file.execute("SELECT bytes FROM total").fetchone()
            if total <= self._max_bytes:
                return
            query = "SELECT url, bytes FROM pages ORDER BY is_put, written LIMIT ?"
            for url, size in file.execute(query, (_REMOVED_AT_ONCE,)).fetchall():
                file.execute("DELETE FROM pages WHERE url = ?", (url,))
                file.execute("UPDATE total SET bytes = bytes - ?", (size,))
                total -= size
                if total <= self._max_bytes:
                    break


class Pages:
    """The pages of one worker, for its event loop; a thread of its own reads and writes the file."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._store = PageStore(path, max_bytes)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pages")
        self._lock = threading.Lock()
        self._waiting: dict[str, Content] = {}
        self._known: TTLCache[str, bytes] = TTLCache(_KNOWN, _KNOWN_S)
        self._logged = False

    async def get(self, url: str) -> Content | None:
        """Return the text of a page; None if it is unknown. Raises PagesError."""
        # What matches have brought is written first, because the thread does one thing after another.
        return await self._run(partial(self._store.get, address(url)))

    async def put(self, url: str, content: Content) -> None:
        """Keep the text of a page, whatever matches bring later. Raises PagesError."""
        key = address(url)
        await self._run(partial(self._store.put, {key: content}, is_put=True))

    def note(self, url: str, title: str, text: str, keywords: Iterable[str]) -> None:
        """Keep the text of a page that a match brought; it is written soon, or dropped if too many wait."""
        key, content = address(url), Content(title, text, tuple(keywords))
        digest = hashlib.blake2b(orjson.dumps([*content]), digest_size=16).digest()
        with self._lock:
            if self._known.get(key) == digest or len(self._waiting) >= _MAX_WAITING:
                return
            self._known[key] = digest
            is_first = not self._waiting
            self._waiting[key] = content
        if is_first:
            self._pool.submit(self._write)

    async def close(self) -> None:
        """Write what waits, then close the file."""
        await asyncio.to_thread(self._pool.shutdown)
        self._store.close()

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _write(self) -> None:
        with self._lock:
            pages, self._waiting = self._waiting, {}
        try:
            self._store.put(pages, is_put=False)
        except PagesError as error:
            if not self._logged:
                _log.warning("pages of matches are not kept: %s", error)
            self._logged = True


def address(url: str) -> str:
    """Return what identifies a page: its URL without a fragment."""
    return urldefrag(url).url
