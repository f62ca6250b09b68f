"""Keys of words, against the facts of Unicode and against pairs of words in many languages."""

from __future__ import annotations

import unicodedata

import pytest

from fullrank.text.folding import fold, singular, spellings
from fullrank.text.words import words

LETTERS = [
    chr(code)
    for code in (*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x12000))
    if unicodedata.category(chr(code)) in ("Ll", "Lo", "Lm", "Nd", "Mn", "Mc")
]
"""What words are made of, in lower case; Han and Hangul, which have no other forms, are left out."""


def as_words(letter: str) -> list[str]:
    """Return the words that a text of one letter has."""
    return words(letter)


PAIRS = [
    ("German", "worterbuch", "Wörterbuch"),
    ("German", "STRASSE", "Straße"),
    ("French", "coeur", "Cœur"),
    ("French", "creme", "crème"),
    ("Spanish", "pinguino", "pingüino"),
    ("Portuguese", "coracao", "coração"),
    ("Danish", "smorrebrod", "smørrebrød"),
    ("Danish", "aeble", "æble"),
    ("Icelandic", "thingvellir", "Þingvellir"),
    ("Polish", "lodz", "Łódź"),
    ("Croatian", "dak", "đak"),
    ("Romanian", "ţară", "țară"),
    ("Turkish", "isik", "ışık"),
    ("Turkish", "istanbul", "İSTANBUL"),
    ("Vietnamese", "duong", "đường"),
    ("Greek", "αθηνα", "Αθήνα"),
    ("Greek", "ΓΑΛΑΞΙΑΣ", "γαλαξίας"),
    ("Greek", "ἄνθρωπος", "άνθρωπος"),
    ("Russian", "елка", "Ёлка"),
    ("Ukrainian", "гудзик", "ґудзик"),
    ("Kazakh", "казак", "қазақ"),
    ("Arabic", "احمد", "أحمد"),
    ("Arabic", "مدرسه", "مَدْرَسَة"),
    ("Arabic", "كتاب", "كتـــاب"),
    ("Arabic", "مستشفي", "مستشفى"),
    ("Persian", "فارسی", "فارسي"),
    ("Persian", "کتاب", "كتاب"),
    ("Urdu", "ہوا", "هوا"),
    ("Hebrew", "שלום", "שָׁלוֹם"),
    ("Hindi", "कागज", "काग़ज़"),
    ("Hindi", "हां", "हाँ"),
    ("digits", "2024", "٢٠٢٤"),
    ("digits", "1403", "۱۴۰۳"),
]


@pytest.mark.parametrize(("language", "one", "other"), PAIRS)
def test_forms_of_a_word_have_one_key(language: str, one: str, other: str) -> None:
    assert [fold(word) for word in words(one)] == [fold(word) for word in words(other)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("カメラ", "かめら"),
        ("ｶﾒﾗ", "かめら"),
        ("ウィスキー", "ウイスキー"),
        ("キャベツ", "キヤベツ"),
    ],
)
def test_kana_fold_bigram_by_bigram(one: str, other: str) -> None:
    assert [fold(word) for word in words(one)] == [fold(word) for word in words(other)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("мой", "мои"),
        ("が", "か"),
        ("ぱ", "は"),
        ("पिता", "पता"),
        ("กา", "กี"),
        ("한글", "한국"),
        ("αβ", "αγ"),
    ],
)
def test_different_words_keep_different_keys(one: str, other: str) -> None:
    assert list(map(fold, words(one))) != list(map(fold, words(other)))


def test_letters_with_a_decomposition_become_their_base_letter() -> None:
    """Unicode decomposes hundreds of letters into an ASCII letter and accents; each must fold to that letter."""
    checked = 0
    for letter in LETTERS:
        base, *marks = list(unicodedata.normalize("NFD", letter))
        if base.isascii() and marks and as_words(letter) == [letter]:
            assert fold(letter) == base
            checked += 1
    assert checked > 200


def test_decimal_digits_become_ascii() -> None:
    digits = [letter for letter in LETTERS if letter.isdecimal()]
    assert len(digits) > 500
    assert all(fold(digit) == str(int(digit)) for digit in digits)


def test_katakana_become_the_hiragana_of_the_same_name() -> None:
    checked = 0
    for letter in LETTERS:
        name = unicodedata.name(letter, "")
        if name.startswith("KATAKANA LETTER ") and ord(letter) <= 0x30FA:
            try:
                other = unicodedata.lookup(name.replace("KATAKANA", "HIRAGANA"))
            except KeyError:
                continue
            assert fold(letter) == fold(other)
            checked += 1
    assert checked > 80


def test_folding_is_idempotent_and_never_empty() -> None:
    for letter in LETTERS:
        for word in as_words(letter):
            key = fold(word)
            assert key
            assert fold(key) == key
            assert all(fold(other) == other for other in spellings(word))


def test_umlauts_are_spelled_out_as_a_second_key() -> None:
    assert spellings("müller") == ("muller", "mueller")
    assert spellings("århus") == ("arhus", "aarhus")
    assert spellings("miller") == ("miller",)
    assert spellings("café") == ("cafe",)


@pytest.mark.parametrize(
    "pair",
    """
    city cities, wolf wolves, child children, box boxes, mouse mice, knife knives, bus buses, berry berries, movie
    movies, cache caches, house houses, match matches, class classes, analysis analyses, hero heroes, shoe shoes, tie
    ties, day days, foot feet, woman women, index indices, quiz quizzes, lens lenses, horse horses, dish dishes, size
    sizes, key keys, status statuses, api apis, axe axes
    """.replace("\n", " ").split(","),
)
def test_singular_and_plural_have_one_key(pair: str) -> None:
    one, other = pair.split()
    assert singular(one) == singular(other)


@pytest.mark.parametrize(
    "pair",
    ["glass glas", "bus bu", "this thi", "news new", "his hi", "safe save", "lens len", "new now"],
)
def test_other_words_do_not_share_a_singular(pair: str) -> None:
    one, other = pair.split()
    assert singular(one) != singular(other)


def test_only_words_of_ascii_letters_have_a_plural() -> None:
    for word in ("las", "años", "mp3s", "домаs", "がs", ""):
        assert singular(word) == word
