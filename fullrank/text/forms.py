"""Other forms of a query's words among the words of the documents: folded, plural, joined and parted.

For a word w and a form of it that documents have, the share of w's weight is

    discount · min(1, strength(w) / strength(form))

where strength is the idf, so that no form counts for more than the word itself would. A word that documents lack has
the least strength of its forms. A form of several words (wifi → wi fi) has the sum of their strengths, and each of them
gets the share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from fullrank.encoding import Float32
from fullrank.text.bigrams import is_bigram
from fullrank.text.compounds import MAX_PARTS, parts_of, split_digits
from fullrank.text.features import Vocabulary
from fullrank.text.folding import fold, folded_letters, singular, spellings
from fullrank.text.words import words

# The strongest forms of a word; some short words have dozens.
_MAX_FORMS = 8

# Longer queries are sentences or documents, whose writers do not join words that documents part: joining all their
# neighbours takes most of the time to read them and finds next to nothing.
_MAX_JOINED = 16

# Words of queries whose forms are remembered.
_CACHED = 1 << 14

_Rows = tuple[int, ...]


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


@dataclass(frozen=True, eq=False)
class Forms:
    """A source of variants: other forms of a word.

    Attributes:
        words: Those of the documents.
        strength: float32 (W,), at least as long as the known words.
        folded: Discount of a form that is equal after folding, joining or parting, from 0 to 1; 0: no such forms.
        plurals: Discount of a form that is equal after folding and in the singular.
        compounds: Those of the documents, in parts.
    """

    words: Vocabulary
    strength: Float32
    folded: float
    plurals: float
    compounds: Sequence[str] = ()

    @cached_property
    def _folded(self) -> dict[str, list[_Rows]]:
        """Key → the words that are equal to it after folding but not before, and compounds."""
        found: dict[str, list[_Rows]] = {}
        index = self.words.index
        for word, row in index.items():
            if not word.isascii():
                for key in spellings(word):
                    if key != word:
                        found.setdefault(key, []).append((row,))
        row_of = index.__getitem__
        for compound in self.compounds:
            parts = parts_of(compound)
            try:
                rows = tuple(map(row_of, parts))
            except KeyError:  # the documents have no such word alone
                continue
            found.setdefault(fold("".join(parts)), []).append(rows)
        return found

    @cached_property
    def _singulars(self) -> dict[str, list[_Rows]]:
        """Key in the singular → the words whose folded key differs from it."""
        found: dict[str, list[_Rows]] = {}
        for word, row in self.words.index.items():
            key = fold(word)
            number = singular(key)
            if number != key:
                found.setdefault(number, []).append((row,))
        return found

    def _same_spelling(self, keys: Iterable[str]) -> Iterable[_Rows]:
        for key in keys:
            row = self.words.index.get(key)
            if row is not None:
                yield (row,)
            yield from self._folded.get(key, ())

    def _same_number(self, key: str) -> Iterable[_Rows]:
        number = singular(key)
        if singular(number) == number:
            yield from self._same_spelling([number])
        yield from self._singulars.get(number, ())

    @cached_property
    def of(self) -> Callable[[str], list[tuple[int, float]]]:
        """Return (row, share) of every other form of a word, or of a compound: words joined by spaces."""
        return lru_cache(maxsize=_CACHED)(self._of)

    def _of(self, word: str) -> list[tuple[int, float]]:
        if not is_bigram(word):
            return self._shares(word, self.words.index.get(word), self._strength_of([word]), True)
        parts = parts_of(word)
        return self._shares("".join(parts), None, self._strength_of(parts), False)

    def count(self, text: str) -> dict[str, int]:
        """Count the neighbouring words of a short query that, joined, are a form of a word of the documents."""
        return self.count_joined(joined(words(text)))

    def count_joined(self, several: Sequence[Joined]) -> dict[str, int]:
        """Count those of the joined words of a query that are a form of a word of the documents."""
        counts: dict[str, int] = {}
        index, folded, singulars = self.words.index, self._folded, self._singulars
        for parts, keys, number in several:
            # Quick, because most joined words have no form.
            for key in keys:
                if key in index or key in folded:
                    break
            else:
                # Most words end in no plural: their key was looked up above.
                is_other = number != keys[0] and (number in index or number in folded)
                if not is_other and number not in singulars:
                    continue
            if self.of(compound := " ".join(parts)):
                counts[compound] = counts.get(compound, 0) + 1
        return counts

    def _strength_of(self, parts: Sequence[str]) -> float | None:
        """Add up the strengths of words; None if one is unknown."""
        rows = [self.words.index.get(part) for part in parts]
        known = [row for row in rows if row is not None]
        return sum(map(self._strength, known)) if len(known) == len(rows) else None

    def _strength(self, row: int) -> float:
        return float(self.strength[row])

    def _shares(
        self, word: str, own: int | None, strength: float | None, with_parts: bool
    ) -> list[tuple[int, float]]:
        """Weigh the forms of a word: the same spelling first, then the same singular."""
        keys = spellings(word)
        discounts: dict[_Rows, float] = {}
        if self.folded:
            for rows in self._same_spelling(keys):
                discounts.setdefault(rows, self.folded)
            split = self._strength_rows(split_digits(word)) if with_parts else None
            if split is not None:
                discounts.setdefault(split, self.folded)
        if self.plurals:
            for rows in self._same_number(keys[0]):
                discounts.setdefault(rows, self.plurals)
        found = {
            rows: sum(map(self._strength, rows))
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

    def _strength_rows(self, parts: Sequence[str]) -> _Rows | None:
        """Return the rows of all parts; None if there are no parts or one is unknown."""
        rows = [self.words.index.get(part) for part in parts]
        known = tuple(row for row in rows if row is not None)
        return known if known and len(known) == len(rows) else None
