"""Other forms of a query's words among the words of the documents: folded, plural, joined and parted.

For a word w and a form of it that documents have, the share of w's weight is

    discount · min(1, strength(w) / strength(form))

where strength is the idf, so that no form counts for more than the word itself would. A word that documents lack has
the least strength of its forms. A form of several words (wifi → wi fi) has the sum of their strengths, and each of them
gets the share.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain, pairwise

import numpy as np

from fullrank.kernels.index import read_only
from fullrank.kernels.joined import FormKeys, KeyedWords, find_joined
from fullrank.storage.checks import ascends
from fullrank.storage.encoding import Float32, Float64, Int32, Int64
from fullrank.storage.strings import Lexicon, Names, NameTable, StringTable
from fullrank.text.compounds import MAX_PARTS, key_of, parts_of, split_digits
from fullrank.text.features import Vocabulary
from fullrank.text.folding import IRREGULAR, fold, folded_letters, singular, spellings
from fullrank.text.words import is_bigram, words

# What the forms of words are found by, in arrays that can be mapped.
#
# KeyedRows   words, or compounds, under a key
# FormTables  the folded keys of words, their keys in the singular, and the forms of each known word

RowTuple = tuple[int, ...]
"""The row of a word, or those of the words of a compound."""


@dataclass(frozen=True, eq=False)
class KeyedRows:
    """Row tuples under keys. Raises ValueError where the arrays do not fit together.

    Attributes:
        starts: int64 (K + 1,); the tuples of key k are those from starts[k] to starts[k + 1].
        ends: int64 (tuples + 1,); tuple e is rows[ends[e]:ends[e + 1]].
    """

    keys: Lexicon
    starts: Int64
    ends: Int64
    rows: Int32

    def __post_init__(self) -> None:
        is_fit = len(self.starts) == len(self.keys) + 1 and len(self.ends) > 0
        is_fit = is_fit and ascends(self.starts, len(self.ends) - 1)
        if not is_fit or not ascends(self.ends, len(self.rows)):
            raise ValueError("the rows of forms do not fit their keys")

    @staticmethod
    def of(found: Mapping[str, Sequence[RowTuple]]) -> KeyedRows:
        tuples = list(chain.from_iterable(found.values()))
        return KeyedRows(
            Lexicon.of(found),
            _bounds(list(map(len, found.values()))),
            _bounds(list(map(len, tuples))),
            np.array(list(chain.from_iterable(tuples)), np.int32),
        )

    def get(self, key: str) -> list[RowTuple]:
        place = self.keys.find(key)
        if place < 0:
            return []
        first, last = self.starts[place : place + 2].tolist()
        ends = self.ends[first : last + 1].tolist()
        return [tuple(self.rows[a:b].tolist()) for a, b in pairwise(ends)]

    def of_words(self) -> KeyedWords:
        """Return the keys of single words, without those of compounds alone."""
        tuples = np.flatnonzero(np.diff(self.ends) == 1)
        owners = np.searchsorted(self.starts, tuples, side="right") - 1
        places, sizes = np.unique(owners, return_counts=True)
        is_all = len(places) == len(self.keys)
        keys = self.keys if is_all else Lexicon.of([self.keys[i] for i in places.tolist()])
        rows = np.ascontiguousarray(self.rows[self.ends[tuples]])
        return KeyedWords(keys.blob, keys.offsets, keys.slots, _bounds(sizes.tolist()), rows)


@dataclass(frozen=True, eq=False)
class FormTables:
    """The tables of Forms. Raises ValueError where the arrays do not fit together.

    Attributes:
        folded: Key → the words that are equal to it after folding but not before, and compounds.
        singulars: Key in the singular → the words whose folded key differs from it.
        starts: int64 (W + 1,); the forms of known word w are those from starts[w] to starts[w + 1].
        rows: The forms of each word, ascending.
        shares: The share of the word's weight that each form gets.
    """

    folded: KeyedRows
    singulars: KeyedRows
    starts: Int64
    rows: Int32
    shares: Float64

    def __post_init__(self) -> None:
        words = len(self.starts) - 1
        if len(self.rows) != len(self.shares) or not ascends(self.starts, len(self.rows)):
            raise ValueError("the forms of known words do not fit together")
        for rows in (self.rows, self.folded.rows, self.singulars.rows):
            if len(rows) and not 0 <= rows.min() <= rows.max() < words:
                raise ValueError("a form is not one of the known words")

    @cached_property
    def single(self) -> KeyedWords:
        """The folded keys of single words; compounds are no forms of neighbouring words."""
        return self.folded.of_words()

    @cached_property
    def numbers(self) -> KeyedWords:
        return self.singulars.of_words()

    def of(self, row: int) -> list[tuple[int, float]]:
        first, last = self.starts[row : row + 2].tolist()
        rows, shares = self.rows[first:last].tolist(), self.shares[first:last].tolist()
        return list(zip(rows, shares, strict=True))

    def arrays(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {
            "forms.starts": self.starts,
            "forms.rows": self.rows,
            "forms.shares": self.shares,
        }
        for name, keyed in (("folded", self.folded), ("singulars", self.singulars)):
            found[f"forms.{name}.starts"] = keyed.starts
            found[f"forms.{name}.ends"] = keyed.ends
            found[f"forms.{name}.rows"] = keyed.rows
        return found

    def strings(self) -> dict[str, Sequence[str]]:
        return {"forms.folded": self.folded.keys, "forms.singulars": self.singulars.keys}

    @staticmethod
    def stored(
        arrays: Mapping[str, np.ndarray], strings: Mapping[str, Sequence[str]], words: int
    ) -> FormTables | None:
        """Return the tables of a bundle; None if it has none. Raises KeyError or ValueError if they are damaged."""
        if "forms.starts" not in arrays:
            return None
        folded, singulars = (
            KeyedRows(
                Lexicon.of(strings[f"forms.{name}"]),
                arrays[f"forms.{name}.starts"],
                arrays[f"forms.{name}.ends"],
                arrays[f"forms.{name}.rows"],
            )
            for name in ("folded", "singulars")
        )
        starts = arrays["forms.starts"]
        if len(starts) != words + 1:
            raise ValueError(f"forms.starts has {len(starts)} numbers where {words + 1} are needed")
        return FormTables(folded, singulars, starts, arrays["forms.rows"], arrays["forms.shares"])


def _bounds(sizes: Sequence[int]) -> Int64:
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


# The strongest forms of a word; some short words have dozens.
_MAX_FORMS = 8

# Longer queries are sentences or documents, whose writers do not join words that documents part: joining all their
# neighbours takes most of the time to read them and finds next to nothing.
_MAX_JOINED = 16

_NO_WORDS = np.zeros(1, np.int64), np.zeros(0, np.int32)
# Words of queries whose forms are remembered.
_CACHED = 1 << 14

_IRREGULAR, _STEMS = Lexicon.of(IRREGULAR), StringTable.of(IRREGULAR.values())


def spaced(sequence: Sequence[str]) -> Names:
    """Return words with a space behind each, which phrases and neighbours are searched for in."""
    return Names([f"{word} " for word in sequence])


Joined = tuple[Sequence[str], tuple[str, ...], str]
"""Neighbouring words of a query, the spellings of what they make together, and the first of those in the singular."""


def joined(words: Sequence[str]) -> list[Joined]:
    """Join 2 to MAX_PARTS neighbouring words of a short query; a long one has none."""
    found: list[Joined] = []
    if not 1 < len(words) <= _MAX_JOINED:
        return found
    letters = [folded_letters(word) for word in words]
    # Most words have one spelling; a word may have no letter that folding keeps.
    is_simple = all(plain and plain == out for plain, out in letters)
    folded = [plain for plain, _ in letters]
    for size in range(2, MAX_PARTS + 1):
        for start in range(len(words) - size + 1):
            parts = words[start : start + size]
            key = "".join(folded[start : start + size])
            keys = (key,) if is_simple else spellings("".join(parts))
            found.append((parts, keys, singular(keys[0])))
    return found


class Neighbours:
    """The neighbouring words of a short query, which several sources of forms search; each has a space behind it."""

    def __init__(self, sequence: Names | NameTable) -> None:
        self.sequence: Names | NameTable = sequence if 1 < len(sequence) <= _MAX_JOINED else Names()
        self._found: dict[tuple[Lexicon, Lexicon, Lexicon], list[list[int]]] = {}

    @cached_property
    def _letters(self) -> tuple[Names | NameTable, Names | NameTable]:
        """The folded letters of each word, and those with umlauts spelled out: one object where no word has any."""
        sequence = self.sequence
        if sequence.packed[0].max(initial=0) < 128:
            return sequence, sequence
        letters = [folded_letters(word[:-1]) for word in sequence]
        plain = Names([plain + " " for plain, _ in letters])
        spelled = Names([spelled + " " for _, spelled in letters])
        return plain, plain if plain == spelled else spelled

    def among(self, known: Lexicon, tables: FormTables) -> list[list[int]]:
        """Return the first word of neighbours that may be a form of a known word, and the one after their last."""
        if not self.sequence:
            return []
        lexicons = (known, tables.folded.keys, tables.singulars.keys)
        found = self._found.get(lexicons)
        if found is None:
            plain, spelled = self._letters
            slots = known.slots, tables.single.slots, tables.numbers.slots, _IRREGULAR.slots
            found = find_joined(
                plain.packed, spelled.packed, slots, MAX_PARTS, plain is spelled
            ).tolist()
            self._found[lexicons] = found
        return found


@dataclass(frozen=True, eq=False)
class _Search:
    """Finds other forms of words. `row_of` returns None for an unknown word; the keys are those of FormTables."""

    strength: Callable[[int], float]
    folded: float
    plurals: float
    row_of: Callable[[str], int | None]
    of_folded: Callable[[str], Sequence[RowTuple]]
    of_singular: Callable[[str], Sequence[RowTuple]]

    def of(self, word: str) -> list[tuple[int, float]]:
        if not is_bigram(word):
            return self._shares(word, self.row_of(word), self._strength_of([word]), True)
        parts = parts_of(word)
        return self._shares("".join(parts), None, self._strength_of(parts), False)

    def _same_spelling(self, keys: Iterable[str]) -> Iterable[RowTuple]:
        for key in keys:
            row = self.row_of(key)
            if row is not None:
                yield (row,)
            yield from self.of_folded(key)

    def _same_number(self, key: str) -> Iterable[RowTuple]:
        number = singular(key)
        if singular(number) == number:
            yield from self._same_spelling([number])
        yield from self.of_singular(number)

    def _strength_of(self, parts: Sequence[str]) -> float | None:
        rows = self._known(parts)
        return None if rows is None else sum(map(self.strength, rows))

    def _known(self, parts: Sequence[str]) -> RowTuple | None:
        """Return the rows of all parts; None if one is unknown."""
        rows = [self.row_of(part) for part in parts]
        known = tuple(row for row in rows if row is not None)
        return known if len(known) == len(rows) else None

    def _shares(
        self, word: str, own: int | None, strength: float | None, with_parts: bool
    ) -> list[tuple[int, float]]:
        keys = spellings(word)
        discounts: dict[RowTuple, float] = {}
        if self.folded:
            for rows in self._same_spelling(keys):
                discounts.setdefault(rows, self.folded)
            split = self._known(split_digits(word)) if with_parts else None
            if split:
                discounts.setdefault(split, self.folded)
        if self.plurals:
            for rows in self._same_number(keys[0]):
                discounts.setdefault(rows, self.plurals)
        found = {
            rows: sum(map(self.strength, rows))
            for rows in discounts
            if rows != (own,) and (with_parts or len(rows) == 1)
        }
        if not found:
            return []
        limit = min(found.values()) if strength is None else strength
        best = sorted(found, key=lambda rows: (-discounts[rows], found[rows], rows))[:_MAX_FORMS]
        shares: dict[int, float] = {}
        for rows in best:
            share = discounts[rows] * min(1.0, limit / max(found[rows], 1e-9))
            for row in rows:
                if row != own:
                    shares[row] = max(share, shares.get(row, 0.0))
        return sorted(shares.items())


@dataclass(frozen=True, eq=False)
class Forms:
    """A source of variants: other forms of the words of documents.

    Attributes:
        strength: float32 (W,), at least as long as the known words.
        folded: Discount of a form that is equal after folding, joining or parting, from 0 to 1; 0: no such forms.
        plurals: Discount of a form that is equal after folding and in the singular.
        stored: The tables; None to make them on first use.
    """

    words: Vocabulary
    strength: Float32
    folded: float
    plurals: float
    compounds: Sequence[str] = ()
    stored: FormTables | None = None

    @cached_property
    def tables(self) -> FormTables:
        return self.stored or self._build()

    def _build(self) -> FormTables:
        """Make the tables. A dictionary that is used once is quicker than the tables themselves."""
        index = {word: row for row, word in enumerate(self.words.words)}
        folded, singulars = _folded(index, self.compounds), _singulars(index)
        search = _Search(
            self.strength[: len(index)].tolist().__getitem__,
            self.folded,
            self.plurals,
            index.get,
            partial(_get, folded),
            partial(_get, singulars),
        )

        def has_forms(word: str) -> bool:
            """Return False for most words that have none, in little time."""
            if not (word.isascii() and word.isalpha()) or word in folded:
                return True
            number = singular(word)
            return number != word or number in singulars

        # Lists of the forms of all words would take many times the memory of these arrays.
        starts, rows, shares = array("q", [0]), array("i"), array("d")
        for word in index:
            for row, share in search.of(word) if has_forms(word) else ():
                rows.append(row)
                shares.append(share)
            starts.append(len(rows))
        return FormTables(
            KeyedRows.of(folded),
            KeyedRows.of(singulars),
            np.array(starts, np.int64),
            np.array(rows, np.int32),
            np.array(shares, np.float64),
        )

    @cached_property
    def _of_unknown(self) -> Callable[[str], list[tuple[int, float]]]:
        def row_of(word: str) -> int | None:
            row = self.words.known.find(word)
            return row if row >= 0 else None

        def strength(row: int) -> float:
            return float(self.strength[row])

        tables = self.tables
        keyed = (tables.folded.get, tables.singulars.get)
        search = _Search(strength, self.folded, self.plurals, row_of, *keyed)
        return lru_cache(maxsize=_CACHED)(search.of)

    @cached_property
    def keys(self) -> FormKeys:
        """What kernels find the forms of neighbouring words by."""
        irregular = KeyedWords(
            _IRREGULAR.blob, _IRREGULAR.offsets, _IRREGULAR.slots, *_NO_WORDS,
        )  # fmt: skip
        keys = FormKeys(
            read_only(self.tables.single), read_only(self.tables.numbers), read_only(irregular),
            _STEMS.blob, _STEMS.offsets, self.strength, float(self.folded), float(self.plurals),
            _MAX_JOINED, MAX_PARTS,
        )  # fmt: skip
        return read_only(keys)

    def of(self, word: str) -> list[tuple[int, float]]:
        row = -1 if is_bigram(word) else self.words.known.find(word)
        return self.tables.of(row) if row >= 0 else self._of_unknown(word)

    def parts(self, word: str) -> RowTuple:
        """Return the rows of the words that a word joins; none if it joins none, or different ones."""
        keys = spellings(word)
        found = {
            rows
            for key in (*keys, singular(keys[0]))
            for rows in self.tables.folded.get(key)
            if len(rows) > 1
        }
        rows = tuple(self.words.known.find(part) for part in split_digits(word))
        if rows and min(rows) >= 0:
            found.add(rows)
        return found.pop() if len(found) == 1 else ()

    def count(self, text: str) -> dict[str, int]:
        return self.count_joined(Neighbours(spaced(words(text))))

    def count_joined(self, neighbours: Neighbours) -> dict[str, int]:
        """Count the neighbouring words that, joined, are a form of a word of the documents."""
        counts: dict[str, int] = {}
        for first, last in neighbours.among(self.words.known, self.tables):
            if self._of_unknown(compound := "".join(neighbours.sequence[first:last])[:-1]):
                counts[compound] = counts.get(compound, 0) + 1
        return counts


_NO_KEYS = read_only(
    KeyedWords(_STEMS.blob[:0], np.zeros(1, np.int64), Lexicon.of(()).slots, *_NO_WORDS)
)
NO_FORMS = read_only(
    FormKeys(
        _NO_KEYS, _NO_KEYS, _NO_KEYS, _STEMS.blob, _STEMS.offsets, np.zeros(0, np.float32), 0.0, 0.0,
        0, MAX_PARTS,
    )
)  # fmt: skip
"""The keys of a model without forms."""


def _folded(index: dict[str, int], compounds: Sequence[str]) -> dict[str, list[RowTuple]]:
    """Return key → the words that are equal to it after folding but not before, and compounds."""
    found: dict[str, list[RowTuple]] = {}
    for word, row in index.items():
        if not word.isascii():
            for key in spellings(word):
                if key != word:
                    found.setdefault(key, []).append((row,))
    row_of = index.__getitem__
    for compound in compounds:
        parts = parts_of(compound)
        try:
            rows = tuple(map(row_of, parts))
        except KeyError:  # the documents have no such word alone
            continue
        found.setdefault(fold(key_of(compound)), []).append(rows)
    return found


def _singulars(index: dict[str, int]) -> dict[str, list[RowTuple]]:
    """Return key in the singular → the words whose folded key differs from it."""
    found: dict[str, list[RowTuple]] = {}
    for word, row in index.items():
        key = fold(word)
        number = singular(key)
        if number != key:
            found.setdefault(number, []).append((row,))
    return found


def _get(found: dict[str, list[RowTuple]], key: str) -> Sequence[RowTuple]:
    return found.get(key, ())
