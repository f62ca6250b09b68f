"""Tokens say what was signed, and nothing else can be read as one."""

from __future__ import annotations

import random

import pytest

from fullrank_service.ads.tokens import LIFETIME_S, InvalidToken, Placed, Signer, served

SIGNER = Signer(b"k" * 32)


def test_a_token_says_what_was_signed() -> None:
    placed = [Placed("日本 ad", 2.5, 1.25, "top")] * 2
    one, other = served(1000.5, "ads", "m1", "p", placed)
    found = SIGNER.read(SIGNER.token(one))
    assert found == one
    assert found[1:] == (1000.5 + LIFETIME_S, "ads", "m1", "p", "日本 ad", 2.5, 1.25, "top")
    assert other.id != one.id
    assert len(bytes.fromhex(one.id)) == 16


def test_a_changed_token_is_none() -> None:
    token = SIGNER.token(*served(0, "ads", "m1", "", [Placed("a", 1, 1, "top")]))
    rng = random.Random(1)
    changed = ["", ".", "a.b", token[:-1], token + "A", f"{token}.x", token[1:], "é"]
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
