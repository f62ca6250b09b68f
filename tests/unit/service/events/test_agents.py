"""Which clients are programs."""

from __future__ import annotations

import pytest

from fullrank_service.events.shown import is_bot

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"
GOOGLE = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (CHROME, False),
        ("Mozilla/5.0 (Linux; Android 9; CUBOT_X19) AppleWebKit/537.36 Chrome/90", False),
        ("Mozilla/5.0 (Linux; Android 9; CUBOT X19) AppleWebKit/537.36 Chrome/90", False),
        # A shop's own server calls for people.
        ("python-httpx/0.28.1", False),
        ("curl/8.5.0", False),
        ("", False),
        (GOOGLE, True),
        ("Mozilla/5.0 (compatible; bingbot/2.0)", True),
        ("Mozilla/5.0 (compatible; YandexBot/3.0)", True),
        ("GPTBot/1.2", True),
        ("facebookexternalhit/1.1", True),
        ("Mozilla/5.0 HeadlessChrome/140.0", True),
        ("Sogou web spider/4.0", True),
    ],
)
def test_programs_are_known_by_name(agent: str, expected: bool) -> None:
    headers = [(b"host", b"x"), (b"user-agent", agent.encode())]
    assert is_bot(headers) is expected


def test_a_request_without_a_name_is_no_program() -> None:
    assert is_bot([(b"host", b"googlebot")]) is False
