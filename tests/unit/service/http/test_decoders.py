"""Arbitrary bytes where a note, a report, a key, a document or an embedding is expected: the stated error, or None."""

from __future__ import annotations

import fcntl
import json
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from service.auth.keys import KeysError, read_keys
from service.documents.reading import Unfit, read_document, read_lines
from service.models.state import (
    PROPOSAL,
    STATE,
    ActiveState,
    Proposal,
    StateDamaged,
    read_proposal,
    read_state,
)
from service.models.workers import FOLDER, Report, reports
from service.search.caching.cache import Key, unpack
from service.telemetry.cells import Cells
from tests import damage

many = settings(max_examples=150, deadline=None)

STATE_VALUE = {**asdict(ActiveState(3, "a-1", "0" * 64, ("b-1",), "b-1")), "loaded": ["b-1"]}


@given(damage.raw(STATE_VALUE))
@many
def test_the_note_of_what_serves(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / STATE).write_bytes(content)
        with suppress(StateDamaged):
            state = read_state(Path(folder))
            assert state is not None
            assert type(state.generation) is int
            assert state.version is None or isinstance(state.version, str)


@given(damage.raw(asdict(Proposal("1", "a-1", "0" * 64, "host"))))
@many
def test_a_proposal(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PROPOSAL
        path.write_bytes(content)
        with path.open("rb") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            proposal = read_proposal(Path(folder))
        if proposal is not None:
            assert all(isinstance(text, str) for text in asdict(proposal).values())


REPORT = json.loads(json.dumps(asdict(Report("1", 5, "host"))))


@given(damage.raw(REPORT))
@many
def test_the_report_of_a_worker(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FOLDER / "1.json"
        path.parent.mkdir()
        path.write_bytes(content)
        with path.open("rb") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            for report in reports(Path(folder)):
                assert isinstance(report.generation, int)
                assert isinstance(report.pid, int)


KEYS = {
    "keys": [
        {
            "id": "shop",
            "scopes": ["search"],
            "sha256": "0" * 64,
            "created": "2026-01-01T00:00:00+00:00",
            "expires": "2027-01-01T00:00:00+00:00",
        }
    ]
}


@given(damage.raw(KEYS))
@many
def test_a_file_of_keys(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.json"
        path.write_bytes(content)
        path.chmod(0o600)
        with suppress(KeysError):
            for key in (read_keys(path) or {}).values():
                key.ended()


@given(damage.raw({"_id": "a", "title": "x", "year": 1999, "tags": ["a", None]}))
@many
def test_a_document(content: bytes) -> None:
    with suppress(Unfit):
        assert read_document("a", content, 10_000).id == "a"
    for line in read_lines(content, 10_000):
        assert (line.write is None) == (line.error is not None)


@given(st.binary(max_size=300))
@many
def test_an_embedding(value: bytes) -> None:
    key = Key.of("bundle", "text", 3, 10)
    assert unpack(key, value) is None
    # As far as the checksum, and right so far: what follows is anything.
    for digest in (key.digest, bytes(16)):
        assert unpack(key, b"FRE2" + digest + value) is None


@given(damage.raw(["requests", ["GET", "/", "200"], 1, 1]), st.binary(max_size=64))
@many
def test_the_numbers_of_another_worker(line: bytes, cells: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "0.names").write_bytes(line + b"\n")
        (Path(folder) / "0.cells").write_bytes(cells)
        taken = Cells(Path(folder))
        taken.place(("swaps", ("done",)), 1)
        assert taken.read()
        taken.close()
