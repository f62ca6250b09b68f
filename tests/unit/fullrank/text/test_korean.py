"""Korean stems compared with words that are built from a noun and its particles."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.text.words import stem

# Nouns that end in a consonant, in ㄹ and in a vowel; the last two syllables could be particles elsewhere.
NOUNS = ["목록", "패키지", "파일", "디렉터리", "와이파이", "컴포넌트", "종이"]
CASES = [
    "을/를",
    "은/는",
    "이/가",
    "과/와",
    "으로/로",
    "의/의",
    "에/에",
    "에서/에서",
    "까지/까지",
    "부터/부터",
]
SYLLABLES = st.text(st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3), max_size=8)


def final(word: str) -> str:
    """The last jamo of a word, by the Unicode decomposition."""
    return unicodedata.normalize("NFD", word)[-1]


def with_case(noun: str, case: str) -> str:
    """A noun and the form of a particle that fits its last syllable."""
    after_consonant, after_vowel = case.split("/")
    is_consonant = "\u11a8" <= final(noun) <= "\u11ff"
    if case == "으로/로" and final(noun) == "\u11af":
        is_consonant = False  # ㄹ
    return noun + (after_consonant if is_consonant else after_vowel)


@pytest.mark.parametrize("noun", NOUNS)
@pytest.mark.parametrize("case", CASES)
def test_a_noun_with_a_particle_is_the_noun(noun: str, case: str) -> None:
    assert stem(with_case(noun, case)) == stem(noun)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("와이파이", "와이파이"),
        ("설치합니다", "설치"),
        ("디렉터리에서는", "디렉터리"),
        ("사용자들에게", "사용자"),
        ("물로", "물로"),
        ("", ""),
    ],
)
def test_stems_of_examples(word: str, expected: str) -> None:
    assert stem(word) == expected


@given(SYLLABLES)
def test_a_stem_is_the_start_of_the_word_and_its_own_stem(word: str) -> None:
    found = stem(word)
    assert word.startswith(found)
    assert len(found) >= min(2, len(word))
    assert stem(found) == found
