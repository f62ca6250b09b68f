"""Keys under which different forms of a word are equal: without accents, in one spelling, in the singular.

    fold        café → cafe, Straße → strasse, وَلَدٌ → ولد, کتاب → كتاب, カメラ → かめら, đường → duong, ёлка → елка
    spellings   fold, and the letters that stand for an umlaut where keyboards lack it: Müller → muller, mueller
    singular    of a key: wolves → wolf, boxes → box, cities → city

A key is for comparison only: nothing is indexed or shown by it. Words are as fullrank.text.words makes them: NFKC, in
lower case. Kana words are bigrams, so a folded bigram equals the bigram of a folded text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache

import snowballstemmer

from fullrank.text.words import words

# Stems of words by Snowball (Porter 2001), so that listing, listed and lists are one word.

LANGUAGES: tuple[str, ...] = tuple(snowballstemmer.algorithms())
"""Names of the languages that have a stemmer."""

# Cached stems of a language: a stem takes 20 µs.
_CACHED_STEMS = 1 << 16
# The endings that the stemmer may change; words without one need no stemmer, such as most codes and names.
_ENDINGS = {
    "english": (
        "e", "s", "y", "ed", "ing", "ci", "li", "ti", "ogi", "al", "ful", "ll", "ism", "ion", "er", "ator", "ogist",
        "ic", "ant", "ent",
    ),
}  # fmt: skip


@lru_cache
def stemmer(language: str) -> Callable[[str], str]:
    """Return the function that stems a lowercase word of a language. Raises ValueError without a stemmer."""
    if language not in LANGUAGES:
        raise ValueError(f"no stemmer {language!r}; there are: {', '.join(LANGUAGES)}")
    stem: Callable[[str], str] = snowballstemmer.stemmer(language).stemWord
    cached, endings = lru_cache(maxsize=_CACHED_STEMS)(stem), _ENDINGS.get(language)
    if endings is None:
        return cached
    return lambda word: cached(word) if word.endswith(endings) else word


# First and last code points of marks that a writer may leave out. Vowel signs of Indic scripts and the voicing of kana
# are marks too, but tell words apart.
_OPTIONAL_MARKS = (
    (0x0300, 0x036F),  # accents of Latin, Greek and Cyrillic
    (0x0591, 0x05BD),  # Hebrew accents and points
    (0x05BF, 0x05C7),
    (0x0610, 0x061A),  # Arabic harakat and signs
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06ED),
    (0x093C, 0x093C),  # the dot below of Indic scripts
    (0x09BC, 0x09BC),
    (0x0A3C, 0x0A3C),
    (0x0ABC, 0x0ABC),
    (0x0B3C, 0x0B3C),
    (0x1AB0, 0x1AFF),  # more accents
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20FF),
)

# Letters that have no decomposition in Unicode, and what replaces them where a keyboard lacks them.
_LETTERS = {
    "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ħ": "h",
    "ı": "i", "ŋ": "n", "ə": "e", "ŧ": "t", "ɓ": "b", "ɗ": "d", "ƙ": "k", "ɛ": "e", "ɔ": "o",
    "ʻ": "", "ʼ": "", "ʹ": "", "ʾ": "", "ʿ": "", "ˈ": "",
    # Greek final sigma
    "ς": "σ",
    # Cyrillic of Ukrainian and Kazakh
    "ґ": "г", "қ": "к", "ң": "н", "ғ": "г", "ү": "у", "ұ": "у", "ө": "о", "һ": "х", "ә": "а",
    # Arabic: alef wasla, ta marbuta, alef maksura, tatweel; Persian and Urdu yeh, kaf and heh
    "ٱ": "ا", "ة": "ه", "ى": "ي", "ـ": "", "ی": "ي", "ې": "ي", "ے": "ي", "ک": "ك", "ڪ": "ك",
    "ہ": "ه", "ھ": "ه", "ە": "ه", "ۃ": "ه",
    # Devanagari: chandrabindu and anusvara
    "ँ": "ं",
    # Not й: it is no accented и. The decomposition of its capital cannot occur.
    "й": "й",
}  # fmt: skip

_SMALL_KANA = str.maketrans("ぁぃぅぇぉっゃゅょゎゕゖ", "あいうえおつやゆよわかけ")

# Where a keyboard lacks ä, ö, ü, å, ø: German, Swedish, Danish, Norwegian; đ: Croatian.
_SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe", "đ": "dj"})

IRREGULAR = {
    "women": "woman", "children": "child", "people": "person", "feet": "foot",
    "teeth": "tooth", "geese": "goose", "mice": "mouse", "lice": "louse", "oxen": "ox",
    "knives": "knife", "wives": "wife", "lives": "life", "leaves": "leaf", "wolves": "wolf",
    "shelves": "shelf", "halves": "half", "thieves": "thief", "loaves": "loaf", "calves": "calf",
    "elves": "elf", "selves": "self", "scarves": "scarf", "hooves": "hoof",
    "indices": "index", "matrices": "matrix", "vertices": "vertex", "appendices": "appendix",
    "analyses": "analysis", "crises": "crisis", "theses": "thesis", "hypotheses": "hypothesis",
    "criteria": "criterion", "phenomena": "phenomenon", "bacteria": "bacterium", "fungi": "fungus",
    "cacti": "cactus", "nuclei": "nucleus", "larvae": "larva", "formulae": "formula",
    "quizzes": "quiz", "lenses": "lens", "lens": "lens", "news": "news", "series": "series",
    "species": "species", "apis": "api", "menus": "menu", "gnus": "gnu", "emus": "emu", "taxis": "taxi", "skis": "ski",
}  # fmt: skip


class _Letters(dict[int, str]):
    """The fold of each letter, found on first use, for str.translate."""

    def __missing__(self, code: int) -> str:
        found = self[code] = _fold_letter(chr(code))
        return found


_FOLDED = _Letters()
# Words whose keys are remembered: the models of a blend ask for the same ones.
_CACHED = 1 << 14


def _is_optional(mark: str) -> bool:
    code = ord(mark)
    return any(first <= code <= last for first, last in _OPTIONAL_MARKS)


def _fold_letter(letter: str) -> str:
    if letter in _LETTERS:
        return _LETTERS[letter]
    if _is_optional(letter):
        return ""
    if unicodedata.category(letter) == "Nd":
        return str(unicodedata.decimal(letter))
    if "ァ" <= letter <= "ヶ" or letter in "ヽヾ":
        letter = chr(ord(letter) - 0x60)
    if "ぁ" <= letter <= "ゖ":
        return letter.translate(_SMALL_KANA)
    parts = unicodedata.normalize("NFD", letter)
    kept = "".join(part for part in parts if not _is_optional(part))
    if kept == parts:
        return letter
    return "".join(_LETTERS.get(part, part) for part in unicodedata.normalize("NFC", kept))


def fold(word: str) -> str:
    """Return a word without accents and other optional marks, its letters in one form; never empty."""
    if word.isascii():
        return word
    return word.translate(_FOLDED) or word


def folded_words(text: str) -> tuple[str, ...]:
    return tuple(map(fold, words(text)))


@lru_cache(maxsize=_CACHED)
def spellings(word: str) -> tuple[str, ...]:
    """Return the keys of a word: its fold, and the fold with ä, ö, ü, å, ø, đ spelled out where it has any."""
    if word.isascii():
        return (word,)
    plain, out = fold(word), fold(word.translate(_SPELLED_OUT))
    return (plain,) if plain == out else (plain, out)


@lru_cache(maxsize=_CACHED)
def folded_letters(word: str) -> tuple[str, str]:
    """Return the letters of a word folded, letter by letter, and the same with umlauts spelled out; perhaps none."""
    if word.isascii():
        return word, word
    return word.translate(_FOLDED), word.translate(_SPELLED_OUT).translate(_FOLDED)


def singular(key: str) -> str:
    """Return one key for the singular and the plural of an English noun, which need not be a word.

    Endings that several singulars share are cut from all of them: box, boxes → box; cache, caches → cach; movie,
    movies → movy. Words of fewer than four letters stay as they are.
    """
    stem = IRREGULAR.get(key, "")
    # Most words end in neither letter; this runs for every pair of neighbours in a long query.
    if not stem and key[-1:] not in ("s", "e"):
        return key
    if len(key) < 4 or not (key.isascii() and key.isalpha()):
        return key
    if not stem:
        has_ending = key.endswith("s") and not key.endswith(("ss", "us", "is"))
        stem = key[:-1] if has_ending else key
    if len(stem) > 3 and stem.endswith("ie"):
        return stem[:-2] + "y"
    if len(stem) > 3 and stem.endswith(("xe", "che", "she", "se", "ze", "oe")):
        return stem[:-1]
    return stem
