"""The table of settings and its documentation are one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import PREFIX, Settings

OPERATIONS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


def documented() -> dict[str, tuple[str, str]]:
    rows = re.findall(r"^\| `(FULLRANK_\w+)` \| (.*?) \| (.*?) \|$", OPERATIONS.read_text(), re.M)
    return {name: (default, description) for name, default, description in rows}


def shown(value: object) -> str:
    return "unset" if value is None else f"`{str(value).lower()}`"


def test_every_setting_is_documented_as_it_is() -> None:
    expected = {
        PREFIX + name.upper(): (shown(field.default), field.description)
        for name, field in Settings.model_fields.items()
    }
    assert documented() == expected


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULLRANK_PORT", "9000")
    monkeypatch.setenv("FULLRANK_REDIS_URL", "redis://:secret@localhost")
    monkeypatch.setenv("FULLRANK_ANONYMOUS", "")
    settings = Settings()
    assert settings.port == 9000
    assert settings.anonymous is None
    assert "secret" not in repr(settings)
    assert Settings.defaults().port == 8000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "99999"),
        ("redis_url", "localhost:6379"),
        ("redis_url", "http://localhost"),
        ("redis_url", "redis://localhost:99999"),
        ("redis_url", "redis://:pass/word@localhost"),
    ],
)
def test_an_impossible_value_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(PREFIX + name.upper(), value)
    with pytest.raises(ValidationError, match=name) as refused:
        Settings()
    assert "pass" not in str(refused.value.errors(include_input=False))
