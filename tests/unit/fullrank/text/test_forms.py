"""Other forms of words: examples, and equality with a plain search over all words."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.kernels.joined import find_joined
from fullrank.storage.strings import Lexicon
from fullrank.text.features import Vocabulary
from fullrank.text.folding import IRREGULAR, fold, folded_letters, singular, spellings
from fullrank.text.forms import Forms, FormTables, KeyedRows, Neighbours, spaced

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


@given(
    st.lists(written, max_size=18),
    st.lists(st.tuples(st.integers(0, 99), st.floats(-3, 3)), max_size=8),
    st.integers(2, 4),
    st.tuples(st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.6])),
)
def test_buckets_of_neighbours_are_those_of_their_keys(
    sequence: list[str], own: list[tuple[int, float]], most: int, shares: tuple[float, float]
) -> None:
    wanted: dict[int, float] = {}
    for bucket, amount in own:
        wanted[bucket] = wanted.get(bucket, 0.0) + amount
    for size in range(2, most + 1):
        for first in range(len(sequence) - size + 1 if len(sequence) <= 16 else 0):
            key = fold("".join(sequence[first : first + size]))
            for name, share in (("+" + key, shares[0]), ("-" + singular(key), shares[1])):
                if share:
                    bucket = crc32(name.encode()) % 100
                    wanted[bucket] = wanted.get(bucket, 0.0) + share
    buckets, amounts = [bucket for bucket, _ in own], [amount for _, amount in own]
    neighbours = Neighbours(spaced(sequence))
    found = neighbours.weigh_buckets(buckets, amounts, most, 100, ("+", "-"), shares)
    assert found.indptr.tolist() == [0, len(wanted)]
    assert found.indices.tolist() == sorted(wanted)
    assert found.values.tolist() == [float(np.float32(wanted[key])) for key in sorted(wanted)]


@given(st.text("aeshxczoiuyAé9", min_size=2, max_size=8))
def test_the_kernel_makes_the_singular_of_a_key(key: str) -> None:
    """A key passes if a table has its singular; only irregular plurals and the key itself pass besides."""
    nothing, irregular = Lexicon.of([]).slots, Lexicon.of(IRREGULAR).slots
    number, letters = singular(key), spaced([key[:1], key[1:]]).packed
    found = find_joined(
        *letters, *letters, Lexicon.of([number]).slots, nothing, nothing, irregular, 2, 1
    )
    assert found.tolist() == [[0, 2]]
    others = Lexicon.of({key[:-1], key[:-2], key[:-2] + "y", key[:-3] + "y"} - {number, key}).slots
    found = find_joined(*letters, *letters, others, nothing, nothing, irregular, 2, 1)
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
