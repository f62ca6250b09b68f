"""Other forms of words: examples, and equality with a plain search over all words."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.text.features import Vocabulary
from fullrank.text.folding import fold, singular, spellings
from fullrank.text.forms import Forms

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
