"""Other forms of words, folding, stems and compounds: examples, and plain searches over all words."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import snowballstemmer
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.kernels.joined import find_joined
from fullrank.storage.strings import Lexicon
from fullrank.text.compounds import count_compounds, parts_of, split_digits
from fullrank.text.features import Vocabulary, count_corpus
from fullrank.text.folding import (
    IRREGULAR,
    LANGUAGES,
    fold,
    folded_letters,
    singular,
    spellings,
    stemmer,
)
from fullrank.text.forms import Forms, FormTables, KeyedRows, Neighbours, spaced
from fullrank.text.words import stem, words

TEXT = """
café cafés cafe müller muller mueller wifi wi fi t shirt city cities citys 500ml 500 ml keyboard key board straße
strasse año ano anos كتاب كتابه کتاب カメ かめ box boxes mp3 mp 3 filename file name résumé resume
"""
WORDS = sorted(TEXT.split())
COMPOUNDS = ["t shirt", "wi fi"]


def forms(folded: float = 0.5, plurals: float = 0.25, strength: np.ndarray | None = None) -> Forms:
    """Return forms over WORDS; every word has strength 1 unless given."""
    values = np.ones(len(WORDS), np.float32) if strength is None else strength
    return Forms(Vocabulary(WORDS), values, folded, plurals, COMPOUNDS)


def named(source: Forms, word: str) -> dict[str, float]:
    """Return word → share."""
    return {WORDS[row]: share for row, share in source.of(word)}


def test_forms_of_a_spelling_come_before_those_of_a_number() -> None:
    assert named(forms(), "cafe") == {"café": 0.5, "cafés": 0.25}
    assert named(forms(), "caffe") == {}
    assert named(forms(), "muller") == {"müller": 0.5}
    assert named(forms(), "mueller") == {"müller": 0.5}
    assert named(forms(), "müller") == {"muller": 0.5, "mueller": 0.5}
    assert named(forms(), "city") == {"cities": 0.25, "citys": 0.25}
    assert named(forms(), "كتاب") == {"کتاب": 0.5}
    assert named(forms(), "かめ") == {"カメ": 0.5}


def test_a_compound_and_its_parts_find_each_other() -> None:
    """Each part of wi-fi gets half of wifi's strength, as both together must not count for more than wifi."""
    assert named(forms(), "wifi") == {"fi": 0.25, "wi": 0.25}
    assert named(forms(), "wi fi") == {"wifi": 0.5}
    # tshirt is unknown, so t and shirt limit themselves.
    assert named(forms(), "tshirt") == {"shirt": 0.5, "t": 0.5}
    assert named(forms(), "tshirts") == {"shirt": 0.25, "t": 0.25}
    assert named(forms(), "500ml") == {"500": 0.25, "ml": 0.25}
    assert named(forms(), "key board") == {"keyboard": 0.5}
    assert named(forms(), "key boards") == {"keyboard": 0.25}
    # No document joins file-name, so filename is not split.
    assert named(forms(), "filename") == {}


def test_each_discount_can_be_off() -> None:
    assert named(forms(plurals=0), "cafe") == {"café": 0.5}
    assert named(forms(folded=0), "cafe") == {"café": 0.25, "cafés": 0.25}
    assert named(forms(folded=0), "city") == {"cities": 0.25, "citys": 0.25}


def test_a_form_never_counts_for_more_than_the_word() -> None:
    strength = np.ones(len(WORDS), np.float32)
    strength[WORDS.index("año")] = 4
    assert named(forms(strength=strength), "ano")["año"] == 0.5 / 4
    assert named(forms(strength=strength), "año")["ano"] == 0.5
    # Of an unknown word the weakest form sets the limit.
    strength[WORDS.index("cafés")] = 8
    assert named(forms(strength=strength), "cafè") == {"cafe": 0.5, "café": 0.5, "cafés": 0.25 / 8}


def test_texts_are_searched_for_joined_words() -> None:
    found = forms()
    assert found.count("a WI-FI key board") == {"wi fi": 1, "key board": 1}
    assert found.count("500 ml, 500 ML") == {"500 ml": 2}
    assert found.count("t shirt") == {}  # no document writes tshirt
    assert found.count("wifi") == found.count("") == {}
    # People join words in short queries; the words of a sentence are not joined.
    assert found.count("wi fi " * 8)["wi fi"] == 8
    assert found.count("wi fi " * 9) == {}


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(20))
def test_forms_equal_those_of_a_search_over_all_words(seed: int) -> None:
    rng = np.random.default_rng(seed)
    letters = list("aeéèsüxyßо")
    known = sorted({"".join(rng.choice(letters, rng.integers(1, 6))) for _ in range(300)})
    strength = rng.uniform(0.1, 5, len(known)).astype(np.float32)
    source = Forms(Vocabulary(known), strength, 0.6, 0.3)
    asked = [*known[::3], *("".join(rng.choice(letters, 4)) for _ in range(100))]
    for word in asked:
        discount = {}
        number = singular(fold(word))
        for row, other in enumerate(known):
            if other == word:
                continue
            if set(spellings(word)) & set(spellings(other)):
                discount[row] = 0.6
            elif singular(fold(other)) == number or (
                singular(number) == number and number in spellings(other)
            ):
                discount[row] = 0.3
        own = strength[known.index(word)] if word in known else None
        limit = min((strength[row] for row in discount), default=0) if own is None else own
        best = sorted(discount, key=lambda row: (-discount[row], strength[row], row))[:8]
        wanted = {row: discount[row] * min(1.0, limit / strength[row]) for row in best}
        found = dict(source.of(word))
        assert found.keys() == wanted.keys()
        assert list(found.values()) == pytest.approx([wanted[row] for row in found], rel=1e-5)


written = st.one_of(
    st.text("aeshxczoiuy", min_size=1, max_size=6),
    st.text("aéüøßдйカ日ʻ9s", min_size=1, max_size=4),
    st.sampled_from(["wo", "men", "ch", "ildren", "quiz", "zes", "mous", "e", "ʻ", "ʼ"]),
)


@given(st.lists(written, max_size=40), st.lists(written, max_size=18), st.integers(0, 2**32 - 1))
def test_joined_words_equal_those_of_a_search_over_all_neighbours(
    known: list[str], sequence: list[str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    parts = [sequence[i : i + int(rng.integers(2, 5))] for i in range(0, len(sequence) - 1, 2)]
    whole = ["".join(several) for several in parts]
    other = [*map(fold, whole), *map(singular, map(fold, whole))]
    some = [word for word in {*known, *whole[:2], *other} if word and rng.random() < 0.7]
    compounds = [" ".join(several) for several in parts[:1]]
    words = sorted({*some, *sequence[:6]})
    source = Forms(Vocabulary(words), np.ones(len(words), np.float32), 0.5, 0.25, compounds)
    wanted: dict[str, int] = {}
    if 1 < len(sequence) <= 16:
        for size in range(2, 5):
            for first in range(len(sequence) - size + 1):
                compound = " ".join(sequence[first : first + size])
                if source.of(compound):
                    wanted[compound] = wanted.get(compound, 0) + 1
    assert source.count_joined(Neighbours(spaced(sequence))) == wanted


@given(st.text("aeshxczoiuyAé9", min_size=2, max_size=8))
def test_the_kernel_makes_the_singular_of_a_key(key: str) -> None:
    """A key passes if a table has its singular; only irregular plurals and the key itself pass besides."""
    nothing, irregular = Lexicon.of([]).slots, Lexicon.of(IRREGULAR).slots
    number, letters = singular(key), spaced([key[:1], key[1:]]).packed
    own = Lexicon.of([number]).slots
    found = find_joined(letters, letters, (own, nothing, nothing, irregular), 2, 1)
    assert found.tolist() == [[0, 2]]
    others = Lexicon.of({key[:-1], key[:-2], key[:-2] + "y", key[:-3] + "y"} - {number, key}).slots
    found = find_joined(letters, letters, (others, nothing, nothing, irregular), 2, 1)
    assert len(found) == (key in IRREGULAR)


def test_a_query_without_letters_that_folding_keeps_is_looked_up() -> None:
    assert folded_letters("ʻ") == ("", "")
    source = Forms(Vocabulary(["ʻʼ"]), np.ones(1, np.float32), 0.5, 0.25)
    assert source.count_joined(Neighbours(spaced(["ʻ", "ʼ"]))) == {"ʻ ʼ": 1}


def test_stored_tables_give_the_same_forms() -> None:
    source = forms()
    parts = source.tables.arrays(), source.tables.strings()
    again = replace(source, stored=FormTables.stored(*parts, len(WORDS)))
    for word in [*WORDS, "caffe", "wi fi", "key boards"]:
        assert again.of(word) == source.of(word)
    assert FormTables.stored({}, {}, 3) is None


@pytest.mark.parametrize("name", sorted(forms().tables.arrays()))
def test_damaged_tables_are_refused(name: str) -> None:
    tables = forms().tables
    strings, longer = tables.strings(), np.append(tables.arrays()[name], 1)
    with pytest.raises(ValueError, match=r"form|needed"):
        FormTables.stored({**tables.arrays(), name: longer}, strings, len(WORDS))
    damaged = tables.arrays()[name].copy()
    damaged[0] = -1
    if name != "forms.shares":
        with pytest.raises(ValueError, match="form"):
            FormTables.stored({**tables.arrays(), name: damaged}, strings, len(WORDS))


def test_rows_under_keys_equal_those_of_the_dictionary() -> None:
    found: dict[str, list[tuple[int, ...]]] = {
        "a": [(1,), (2, 3)],
        "é": [(0,)],
        "": [],
        "日本": [(4, 5, 6)],
    }
    keyed = KeyedRows.of(found)
    assert {key: keyed.get(key) for key in found} == found
    assert keyed.get("b") == KeyedRows.of({}).get("a") == []


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


def test_forms_of_a_word_share_a_stem() -> None:
    stem = stemmer("english")
    assert {stem(word) for word in ("listing", "listed", "lists", "list")} == {"list"}
    assert stem("목록") == "목록"
    assert stemmer("german")("häusern") == stemmer("german")("haus")
    assert {"english", "german", "spanish"} <= set(LANGUAGES)


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(ValueError, match=r"no stemmer .latin.; there are: .*english"):
        stemmer("latin")


@pytest.mark.parametrize("count", [150, pytest.param(1500, marks=pytest.mark.sweep)])
def test_words_that_are_told_by_their_ending_have_the_stem_of_the_stemmer(count: int) -> None:
    expected, stem, rng = snowballstemmer.stemmer("english"), stemmer("english"), random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0é"
    for begin in ("", "y", "past", "commun", "hyphen", "bass", "roll"):
        for _ in range(count):
            word = begin + "".join(rng.choices(letters, k=rng.randrange(1, 7)))
            assert stem(word) == expected.stemWord(word), word


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Wi-Fi, WI-FI and wi-fi", {"wi fi": 3}),
        ("a T-shirt", {"t shirt": 1}),
        ("rock'n'roll", {"rock n": 1, "n roll": 1, "rock n roll": 1}),
        ("don’t can't", {"don t": 1, "can t": 1}),
        ("read_line", {"read line": 1}),
        ("Node.js", {"node js": 1}),
        ("AT&T", {"at t": 1}),
        ("UTF-8", {"utf 8": 1}),
        ('צה"ל', {"צה ל": 1}),
        ("می‌خواهم", {"می خواهم": 1}),
        ("Wörter­buch", {"wörter buch": 1}),
        ("col·legi", {"col legi": 1}),
        ("м'ята", {"м ята": 1}),
        ("a-b-c-d-e", {"a b": 1, "b c": 1, "c d": 1, "d e": 1}),
        ("the reader's well-known book", {"well known": 1}),
        ("2026-11-22 3.11", {}),
        ("- -- a - b 'quoted' end. Next", {}),
        ("(wi-fi)-", {"wi fi": 1}),
        ("", {}),
    ],
)
def test_words_joined_by_a_character_are_compounds(text: str, wanted: dict[str, int]) -> None:
    assert count_compounds(text) == wanted


def test_the_parts_of_a_compound_are_words_of_the_text() -> None:
    text = "The wi-fi router's e-mail, rock'n'roll: don't U.S.A. Wörter­buch x-1-2"
    known = set(words(text))
    found = count_compounds(text)
    assert found
    assert all(set(parts_of(compound)) <= known for compound in found)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("500ml", ["500", "ml"]),
        ("mp3", ["mp", "3"]),
        ("covid19", ["covid", "19"]),
        ("a1b", ["a", "1", "b"]),
        ("2кг", ["2", "кг"]),
        ("a1b2", []),
        ("500", []),
        ("ml", []),
        ("", []),
    ],
)
def test_a_word_is_split_between_digits_and_letters(word: str, parts: list[str]) -> None:
    assert split_digits(word) == parts


_JOINING = "-\u2010\u2011'\u2019._\u00b7&\"\u05f4\u00ad\u200c\u200d"
_LETTERS = "aésd9ж日 \t\n\u00a0-\u2010'’._·&\"\u00ad\u200c,;()!$"


@given(st.text(_LETTERS, max_size=40))
def test_every_pair_of_joined_parts_is_found(text: str) -> None:
    """An independent reading: two runs of letters and digits with exactly one joining character between them."""
    runs = [(run.start(), run.end()) for run in re.finditer(r"[^\W_]+", text)]
    joined = [
        (text[a:b], text[b], text[c:d])
        for (a, b), (c, d) in pairwise(runs)
        if c == b + 1 and text[b] in "-\u2010'’._·&\"\u00ad\u200c"
    ]
    found = count_compounds(text)
    for first, between, second in joined:
        is_genitive = between in "'’" and second == "s"
        if is_plain(first) and is_plain(second) and (first + second).isalpha() and not is_genitive:
            assert f"{first} {second}" in found
    if not joined:
        assert found == {}


@pytest.mark.sweep
@given(st.lists(st.text(_LETTERS + "AZ\ud800\x00", max_size=40), min_size=2, max_size=6))
@example(["", "x"])
@example(["a-\u00a0-b", "O'Reilly's O'REILLY'S", "-a-b-", "a--b-c", "wi-fi" * 9])
def test_the_compounds_of_many_texts_are_those_of_each(texts: list[str]) -> None:
    """By a kernel and token by token on one side, by one pattern over the whole text on the other."""
    found = count_corpus([texts, texts[:1] * 2], counter=count_compounds)
    assert found.words == sorted(set(found.words))
    for column, expected in zip(found.columns, (texts, texts[:1] * 2), strict=True):
        for i, text in enumerate(expected):
            indices, counts = column.row(i)
            own = {found.words[j]: int(n) for j, n in zip(indices, counts, strict=True)}
            assert own == count_compounds(text) == in_whole_text(text)


def in_whole_text(text: str) -> dict[str, int]:
    """Count the compounds of a text by the definition of a chain."""
    found = Counter[str]()
    for chain in re.findall(rf"(?<![^\W_])[^\W_]+(?:[{_JOINING}][^\W_]+)+", text):
        parts = words(re.sub("['’]s$", "", chain))
        own = [" ".join(pair) for pair in pairwise(parts)]
        own += [" ".join(parts)] if 2 < len(parts) <= 4 else []
        found.update(c for c in own if len(c) <= 40 and not c.replace(" ", "").isdigit())
    return found


def is_plain(word: str) -> bool:
    """Tell whether a word is a single lowercase word of the segmentation."""
    return words(word) == [word]
