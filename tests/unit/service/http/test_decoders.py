"""Arbitrary bytes where a note, a report, a key, a document or an embedding is expected: the stated error, or None."""

from __future__ import annotations

import fcntl
import json
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank_service.documents.reading import InvalidDocument, read_document, read_lines
from fullrank_service.http.keys import KeysError, read_keys
from fullrank_service.models.state import (
    PROPOSAL,
    STATE,
    ActiveState,
    Proposal,
    StateDamaged,
    read_proposal,
    read_state,
)
from fullrank_service.models.workers import FOLDER, Report, reports
from fullrank_service.search.cache import Key, unpack
from tests import damage
from tests.random_cases import cases

pytestmark = pytest.mark.sweep

many = cases(40)

STATE_VALUE = {**asdict(ActiveState(3, "a-1", "0" * 64, ("b-1",), "b-1")), "loaded": ["b-1"]}


@given(damage.raw(STATE_VALUE))
@many
def test_a_damaged_state_file_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / STATE).write_bytes(content)
        with suppress(StateDamaged):
            state = read_state(Path(folder))
            assert state is not None
            assert type(state.generation) is int
            assert state.version is None or isinstance(state.version, str)


@given(damage.raw(asdict(Proposal("1", "a-1", "0" * 64, "host"))))
@many
def test_a_damaged_proposal_is_read_or_ignored(content: bytes) -> None:
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
def test_a_damaged_worker_report_is_read_or_ignored(content: bytes) -> None:
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
def test_a_damaged_key_file_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.json"
        path.write_bytes(content)
        path.chmod(0o600)
        with suppress(KeysError):
            for key in (read_keys(path) or {}).values():
                key.is_expired()


@given(damage.raw({"_id": "a", "title": "x", "year": 1999, "tags": ["a", None]}))
@many
def test_a_damaged_document_is_read_or_refused(content: bytes) -> None:
    with suppress(InvalidDocument):
        assert read_document("a", content, 10_000)[0].id == "a"
    for line in read_lines(content, 10_000):
        assert (line.write is None) == (line.error is not None)


@given(st.binary(max_size=300))
@many
def test_a_damaged_cache_entry_is_ignored(value: bytes) -> None:
    key = Key.of("bundle", "text", 3, 10)
    assert unpack(key, value) is None
    # The bytes up to the checksum are right; the rest is random.
    for digest in (key.digest, bytes(16)):
        assert unpack(key, b"FRE2" + digest + value) is None
