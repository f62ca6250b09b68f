"""Workers that write and follow the rules at once never damage their file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from fullrank_service.documents.sqlitelog import FILE

WRITERS, CHANGES = 3, 400
# Larger than a page, so that a write takes several steps.
PROGRAM = f"""
import asyncio, sys
from pathlib import Path
from fullrank_service.documents.sqlitelog import LogPlace
from fullrank_service.rules.routes import Rules

async def write(name: str) -> None:
    rules = Rules(LogPlace.of_file(Path(sys.argv[1])), poll_s=0.0)
    rules.start()
    for number in range({CHANGES}):
        await rules.put("shop", f"{{name}}-{{number}}", {{"hide": [f"{{name}}/{{number}}/{{i}}" for i in range(400)]}})
    await rules.close()

asyncio.run(write(sys.argv[2]))
"""


def test_workers_that_write_and_follow_at_once_lose_and_mix_nothing(tmp_path: Path) -> None:
    path = tmp_path / FILE
    writers = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, path, str(name)])
        for name in range(WRITERS)
    ]
    assert [writer.wait(120) for writer in writers] == [0] * WRITERS
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        ids = {id for (id,) in file.execute("SELECT id FROM operations")}
    assert ids == {f"shop/{name}-{number}" for name in range(WRITERS) for number in range(CHANGES)}
