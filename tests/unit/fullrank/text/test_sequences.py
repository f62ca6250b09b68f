"""Test the words of many texts against the words of each."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.kernels.tokens import keep_joined
from fullrank.text import compounds, sequences
from fullrank.text.sequences import Chunk, number_words, tally_words
from fullrank.text.words import count_words, words

# Words of one and of several bytes, Korean with particles, bigrams, spaces of all kinds, halves of surrogate pairs.
_ALPHABET = "aAbZ09 _-.\t\n\x00éßΣİ파일을가日本語ｶﾞ\u00a0\u3000\u0301\ufe0f🙂\ud800"
_TEXTS = st.lists(st.one_of(st.text(_ALPHABET, max_size=30), st.text(max_size=20)), max_size=5)


@pytest.mark.sweep
@given(_TEXTS)
@example([])
@example([""])
@example(["", "a", ""])
def test_numbers_name_the_words_of_each_text(texts: list[str]) -> None:
    number = {"b": 0, "a": 1}
    indptr, numbers = number_words(texts, number)
    assert list(number.values()) == list(range(len(number)))
    names = list(number)
    read = [[names[i] for i in numbers[a:b]] for a, b in pairwise(indptr.tolist())]
    assert read == [words(text) for text in texts]


@pytest.mark.sweep
@given(st.lists(_TEXTS, max_size=3), st.integers(1, 2), st.sampled_from([0, 20, 1000]))
@example([], 2, 0)
def test_tallies_count_the_words_of_each_text(
    chunks: list[list[str]], cores: int, together: int
) -> None:
    given = [Chunk(texts, 0, len(texts), sum(map(len, texts))) for texts in chunks]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences, "_TOGETHER", together)
        tally = tally_words(given, cores)
    names = list(tally.number)
    for chunk, texts in enumerate(chunks):
        sizes, indices, counts = tally.chunks[chunk]
        found: list[dict[str, int]] = []
        place = 0
        for size in sizes.tolist():
            entries = zip(indices[place : place + size], counts[place : place + size], strict=True)
            found.append({names[i]: int(count) for i, count in entries})
            place += size
        assert place == len(indices)
        assert found == [dict(count_words(text)) for text in texts]


@pytest.mark.sweep
@given(st.text("aZ9-'_.\" ,\té日\u2019\x00", max_size=60))
@example("a-b")
@example("-a- a- -b a--b a_b é-b a’b ’’ é")
def test_only_tokens_that_join_letters_are_kept(text: str) -> None:
    raw = text.encode()
    blob = np.frombuffer(bytearray(raw), np.uint8)
    keep_joined(blob, compounds.KINDS)
    letter, join = rb"[A-Za-z0-9\x80-\xff]", rb"[-'._&\"\x80-\xff]"
    tokens = re.split(rb"((?:[^A-Za-z0-9\x80-\xff\-'._&\"]))", raw)
    kept = [
        token if i % 2 == 0 and re.search(letter + join + letter, token) else b" " * len(token)
        for i, token in enumerate(tokens)
    ]
    assert blob.tobytes() == b"".join(kept)


def test_the_table_of_tokens_grows() -> None:
    texts = [" ".join(f"w{i * j}" for i in range(400)) for j in range(60)]
    number: dict[str, int] = {}
    _, numbers = number_words(texts, number)
    expected = Counter(word for text in texts for word in words(text))
    assert len(number) == len(expected) > 1 << 13
    assert {word: int((numbers == i).sum()) for word, i in number.items()} == expected
