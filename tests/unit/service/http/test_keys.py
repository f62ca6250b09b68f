"""Keys: made, found, ended, revoked, followed; the file says nothing that opens a door."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fullrank.errors import FullrankError
from fullrank_service.base.errors import Unauthorized
from fullrank_service.http.access import Access, anonymous_scopes, is_loopback
from fullrank_service.http.keys import KeyRing, KeysError, create_key, read_keys, revoke_key
from tests.api.support import settings_for

ENTRY = {"id": "a", "scopes": ["search"], "sha256": "0" * 64, "created": "2026-01-01"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bundles" / "keys.json"


def test_a_key_is_found_only_by_its_token(path: Path) -> None:
    key, token = create_key(path, ["search", "admin"], "shop")
    ring = KeyRing(path)
    assert ring.find(token) == key == (read_keys(path) or {})["shop"]
    assert key.scopes == {"search", "admin"}
    wrong = ["", "shop", "fr_shop_", token[:-1], token + "x", token[3:], token.upper(), "fr__"]
    wrong += [token.replace("shop", "pohs"), "fr_shop_\ud800", key.sha256, f"fr_shop_{key.sha256}"]
    assert [ring.find(text) for text in wrong] == [None] * len(wrong)


def test_the_key_file_contains_no_token_and_only_its_owner_can_read_it(path: Path) -> None:
    _, token = create_key(path, ["search"])
    _, other = create_key(path, ["search"])
    assert token != other
    written = path.read_text()
    assert token.split("_", 2)[2] not in written
    assert len(json.loads(written)["keys"]) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in path.parent.iterdir()) == [".keys.json.lock", "keys.json"]


def test_a_revoked_key_stays_revoked_after_a_power_cut(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_key(path, ["search"], "shop")
    done: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real_fsync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        done.append("replace")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    revoke_key(path, "shop")
    assert done == ["file", "replace", "folder"]


def test_expired_and_revoked_keys_are_not_found(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, brief = create_key(path, ["search"], "brief", days=1)
    _, kept = create_key(path, ["search"], "kept")
    ring = KeyRing(path, check_s=0)
    assert ring.find(brief) is not None
    now = time.time()
    monkeypatch.setattr("fullrank_service.http.keys.time.time", lambda: now + 86_401)
    assert ring.find(brief) is None
    assert ring.has_active_key()
    assert ring.find(kept) is not None
    revoke_key(path, "kept")
    assert ring.find(kept) is None
    assert not ring.has_active_key()
    assert ring.is_in_use
    with pytest.raises(KeysError, match="no key 'kept'"):
        revoke_key(path, "kept")


def test_the_key_file_is_checked_once_per_interval(path: Path) -> None:
    now = 0.0
    ring = KeyRing(path, check_s=1, clock=lambda: now)
    _, token = create_key(path, ["search"])
    assert ring.find(token) is None
    now = 1.0
    assert ring.find(token) is not None


def test_the_last_valid_keys_stay_in_force_if_the_file_becomes_unreadable(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, token = create_key(path, ["search"])
    ring = KeyRing(path, check_s=0)
    path.write_text("{")
    assert ring.find(token) is not None
    assert "stay in force" in caplog.text
    path.unlink()
    assert ring.find(token) is None


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_deleted_key_file_does_not_open_the_service(tmp_path: Path, *, by_hand: bool) -> None:
    path = tmp_path / "keys.json"
    settings = settings_for(tmp_path, anonymous=None, keys=path)
    search = {"type": "http", "headers": []}
    running = Access.from_settings(settings)
    running.authorize(search, "search")
    if by_hand:
        path.write_text(json.dumps({"keys": [ENTRY]}))
        running = Access.from_settings(settings)
    else:
        create_key(path, ["search"])
    path.unlink()
    for access in (running, Access.from_settings(settings)):
        access._keys._next = 0
        with pytest.raises(Unauthorized):
            access.authorize(search, "search")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        {"keys": {}},
        {"keys": 1},
        {"keys": [ENTRY, ENTRY]},
        {"keys": [{**ENTRY, "id": "A_"}]},
        {"keys": [{**ENTRY, "id": None}]},
        {"keys": [{**ENTRY, "scopes": ["all"]}]},
        {"keys": [{**ENTRY, "scopes": "search"}]},
        {"keys": [{**ENTRY, "sha256": "x"}]},
        {"keys": [{**ENTRY, "created": 1}]},
        {"keys": [{**ENTRY, "expires": "soon"}]},
        {"keys": [{**ENTRY, "expires": "2026-01-01"}]},
    ],
)
def test_a_damaged_key_file_is_refused(path: Path, content: Any) -> None:
    path.parent.mkdir()
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(KeysError, match=r"keys\.json"):
        KeyRing(path)


def test_a_key_file_that_every_user_can_write_is_refused(path: Path) -> None:
    create_key(path, ["search"])
    path.chmod(0o606)
    with pytest.raises(KeysError, match="every user"):
        KeyRing(path)


@pytest.mark.parametrize(
    "asked", [{"scopes": []}, {"scopes": ["all"]}, {"scopes": ["search"], "id": "A b"}]
)
def test_an_invalid_or_duplicate_key_is_not_created(path: Path, asked: Mapping[str, Any]) -> None:
    with pytest.raises(KeysError):
        create_key(path, **asked)
    create_key(path, ["search"], "same")
    with pytest.raises(KeysError, match="already"):
        create_key(path, ["search"], "same")
    assert list(read_keys(path) or {}) == ["same"]


@pytest.mark.parametrize(
    ("host", "anonymous", "keys", "refused"),
    [
        ("127.0.0.1", None, False, False),
        ("::1", None, False, False),
        ("localhost", None, False, False),
        ("0.0.0.0", None, False, True),
        ("::", None, False, True),
        ("example.org", None, False, True),
        ("0.0.0.0", "search", False, False),
        ("0.0.0.0", "none", False, False),
        ("0.0.0.0", None, True, False),
    ],
)
def test_listening_beyond_loopback_needs_a_key_or_a_setting(
    tmp_path: Path, host: str, anonymous: str | None, keys: bool, refused: bool
) -> None:
    path = tmp_path / "own-keys.json"
    settings = settings_for(tmp_path, host=host, anonymous=anonymous, keys=path)
    assert is_loopback(host) == (host not in ("0.0.0.0", "::", "example.org"))
    if keys:
        create_key(path, ["search"], "one")
    if refused:
        with pytest.raises(FullrankError, match="fullrank keys create"):
            Access.from_settings(settings).require_protection()
    else:
        Access.from_settings(settings).require_protection()
    if keys:
        revoke_key(path, "one")
        with pytest.raises(FullrankError):
            Access.from_settings(settings).require_protection()


@pytest.mark.parametrize(
    ("anonymous", "scopes"),
    [
        (None, None),
        ("none", set()),
        ("search", {"search"}),
        ("search, events", {"search", "events"}),
    ],
)
def test_the_anonymous_setting_is_a_list_of_scopes(
    tmp_path: Path, anonymous: Any, scopes: Any
) -> None:
    assert anonymous_scopes(settings_for(tmp_path, anonymous=anonymous)) == scopes


@pytest.mark.parametrize("anonymous", ["all", "search,", "admin", "search,admin", "none,search"])
def test_an_invalid_anonymous_setting_is_refused(tmp_path: Path, anonymous: str) -> None:
    with pytest.raises(KeysError, match="FULLRANK_ANONYMOUS"):
        anonymous_scopes(settings_for(tmp_path, anonymous=anonymous))
