"""Embeddings remembered: exact round trips, and nothing else accepted."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.encoding import Encoded
from fullrank.text.words import words
from service.caching.worth import Worth
from service.search.caching.breaker import Breaker
from service.search.caching.cache import Embedding, EmbeddingCache, Key, normalise, pack, unpack
from service.search.caching.redis_cache import RedisCache
from service.telemetry.metrics import Metrics


def encoded(n_dense: int = 3, indices: tuple[int, ...] = (1, 4, 9), width: int = 10) -> Encoded:
    nnz = len(indices)
    return Encoded(
        np.linspace(-1, 1, n_dense, dtype=np.float32).reshape(1, n_dense),
        np.array([0, nnz], np.int64),
        np.array(indices, np.int32),
        np.linspace(0.1, 2, nnz, dtype=np.float32),
        width,
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
        one, other = getattr(row, name), getattr(back.row, name)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    assert back.row.width == width
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
    assert unpack(replace(key(), n_dense=4), value) is None
    assert unpack(replace(key(), width=11), value) is None


@pytest.mark.parametrize(
    "row",
    [
        encoded(indices=(1, 4, 10)),
        encoded(indices=(-1, 4, 9)),
        encoded(indices=(4, 4, 9)),
        replace(encoded(), weights=np.array([1, np.nan, 1], np.float32)),
        replace(encoded(), dense=np.array([[1, np.inf, 1]], np.float32)),
        replace(encoded(), bias=np.array([np.nan], np.float32)),
    ],
)
def test_a_well_formed_lie_never_reaches_a_kernel(row: Encoded) -> None:
    assert unpack(key(), packed(key(), row)) is None


@pytest.mark.parametrize("seconds", [-1.0, np.nan, np.inf])
def test_a_time_that_cannot_be_is_a_miss(seconds: float) -> None:
    assert unpack(key(), packed(key(), encoded(), seconds)) is None


@given(st.binary(max_size=200))
def test_garbage_is_a_miss(value: bytes) -> None:
    assert unpack(key(), value) is None


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=100))
def test_lengths_out_of_this_world_are_a_miss(nnz: int, length: int, rest: bytes) -> None:
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


def test_the_oldest_unused_embedding_goes_first() -> None:
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


def test_the_breaker_opens_tries_once_and_closes() -> None:
    now = 0.0
    breaker = Breaker(max_failures=3, retry_s=5, clock=lambda: now)
    for _ in range(3):
        assert breaker.allows()
        breaker.failure()
    assert not breaker.allows()
    now = 5.0
    assert breaker.allows()
    assert not breaker.allows()  # one trial, not a rush
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


def test_redis_is_asked_where_encoding_takes_longer() -> None:
    worth = Worth(gain=2)
    short, page = ("bundle", 5), ("bundle", 15)
    for _ in range(20):
        for kind, seconds in ((short, 0.0001), (page, 0.01)):
            worth.encoded(kind, seconds)
            worth.asked(kind, 0.001)
    assert all(worth.asks(page) for _ in range(200))
    assert sum(worth.asks(short) for _ in range(640)) == 10  # it looks again now and then
    assert worth.asks(("another bundle", 5))


def test_a_redis_that_was_slow_is_asked_again() -> None:
    worth = Worth(gain=2)
    kind = ("bundle", 15)
    for _ in range(100):
        worth.encoded(kind, 0.01)
        worth.asked(kind, 0.02)
    assert not worth.pays(kind)
    asked = 0
    for _ in range(640):
        if worth.asks(kind):
            asked += 1
            worth.asked(kind, 0.0003)
    assert worth.pays(kind)
    assert asked > 300


def test_gain_zero_asks_for_all() -> None:
    worth = Worth(gain=0)
    for _ in range(100):
        worth.encoded(("bundle", 5), 0.0)
        worth.asked(("bundle", 5), 1.0)
        assert worth.asks(("bundle", 5))


def test_kinds_of_bundles_long_gone_are_forgotten() -> None:
    worth = Worth(gain=2)
    for i in range(5_000):
        worth.encoded((f"bundle {i}", 5), 0.0)
    assert len(worth._kinds) <= 1024


def test_texts_not_worth_asking_for_do_not_use_up_the_trial_of_an_open_breaker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        now, answers, asked = 0.0, False, 0
        cache = RedisCache("unix:///nowhere", Metrics(), ttl_s=60, timeout_s=1, retry_s=5, gain=2)
        cache._breaker = Breaker(retry_s=5, clock=lambda: now)

        async def get(*_: Any) -> None:
            nonlocal asked
            asked += 1
            if not answers:
                raise ConnectionError

        monkeypatch.setattr(cache._client, "get", get)
        short, page = key("copy"), key("copy " * 1000)
        for _ in range(20):
            for one, seconds in ((short, 0.0001), (page, 0.01)):
                cache._worth.encoded(one.kind, seconds)
                cache._worth.asked(one.kind, 0.001)
        for _ in range(4):
            await cache.get(page)
        assert (asked, cache._breaker.open) == (3, True)
        now, answers = 5.0, True
        for _ in range(5):
            await cache.get(short)
        assert asked == 3
        await cache.get(page)
        assert (asked, cache._breaker.open) == (4, False)
        await cache.close()

    asyncio.run(scenario())
