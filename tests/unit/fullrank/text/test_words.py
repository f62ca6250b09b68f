"""The word segmentation compared with a slow reference that reads one character after another."""

from __future__ import annotations

import re
import tracemalloc
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.text.words import count_words, normalised_length, stem, trigrams, words
from tests.random_cases import cases

# Scripts whose words are cut into bigrams, by the name Unicode gives their characters.
_BIGRAM_SCRIPTS = (
    "BOPOMOFO",
    "CJK COMPATIBILITY IDEOGRAPH",
    "CJK UNIFIED IDEOGRAPH",
    "COMBINING KATAKANA-HIRAGANA",
    "HENTAIGANA",
    "HIRAGANA",
    "IDEOGRAPHIC CLOSING MARK",
    "IDEOGRAPHIC ITERATION MARK",
    "IDEOGRAPHIC NUMBER ZERO",
    "KATAKANA",
    "KHMER",
    "LAO",
    "MYANMAR",
    "THAI",
)


def reference(text: str) -> list[str]:
    """Words by the rule alone: ASCII other than letters and digits separates; what is left is
    normalised, lowercased, and walked through one character at a time."""
    found: list[str] = []
    for piece in "".join(c if not c.isascii() or c.isalnum() else " " for c in text).split():
        word, run, hangul = "", "", ""

        def end_of_word() -> None:
            nonlocal word
            if any(unicodedata.category(character)[0] in "LN" for character in word):
                found.append(word)
            word = ""

        def end_of_run() -> None:
            nonlocal run
            if len(run) == 1:
                found.append(run)
            for a, b in pairwise(run):
                found.append(a + b)
            run = ""

        def end_of_hangul() -> None:
            nonlocal hangul
            if hangul:
                found.append(stem(hangul))
            hangul = ""

        folded = "".join(c.lower() if c.isascii() else c for c in piece)
        # A variation selector carries no meaning, so it does not separate its neighbours.
        spoken = "".join(c for c in folded if "VARIATION SELECTOR" not in unicodedata.name(c, ""))
        lowered = unicodedata.normalize("NFKC", spoken).lower()
        for character in unicodedata.normalize("NFKC", lowered):
            if unicodedata.category(character)[0] not in "LMN":
                end_of_word()
                end_of_run()
                end_of_hangul()
            elif unicodedata.name(character, "").startswith(_BIGRAM_SCRIPTS):
                end_of_word()
                end_of_hangul()
                run += character
            elif unicodedata.name(character, "").startswith("HANGUL"):
                end_of_word()
                end_of_run()
                hangul += character
            else:
                end_of_run()
                end_of_hangul()
                word += character
        end_of_word()
        end_of_run()
        end_of_hangul()
    return found


# Letters, marks, digits and separators of many scripts, dense enough to meet each other.
_ALPHABET = (
    "aZ09 _-'’.\n\t\0\x7f"
    "éÉßſİıŒﬁ½²①Ⅷﷺ\u0301\u0308\u0338\u200c\u200d\u00ad\u00a0\u3000\ufeff\ufe0f"
    "ΣσςЖжאבابی٣हिन्दी"
    "日本語々〇ーかがカﾞｶＡａ１한글ᄒ\u1161กำ\u0e31ລາວខ្មែរမြန်"
    "𝒜𠀀🙂❤—“”"
)
_TEXTS = st.one_of(st.text(st.sampled_from(_ALPHABET), max_size=30), st.text(max_size=30))


@pytest.mark.sweep
@cases(50)
@given(_TEXTS)
@example("ΟΔΟΣ ΣΑΣ’Σ")
@example("\ud800x\udfff")
@example("a\ufe0f\u0301")
@example("0\uff9e\ufe0f\u0338")
def test_words_equal_a_slow_reference(text: str) -> None:
    assert words(text) == reference(text)


@pytest.mark.sweep
def test_every_character_has_the_kind_of_its_unicode_name() -> None:
    characters = map(chr, range(0x110000))
    spelled = [c for c in characters if unicodedata.category(c)[0] in "LMN"]
    # Hangul and Han blocks are long and uniform: every 50th of them will do.
    uniform = re.compile("[\u3400-\u9fff\uac00-\ud7ff\U00017000-\U00018cff\U00020000-\U0003ffff]")
    kept = [c for i, c in enumerate(spelled) if i % 50 == 0 or not uniform.match(c)]
    differ = [c for c in kept if words(f"a{c}{c}日") != reference(f"a{c}{c}日")]
    assert [f"U+{ord(c):04X} {unicodedata.name(c, '')}" for c in differ] == []


@pytest.mark.sweep
@cases(50)
@given(_TEXTS)
def test_counts_equal_a_counter_of_the_words(text: str) -> None:
    assert dict(count_words(text)) == dict(Counter(reference(text)))


@given(st.lists(_TEXTS, max_size=4))
def test_a_line_end_separates_words(texts: list[str]) -> None:
    assert words("\n".join(texts)) == [word for text in texts for word in words(text)]


@example("a\ufe0f\u0301")
@example("İ\u094d")
@given(_TEXTS)
def test_splitting_a_word_again_gives_the_same_word(text: str) -> None:
    for word in words(text):
        assert word
        assert words(word) == [word]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t", []),
        ("Hello, World!", ["hello", "world"]),
        ("apt-get apt_get", ["apt", "get", "apt", "get"]),
        ("don't", ["don", "t"]),
        ("C++ 3.14 x86_64", ["c", "3", "14", "x86", "64"]),
        ("Über straße", ["über", "straße"]),
        ("cafe\u0301 café", ["café", "café"]),
        ("ﬁne ① ２０", ["fine", "1", "20"]),
        ("Ａｐｔ", ["apt"]),
        ("naïve–approach", ["naïve", "approach"]),
        ("日本語", ["日本", "本語"]),
        ("日 本", ["日", "本"]),
        ("人々の", ["人々", "々の"]),
        ("二〇二六", ["二〇", "〇二", "二六"]),
        ("コーヒー", ["コー", "ーヒ", "ヒー"]),
        ("ｶﾞｽ", ["ガス"]),
        ("APIを使う", ["api", "を使", "使う"]),
        ("한국어를 배우기", ["한국어", "배우기"]),
        ("กินข้าว", ["กิ", "ิน", "นข", "ข้", "้า", "าว"]),
        ("हिन्दी", ["हिन्दी"]),
        ("русский ЯЗЫК", ["русский", "язык"]),
        ("I ❤\ufe0f numpy", ["i", "numpy"]),
        ("葛\U000e0100城", ["葛城"]),
        ("=\u0338 a", ["a"]),
        ("zero\u200bwidth", ["zero", "width"]),
        ("soft\u00adhyphen", ["soft", "hyphen"]),
        ("½", ["1", "2"]),
    ],
)
def test_words_of_examples_in_many_scripts(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("cat", ("#ca", "cat", "at#")),
        ("a", ("#a#",)),
        ("日本", ("#日本", "日本#")),
        ("aaaa", ("#aa", "aaa", "aaa", "aa#")),
        ("", ()),
    ],
)
def test_letter_trigrams_of_examples(word: str, expected: tuple[str, ...]) -> None:
    assert trigrams(word) == expected


def test_the_normal_form_is_measured_up_to_a_limit() -> None:
    for text in ("plain", "ﷺﷺ", "ﬃ" * 3_000, "é㌖" * 999):
        length = len(unicodedata.normalize("NFKC", text))
        assert normalised_length(text, length) == length
        assert normalised_length(text, length - 1) > length - 1
    assert normalised_length("ﷺ" * 100_000, 2_000) < 20_000


def test_long_texts_are_not_kept() -> None:
    """The words and trigrams of each text take more than a megabyte."""
    tracemalloc.start()
    for i in range(20):
        words("".join(chr(0x4E00 + (7 * j + i) % 20_000) for j in range(15_000)))
        trigrams(f"x{i}" * 10_000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 10 << 20
