"""Tokens say what was signed, and nothing else can be read as one."""

from __future__ import annotations

import random

import pytest

from service.ads.tokens import LIFETIME_S, InvalidToken, Signer

SIGNER = Signer(b"k" * 32)


def test_a_token_says_what_was_signed() -> None:
    token = SIGNER.token(1000.5, "ads", "日本 ad", 2.5, 1.25, "top", "p")
    served = SIGNER.read(token)
    assert served[1:] == (1000.5 + LIFETIME_S, "ads", "日本 ad", 2.5, 1.25, "top", "p")
    again = SIGNER.read(SIGNER.token(1000.5, "ads", "日本 ad", 2.5, 1.25, "top", "p"))
    assert again.id != served.id
    assert len(bytes.fromhex(served.id)) == 16


def test_a_changed_token_is_none() -> None:
    token = SIGNER.token(0, "ads", "a", 1, 1, "top", "")
    rng = random.Random(1)
    changed = ["", ".", "a.b", token[:-1], token + "A", f"{token}.x", token.replace(".", ""), "é.é"]
    for _ in range(300):
        place = rng.randrange(len(token))
        other = rng.choice("ABCDEFabcdef0123456789-_.")
        changed.append(token[:place] + other + token[place + 1 :])
    signed = SIGNER.read(token)
    for text in changed:
        try:
            # The last character of base64 holds bits that no byte has.
            assert SIGNER.read(text) == signed
        except InvalidToken:
            continue
    with pytest.raises(InvalidToken):
        Signer(b"x" * 32).read(token)
    assert sum(text != token for text in changed) > 250
