"""Settings come from the environment, and mistakes in them are named."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fullrank_service.base.settings import PREFIX, Settings, misspelled_variables


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
        ("documents_url", "mysql://localhost/docs"),
        ("redis_url", "http://localhost"),
        ("redis_url", "redis://localhost:99999"),
        ("redis_url", "redis://:pass/word@localhost"),
    ],
)
def test_an_invalid_value_is_refused_by_the_name_of_its_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(PREFIX + name.upper(), value)
    with pytest.raises(ValidationError, match=name) as refused:
        Settings()
    assert "pass" not in str(refused.value.errors(include_input=False))


def test_a_misspelled_variable_is_found_with_the_nearest_setting() -> None:
    environment = ["FULLRANK_WORKRES", "FULLRANK_MAX_QUEU", "PATH"]
    environment += [PREFIX + name.upper() for name in Settings.model_fields]
    assert misspelled_variables(environment) == {
        "FULLRANK_MAX_QUEU": "FULLRANK_MAX_QUEUE",
        "FULLRANK_WORKRES": "FULLRANK_WORKERS",
    }


def test_variables_of_other_programs_are_left_alone() -> None:
    """FULLRANK_DATA is of the tests; Kubernetes sets the others for a service called fullrank."""
    others = ["FULLRANK_DATA", "FULLRANK_SERVICE_HOST", "FULLRANK_PORT_8000_TCP_ADDR"]
    assert misspelled_variables(others) == {}
