"""Cached embeddings: exact round trips, and anything else is a miss."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.storage.encoding import Encoded, Rows
from fullrank.text.words import words
from fullrank_service.base.metrics import Metrics
from fullrank_service.search.cache import Embedding, EmbeddingCache, Key, normalise, pack, unpack
from fullrank_service.search.redis_cache import Breaker, RedisCache


def encoded(n_dense: int = 3, indices: tuple[int, ...] = (1, 4, 9), width: int = 10) -> Encoded:
    nnz = len(indices)
    return Encoded(
        np.linspace(-1, 1, n_dense, dtype=np.float32).reshape(1, n_dense),
        Rows(
            np.array([0, nnz], np.int64),
            np.array(indices, np.int32),
            np.linspace(0.1, 2, nnz, dtype=np.float32),
            width,
        ),
        np.zeros(1, np.float32),
    )


def packed(of: Key, row: Encoded, seconds: float = 0.25) -> bytes:
    return pack(of, Embedding(row, seconds))


def key(text: str = "copy a file", n_dense: int = 3, width: int = 10) -> Key:
    return Key.of("bundle", text, n_dense, width)


@pytest.mark.parametrize(
    ("n_dense", "indices", "width"), [(3, (1, 4, 9), 10), (0, (0,), 1), (5, (), 0), (0, (), 0)]
)
def test_a_round_trip_is_exact(n_dense: int, indices: tuple[int, ...], width: int) -> None:
    row = encoded(n_dense, indices, width)
    back = unpack(key("x", n_dense, width), packed(key("x", n_dense, width), row))
    assert back is not None
    for name in ("dense", "indptr", "indices", "weights", "bias"):
        one, other = row.arrays()[name], back.row.arrays()[name]
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    assert back.row.sparse.width == width
    assert back.seconds == 0.25


def test_every_flipped_byte_and_every_cut_is_a_miss() -> None:
    value = packed(key(), encoded())
    for i in range(len(value)):
        flipped = value[:i] + bytes([value[i] ^ 1]) + value[i + 1 :]
        assert unpack(key(), flipped) is None
        assert unpack(key(), value[:i]) is None
    assert unpack(key(), value + b"\0") is None


def test_a_value_of_another_key_or_shape_is_a_miss() -> None:
    value = packed(key(), encoded())
    assert unpack(key("another"), value) is None
    assert unpack(key()._replace(n_dense=4), value) is None
    assert unpack(key()._replace(width=11), value) is None


@pytest.mark.parametrize(
    "row",
    [
        encoded(indices=(1, 4, 10)),
        encoded(indices=(-1, 4, 9)),
        encoded(indices=(4, 4, 9)),
        # The differences of these overflow to positive numbers.
        encoded(indices=(0, 2**31 - 1, -(2**31), -1)),
        replace(
            encoded(), sparse=encoded().sparse.with_values(np.array([1, np.nan, 1], np.float32))
        ),
        replace(encoded(), dense=np.array([[1, np.inf, 1]], np.float32)),
        replace(encoded(), bias=np.array([np.nan], np.float32)),
    ],
)
def test_a_well_formed_value_that_is_wrong_never_reaches_a_kernel(row: Encoded) -> None:
    assert unpack(key(), packed(key(), row)) is None


@pytest.mark.parametrize("seconds", [-1.0, np.nan, np.inf])
def test_an_impossible_time_is_a_miss(seconds: float) -> None:
    assert unpack(key(), packed(key(), encoded(), seconds)) is None


@given(st.binary(max_size=200))
def test_garbage_is_a_miss(value: bytes) -> None:
    assert unpack(key(), value) is None


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=100))
def test_impossible_lengths_are_a_miss(nnz: int, length: int, rest: bytes) -> None:
    header = struct.pack("<4s16sIIIffI", b"FRE2", key().digest, 3, 10, nnz, 0.0, 0.25, length)
    assert unpack(key(), header + rest) is None


@given(st.text())
def test_the_normalised_text_has_the_same_words(text: str) -> None:
    assert words(normalise(text)) == words(text)


def test_keys_differ_by_bundle_and_by_words() -> None:
    assert key("Copy  a\nFILE") == key("copy a file")
    assert key("copy a file") != key("copy the file")
    assert Key.of("one", "x", 1, 1) != Key.of("two", "x", 1, 1)
    # The table of the process looks at the digest alone.
    assert Key.of("one", "x", 1, 1).digest != Key.of("one", "x", 1, 2).digest


def test_the_least_recently_used_embedding_goes_first() -> None:
    async def scenario() -> None:
        cache = EmbeddingCache(2, Metrics())
        for text in ("one", "two"):
            cache.put(key(text), encoded(), 0.25)
        assert await cache.get(key("one")) is not None
        cache.put(key("three"), encoded(), 0.25)
        assert await cache.get(key("two")) is None
        assert await cache.get(key("one")) is not None
        assert await cache.get(key("three")) is not None

    asyncio.run(scenario())


def test_a_cache_of_nothing_is_off() -> None:
    cache = EmbeddingCache(0, Metrics())
    assert not cache.on
    cache.put(key(), encoded(), 0.25)
    assert asyncio.run(cache.get(key())) is None


def test_the_breaker_opens_makes_one_trial_and_closes() -> None:
    now = 0.0
    breaker = Breaker(max_failures=3, retry_s=5, clock=lambda: now)
    for _ in range(3):
        assert breaker.allows()
        breaker.failure()
    assert not breaker.allows()
    now = 5.0
    assert breaker.allows()
    assert not breaker.allows()  # one trial, no more
    breaker.failure()
    now = 9.9
    assert not breaker.allows()
    now = 10.0
    assert breaker.allows()
    breaker.success()
    assert breaker.allows()
    breaker.failure()
    assert breaker.allows()
    for _ in range(3):  # every other call fails
        breaker.failure()
        breaker.failure()
        breaker.success()
    assert not breaker.allows()


def test_the_table_is_bounded_in_bytes() -> None:
    async def scenario() -> None:
        metrics = Metrics()
        cache = EmbeddingCache(100, metrics, max_bytes=10_000)
        for i in range(50):
            cache.put(key(str(i)), encoded(n_dense=500), 0.25)
            cache.put(key(str(i)), encoded(n_dense=500), 0.25)
        found = [i for i in range(50) if await cache.get(key(str(i))) is not None]
        assert found == [47, 48, 49]
        cache.put(key("larger than the table"), encoded(n_dense=5_000), 0.25)
        assert await cache.get(key("49")) is not None

    asyncio.run(scenario())


def test_redis_is_asked_only_for_long_texts_which_leave_the_trial_of_an_open_breaker_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short, page = key("copy"), key("copy " * 1000)

    async def scenario() -> None:
        now, answers, asked = 0.0, False, []
        metrics = Metrics()
        cache = RedisCache(
            "unix:///nowhere",
            metrics,
            ttl_s=60,
            timeout_s=1,
            retry_s=5,
            min_chars=page.chars,
            clock=lambda: now,
        )

        async def get(name: str) -> None:
            asked.append(name)
            if not answers:
                raise ConnectionError

        async def put(name: str, *_: Any, **__: Any) -> None:
            asked.append(name)

        monkeypatch.setattr(cache.client, "get", get)
        monkeypatch.setattr(cache.client, "set", put)
        for _ in range(4):
            await cache.get(page)
        assert len(asked) == 3, "the breaker is not open"
        now, answers = 5.0, True
        for _ in range(5):
            await cache.get(short)
        cache.put(short, Embedding(encoded(), 0.25))
        await cache.written()
        assert len(asked) == 3, "Redis was asked for a short text"
        await cache.get(page)
        cache.put(page, Embedding(encoded(), 0.25))
        await cache.written()
        assert len(asked) == 5
        assert set(asked) == {f"fullrank:embedding:2:{page.digest.hex()}"}
        assert b"fullrank_redis_passed_over_total 5.0" in metrics.render()
        assert b'fullrank_redis_breaker_open{worker="0"} 0.0' in metrics.render()
        await cache.close()

    asyncio.run(scenario())


def test_the_length_of_a_text_is_that_of_its_normalised_form() -> None:
    assert key("  copy   a file ").chars == len("copy a file")
