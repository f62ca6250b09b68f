"""Words, their places, phrases, bigrams and sequences against slow references."""

from __future__ import annotations

import pickle
import re
import tracemalloc
import unicodedata
from collections import Counter
from itertools import pairwise
from zlib import crc32

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.kernels.tokens import keep_joined
from fullrank.search.highlight import word_spans
from fullrank.storage.strings import StringTable
from fullrank.text import compounds, sequences
from fullrank.text.forms import spaced
from fullrank.text.phrases import MAX_WORDS, Phrases, phrases_of
from fullrank.text.sequences import Chunk, number_words, tally_words
from fullrank.text.words import (
    Bigrams,
    count_words,
    is_bigram,
    normalised_length,
    stem,
    trigrams,
    words,
)
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


@pytest.mark.sweep
def test_long_texts_are_not_kept() -> None:
    """The words and trigrams of each text take more than a megabyte."""
    tracemalloc.start()
    for i in range(20):
        words("".join(chr(0x4E00 + (7 * j + i) % 20_000) for j in range(15_000)))
        trigrams(f"x{i}" * 10_000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 10 << 20


# Letters that normalise to others, marks, scripts without spaces, Hangul, white space beyond ASCII, a lone surrogate.
NASTY = "aB3 _-\u00a0\u0085\u3000\u2028\u00bd\ufb01\u0130\u0301\ufe0fé東京カメ파일을กา\ud800🎉"


@given(st.text(st.sampled_from(NASTY), max_size=30) | st.text(max_size=30))
def test_the_words_are_those_of_the_segmentation(text: str) -> None:
    found = word_spans(text)
    assert found.words == words(text)
    assert len(found.starts) == len(found.stops) == len(found.words)
    for start, stop, word in zip(found.starts, found.stops, found.words, strict=True):
        assert 0 <= start < stop <= len(text)
        assert word in words(text[start:stop])


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", []),
        ("Copy-files", [("Copy", "copy"), ("files", "files")]),
        ("(Café) au", [("Café", "café"), ("au", "au")]),
        ("a東京都b", [("a", "a"), ("東京", "東京"), ("京都", "京都"), ("b", "b")]),
        ("파일을", [("파일을", "파일")]),
        ("½", [("½", "1"), ("½", "2")]),
    ],
)
def test_each_word_has_the_place_that_it_stands_in(
    text: str, places: list[tuple[str, str]]
) -> None:
    starts, stops, found = word_spans(text)
    cut = [text[a:b] for a, b in zip(starts, stops, strict=True)]
    assert list(zip(cut, found, strict=True)) == places


KNOWN = [
    "cat",
    "new york",
    "york",
    "york new york",
    "東京 京都",
]  # ascending, as training leaves them


def count(phrases: Phrases, text: str) -> dict[str, int]:
    """Count the known phrases of a text."""
    rows, counts = phrases.rows([text]).row(0)
    return {phrases.phrases[row]: int(n) for row, n in zip(rows, counts, strict=True)}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("  ?! ", ""),
        ("New-York", "new york"),
        ("a " * MAX_WORDS, " ".join("a" * MAX_WORDS)),
        ("a " * (MAX_WORDS + 1), ""),
    ],
)
def test_the_phrase_of_a_text_is_its_words_if_few(text: str, wanted: str) -> None:
    assert phrases_of(["b c", text, "a"]) == ["b c", wanted, "a"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("nothing known", {}),
        ("cat", {"cat": 1}),
        ("cats", {}),
        ("new", {}),
        ("York, NEW york!", {"new york": 1, "york": 2, "york new york": 1}),
        ("new new york york", {"new york": 1, "york": 2}),
        ("cat " * 5, {"cat": 5}),
    ],
)
def test_phrases_in_a_text_are_counted(text: str, wanted: dict[str, int]) -> None:
    assert count(Phrases(KNOWN), text) == wanted


def test_rows_hold_counts_and_own_holds_the_title() -> None:
    phrases = Phrases(KNOWN)
    texts = ["york new york", "", "cat cat"]
    wanted = [[0, 1, 2, 1, 0], [0] * 5, [2, 0, 0, 0, 0]]
    assert phrases.rows(texts).csr().toarray().tolist() == wanted
    own = phrases.own(["New York", "a new york", "", "cat"]).csr().toarray()
    assert own.tolist() == [[0, 1, 0, 0, 0], [0] * 5, [0] * 5, [1, 0, 0, 0, 0]]


def test_phrases_are_pickled_without_their_index() -> None:
    """The form that is sent to a worker process."""
    phrases = Phrases(KNOWN)
    assert count(phrases, "cat") == {"cat": 1}
    assert count(pickle.loads(pickle.dumps(phrases)), "new york") == {"new york": 1, "york": 1}


spoken = st.text("abé日", min_size=1, max_size=2)


@given(
    st.lists(st.lists(spoken, min_size=1, max_size=4), max_size=20), st.lists(spoken, max_size=30)
)
def test_rows_equal_a_search_at_every_place(known: list[list[str]], sequence: list[str]) -> None:
    """Search by the plain twin: beginnings that are no phrases, words that begin others, other scripts."""
    names = sorted({" ".join(parts) for parts in known})
    phrases = Phrases(names)
    windows = [
        " ".join(sequence[first:last])
        for first in range(len(sequence))
        for last in range(first + 1, len(sequence) + 1)
    ]
    wanted = {row: windows.count(name) for row, name in enumerate(names) if name in windows}
    found = phrases.rows_of(spaced(sequence), 3)
    assert found.width == 3 + len(names)
    assert found.indices.tolist() == [3 + row for row in wanted]
    assert found.values.tolist() == [*wanted.values()]
    asked = [*names, *windows[:20], "", "a "]
    index = {name: row for row, name in enumerate(names)}
    assert phrases.rows_of_whole(asked).tolist() == [index.get(name, -1) for name in asked]


def test_the_slots_of_phrases_are_stored_and_checked() -> None:
    again = Phrases(StringTable.of(KNOWN), Phrases(KNOWN).beginnings)
    assert count(again, "York, NEW york!") == {"new york": 1, "york": 2, "york new york": 1}
    with pytest.raises(ValueError, match="no hash table"):
        Phrases(KNOWN, np.zeros(3, np.uint64))
    with pytest.raises(IndexError, match="damaged index"):
        count(Phrases(["cat"], np.full(2, crc32(b"cat") << 32 | 5, np.uint64)), "cat")


BIGRAMS_KNOWN = ["star trek", "trek star", "a a", "東京 都庁"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("star", {}),
        ("Star-Trek!", {"star trek": 1}),
        ("star trek star trek", {"star trek": 2, "trek star": 1}),
        ("star\ntrek", {}),
        ("a a a", {"a a": 2}),
        ("star and trek", {}),
    ],
)
def test_known_bigrams_are_counted_along_with_all_words(text: str, wanted: dict[str, int]) -> None:
    """Overlapping 2-grams all count; no 2-gram crosses a line end."""
    counted = Bigrams(BIGRAMS_KNOWN).count(text)
    assert {word: n for word, n in counted.items() if is_bigram(word)} == wanted
    assert {word: n for word, n in counted.items() if not is_bigram(word)} == count_words(text)


@pytest.mark.parametrize(
    "text", ["東京都\n庁 star", "a\x0bb\u2028c d", "x\ty\r\nz", "é e\u0301\nq"]
)
def test_word_counts_equal_those_of_the_plain_counter(text: str) -> None:
    assert Bigrams([]).count(text) == count_words(text)


def test_a_counter_can_be_pickled_for_workers() -> None:
    counter = pickle.loads(pickle.dumps(Bigrams(BIGRAMS_KNOWN).count))
    assert counter("star trek") == Counter(["star", "trek", "star trek"])
    assert len(Bigrams(BIGRAMS_KNOWN)) == 4


# Words of one and of several bytes, Korean with particles, bigrams, spaces of all kinds, halves of surrogate pairs.
_SEQUENCES_ALPHABET = "aAbZ09 _-.\t\n\x00éßΣİ파일을가日本語ｶﾞ\u00a0\u3000\u0301\ufe0f🙂\ud800"
_SEQUENCES_TEXTS = st.lists(
    st.one_of(st.text(_SEQUENCES_ALPHABET, max_size=30), st.text(max_size=20)), max_size=5
)


@pytest.mark.sweep
@given(_SEQUENCES_TEXTS)
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
@given(st.lists(_SEQUENCES_TEXTS, max_size=3), st.integers(1, 2), st.sampled_from([0, 20, 1000]))
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
