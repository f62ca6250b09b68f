"""The single words that a model knows, and what it takes an unknown one for.

A word is what stands between spaces and punctuation. Where scripts meet, and in scripts without spaces, it has several
pieces, which are features of their own: "급f벗" is 급, f and 벗. A document that shares one piece with a word of which
the model knows nothing else has nothing to do with it. So

    a piece is known     if the model knows the word or another form of it; if it is near a known word, then if the
                         odds of a typing error are large enough
    a word is familiar   if its known pieces have a large enough share of its letters
    a query is familiar  if a word is, or if neighbouring words are known as one

The share and the odds are calibrated on random words (trainer/fullrank_trainer/evaluation/floor.py). The odds are

    odds(t) = Σ_w P(w) P(t | w) / Π_i (1 / A_i)        w: the known words one edit away from t

P(w) is the share of w among the words, P(t | w) that of the edit among all edits of w, and A_i the number of letters of
the script of the i-th letter. Of random strings at most one in c has odds of c or more (Markov's inequality).
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import chain
from operator import mul
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.models.contract import Known, Model
from fullrank.models.reading import DocumentReading, Reading
from fullrank.storage.encoding import Float32
from fullrank.storage.strings import Lexicon, Names, unknown_to
from fullrank.text.compounds import MAX_PARTS
from fullrank.text.features import Vocabulary
from fullrank.text.spelling import (
    EDIT_WEIGHTS,
    Correction,
    Edit,
    Neighbour,
    Spelling,
    Variants,
    variants_of,
)
from fullrank.text.words import query_words, tokens, words

MAX_WORDS = 32
"""Most words of a query that is read for typing errors; longer ones are documents."""
MAX_BITS = 62
"""Words that a document may have to have."""
_REMEMBERED, _QUERIES = 1 << 14, 1 << 4

Table = tuple[Vocabulary, npt.NDArray[Any]]
"""Known words, and how often each occurs, relative to the rarest one."""


@lru_cache(maxsize=1 << 16)
def script_of(letter: str) -> str:
    """Return the script of a letter as Unicode's names begin, such as "LATIN"; "" for an unnamed character."""
    return unicodedata.name(letter, "").split(" ")[0]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Features of the documents with a query word, in any form, or with what it is a typing error of; its frequency."""

    frequency: float
    features: frozenset[int]


@dataclass(slots=True)
class _Entry:
    """What is known of one word; None is found on first use."""

    is_written: bool
    is_known: bool
    near: Sequence[Correction] | None = None
    features: frozenset[int] | None = None
    odds: float | None = None
    wanted: Wanted | None = None


class _Everywhere(DocumentReading):
    """A document whose every field is one text."""

    def __init__(self, text: str) -> None:
        super().__init__([{}])
        self._text = text

    def texts(self, sources: Sequence[str]) -> list[str]:
        """Return the text, whatever the fields are."""
        return [self._text]


def nowhere(word: str) -> bool:
    """Return False."""
    return False


class Words:
    """The words that a model knows. What is found out about a word is remembered.

    Args:
        tables: Of several with a word, the first one counts.
        sources: Of other forms of words; a word with one is known.
        discount: A factor on the probabilities of corrections.
        model: Encodes queries, for the features of words.
        parts: Models whose documents have no features but those of their words, each with its first sparse column.
        of_documents: Tables of how often words occur in documents.

    Example:
        >>> Words.of(open_bundle(path).model).corrected("red aple")
        'red apple'
    """

    def __init__(
        self,
        tables: Iterable[Table],
        sources: Sequence[Variants] = (),
        discount: float = 1.0,
        *,
        model: Model | None = None,
        parts: Sequence[tuple[int, Model, Known]] = (),
        of_documents: Sequence[Table] = (),
    ) -> None:
        self.tables: list[Table] = []
        for vocabulary, frequency in tables:
            if vocabulary.words and all(vocabulary is not known for known, _ in self.tables):
                self.tables.append((vocabulary, frequency))
        self._sources, self._discount = sources, discount
        # The largest table first: it has most words.
        known = (vocabulary.known for vocabulary, _ in self.tables)
        self._lexicons: list[Lexicon] = sorted(known, key=len, reverse=True)
        self._entries: dict[str, _Entry] = {}
        self._model, self._parts, self._of_documents = model, parts, of_documents
        # One search asks twice, and several threads search.
        self._pieces: dict[tuple[str, float], list[str]] = {}

    @classmethod
    def of(cls, model: Model) -> Words:
        """Return the words of a model. Stems are not known, nor are words of a model that translates its queries."""
        leaves = [(first, leaf, leaf.known) for first, leaf in model.leaves()]
        own = [known for _, _, known in leaves]
        sources = [source for known in own for source in known.sources]
        return cls(
            (table for known in own for table in known.tables),
            sources,
            model=model.trained,
            parts=[leaf for leaf in leaves if leaf[2].has_features],
            of_documents=[table for known in own for table in known.of_documents],
        )

    def _entry(self, word: str) -> _Entry:
        entry = self._entries.get(word)
        if entry is None:
            if len(self._entries) >= _REMEMBERED:
                self._entries.clear()
            is_written = any(word in vocabulary.known for vocabulary, _ in self.tables)
            is_known = is_written or bool(variants_of(word, self._sources))
            entry = _Entry(is_written, is_known)
            self._entries[word] = entry
        return entry

    def has(self, word: str) -> bool:
        """Return whether the model knows a word as it is written."""
        return self._entry(word).is_written

    def is_known(self, word: str) -> bool:
        """Return whether the model knows a word, or another form of it."""
        return self._entry(word).is_known

    def unknown(self, words: Sequence[str]) -> list[int]:
        """Return the places of the words that no table has."""
        return unknown_to(Names.of(words), self._lexicons)

    def frequencies(self, words: Sequence[str]) -> list[float]:
        """Return how often words occur, relative to the rarest ones; 0 for unknown words."""
        names, found = Names(words), [0.0] * len(words)
        for vocabulary, frequency in self.tables:
            for i, row in enumerate(vocabulary.known.rows(names).tolist()):
                if row >= 0 and not found[i]:
                    found[i] = float(frequency[row])
        return found

    def document_frequency(self, word: str) -> float:
        """Return how often a word occurs in documents, relative to the rarest ones, as far as the model knows."""
        for vocabulary, frequency in self._of_documents:
            row = vocabulary.known.find(word)
            if row >= 0:
                return float(frequency[row])
        return self.frequencies([word])[0]

    # Typing errors.

    def warm(self) -> None:
        """Build what the first unknown word would build."""
        assert self._letters is not None
        assert self._total >= 0
        assert self._spelling is not None

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self._every_word(), self.frequencies)

    def _every_word(self) -> Iterator[str]:
        return (word for vocabulary, _ in self.tables for word in vocabulary.words)

    def corrections(self, word: str) -> Sequence[Correction]:
        """Return the known words that an unknown word may stand for, likeliest first, discounted."""
        entry = self._entry(word)
        if entry.near is None:
            near = () if entry.is_known else self._spelling.corrections(word)
            entry.near = [Correction(w, self._discount * probability) for w, probability in near]
        return entry.near

    def correction(self, word: str, found: Callable[[], Container[str]] = tuple) -> str | None:
        """Return the known word one edit away that was most likely meant; None for a known word.

        Args:
            word: As it was typed.
            found: Returns words of the document that the query found: one of these was meant if it may be.
        """
        near = self.corrections(word)
        if len(near) < 2:
            return near[0].word if near else None
        words = found()
        return next((other.word for other in near if other.word in words), near[0].word)

    def corrected(
        self,
        text: str,
        is_known: Callable[[str], bool] = nowhere,
        found: Callable[[], Container[str]] = tuple,
    ) -> str | None:
        """Return a query with each unknown word replaced by what was likely meant; None if no word was replaced.

        Args:
            text: As it was typed; other words stay as they are.
            is_known: Whether an unknown word is known elsewhere, and stays.
            found: As for ``correction``.
        """
        if all(map(self.has, query_words(text))):  # most queries
            return None
        typed = text.split()
        parts = [words(token) for token in typed]
        if sum(map(len, parts)) > MAX_WORDS:
            return None
        is_changed = False
        for place, own in enumerate(parts):
            near = [self.correction(word, found) for word in own]
            best = [
                word if other is None or is_known(word) else other
                for word, other in zip(own, near, strict=True)
            ]
            if best != own:
                typed[place] = " ".join(best)
                is_changed = True
        return " ".join(typed) if is_changed else None

    def typing_odds(self, typed: str) -> float:
        """Return how much likelier a string is a typing error of a known word than letters at random, 0 without one."""
        near = self._spelling.neighbours(typed)
        if not near:
            return 0.0
        frequencies = self.frequencies([one.word for one in near])
        found: float = sum(map(mul, frequencies, map(self._chance, near))) / self._total
        for letter in typed:
            found *= self._count(letter)
        return found

    @cached_property
    def _total(self) -> float:
        return max((float(frequency.sum()) for _, frequency in self.tables), default=1.0)

    @cached_property
    def _letters(self) -> Counter[str]:
        """How many letters of each script the words have."""
        return Counter(map(script_of, {letter for word in self._every_word() for letter in word}))

    def _count(self, letter: str) -> int:
        return max(1, self._letters[script_of(letter)])

    def _chance(self, near: Neighbour) -> float:
        """Return P(t | w): the share of a kind of edit, over the number of such edits of the word."""
        size, letters = len(near.word), self._count(near.word[0])
        ways = {
            Edit.MISSING: size,
            Edit.HALVED: size,
            Edit.EXTRA: (size + 1) * letters,
            Edit.DOUBLED: size,
            Edit.REPLACED: size * letters,
            Edit.SWAPPED: max(1, size - 1),
        }
        return EDIT_WEIGHTS[near.edit] / sum(EDIT_WEIGHTS.values()) / ways[near.edit]

    # Familiar queries.

    def odds(self, piece: str) -> float:
        """Return the odds of a piece: infinite for a known word, 0 for an unknown one, else of the typing error."""
        entry = self._entry(piece)
        if entry.odds is None:
            if entry.is_known:
                entry.odds = math.inf
            elif not self._features(piece):
                entry.odds = 0.0
            elif self.correction(piece) is None:
                entry.odds = math.inf  # the model knows words by other means, such as stems
            else:
                entry.odds = self.typing_odds(piece)
        return entry.odds

    def _is_near(self, piece: str, odds: float) -> bool:
        """Return whether a piece is known, given the least odds of a known typing error."""
        entry = self._entry(piece)
        return entry.is_known or 0 < self.odds(piece) >= odds

    def is_familiar(
        self, text: str, share: float, odds: float, is_known: Callable[[str], bool] = nowhere
    ) -> bool:
        """Return whether a query is familiar; one of more than `MAX_WORDS` unfamiliar pieces is a document, and is.

        Args:
            text: The query.
            share: The least share of known letters of a familiar word.
            odds: The least odds of a known typing error.
            is_known: Whether a piece that the model does not know is known elsewhere.
        """
        found, whole, looked = set[int](), list[str](), 0
        for token in tokens(text):
            pieces = words(token)
            looked += len(pieces)
            if looked > MAX_WORDS:
                return True
            if pieces and self.share(pieces, odds, is_known) >= share:
                return True
            found.update(*map(self._features, pieces))
            whole += pieces if len(pieces) == 1 else ()
        # Features that no single word produces come from joined neighbours. Words made of several pieces are skipped.
        return len(whole) > 1 and not found.issuperset(self._encoded(" ".join(whole)))

    def share(
        self, pieces: list[str], odds: float, is_known: Callable[[str], bool] = nowhere
    ) -> float:
        """Return the share of letters in known pieces of a word; arguments as for ``is_familiar``."""
        known = letters = 0
        for piece in pieces:
            letters += len(piece)
            if self._is_near(piece, odds) or is_known(piece):
                known += len(piece)
        return known / max(1, letters)

    def known_pieces(self, text: str, odds: float) -> list[str]:
        """Return the known pieces of a query, each once; none of a text that is a document."""
        known = self._pieces.get((text, odds))
        if known is None:
            if len(self._pieces) >= _QUERIES:
                self._pieces.clear()
            pieces = query_words(text)
            own = dict.fromkeys(pieces) if len(pieces) <= MAX_WORDS else ()
            known = [piece for piece in own if self._is_near(piece, odds)]
            self._pieces[text, odds] = known
        return known

    # Features of words.

    @property
    def has_features(self) -> bool:
        """Whether some features say that a document has a word."""
        return bool(self._parts)

    def _features(self, piece: str) -> frozenset[int]:
        entry = self._entry(piece)
        if entry.features is None:
            entry.features = frozenset(self._encoded(piece))
        return entry.features

    def _encoded(self, text: str) -> list[int]:
        assert self._model is not None
        found: list[int] = self._model.encode_queries([text]).sparse.indices.tolist()
        return found

    def _wanted(self, piece: str) -> Wanted:
        entry = self._entry(piece)
        if entry.wanted is None:
            meant = self.correction(piece) or piece
            found = set[int]()
            for first, model, _ in self._parts:
                columns = model.columns_of(meant)
                if columns is not None:
                    found.update(first + column for column in columns)
                    continue
                documents = model.encode_documents(_Everywhere(meant)).sparse.indices.tolist()
                if documents:
                    found |= self._features(piece) & {first + column for column in documents}
            entry.wanted = Wanted(self.document_frequency(meant), frozenset(found))
        return entry.wanted

    def word_features(
        self, text: str, odds: float, common: float, model: Model | None = None
    ) -> set[int]:
        """Return the features of the documents that have a word of a query; none for a text that is a document.

        Args:
            text: The query.
            odds: The least odds of a known typing error.
            common: Words that occur more often count only where there are no others.
            model: With features of words that the model does not know, which count too.
        """
        own = map(self._wanted, self.known_pieces(text, odds))
        known = [word for word in own if word.features]
        found = set[int]()
        if model is not None and len(pieces := query_words(text)) <= MAX_WORDS:
            unknown = (piece for piece in pieces if not self._is_near(piece, odds))
            found.update(*map(model.unseen_features, unknown))
        rare = [word for word in known if word.frequency <= common]
        return found.union(*(word.features for word in (rare if rare or found else known)))

    def required(
        self,
        text: str,
        odds: float,
        model: Model | None = None,
        also: Mapping[str, Iterable[str]] = MappingProxyType({}),
        *,
        is_strict: bool = False,
    ) -> list[Wanted]:
        """Return what documents with all words of a query have; nothing for a text that is a document.

        A text without spaces counts as any of its pieces. A word that joins others, "playstation", counts as all of
        them. Neighbours that are one word of documents, "play station", count for each of them.

        Args:
            also: Texts that will do in place of a word.
            is_strict: Whether unknown words count, which no document has.
        """
        if len(query_words(text)) > MAX_WORDS:
            return []
        late = {} if model is None else model.features_by_word(text)
        found: dict[str, Sequence[Set[int]]] = {}
        for token in tokens(text):
            pieces = words(token)
            known = [piece for piece in pieces if self._is_near(piece, odds)]
            clauses = [
                *([self._wanted(piece).features] for piece in known if len(pieces) > 1),
                *(self._all_of(piece) for piece in known if len(pieces) == 1),
                *([frozenset(late[piece])] for piece in pieces if piece in late),
                *([w.features for w in self.required(t, odds, model)] for t in also.get(token, ())),
            ]
            found[token] = reduce(_either, clauses, ())
        for several, joined in chain(self._joined(text), late.items()):
            for part in several.split(" ") if " " in several else ():
                if part in found:
                    found[part] = _either(found[part], [frozenset(joined)])
        if sum(map(len, found.values())) > MAX_BITS:
            found = {token: [frozenset().union(*own)] for token, own in found.items()}
        every = chain.from_iterable(own or [frozenset()] for own in found.values())
        return [Wanted(self._frequency(own), frozenset(own)) for own in every if own or is_strict]

    def _all_of(self, piece: str) -> Sequence[Set[int]]:
        """Return features, of each set of which a document with a known piece has one: several for joined words."""
        every = self._wanted(piece).features
        meant = self.correction(piece) or piece
        parts = [
            [first + row for row in forms.parts(meant)]
            for first, _, known in self._parts
            if (forms := known.forms) is not None
        ]
        whole = every.difference(*parts)
        return [whole.union(own) for own in zip(*filter(None, parts), strict=False)] or [every]

    def _frequency(self, features: Set[int]) -> float:
        """Return how often features of words occur in documents, as ``document_frequency`` does."""
        first, idf, rarest = self._idf
        own = [f - first for f in features if first <= f < first + len(idf)]
        return float(np.exp(rarest - idf[own].astype(np.float64)).sum())

    @cached_property
    def _idf(self) -> tuple[int, Float32, float]:
        """The first feature, the idf and the largest idf of the first words that are features."""
        for first, _, known in self._parts:
            if (idf := known.idf) is not None:
                return first, idf, float(idf.max(initial=0.0))
        return 0, np.zeros(0, np.float32), 0.0

    def _joined(self, text: str) -> Iterator[tuple[str, set[int]]]:
        """Yield neighbours that documents have as one word, parted by spaces, and the features of that word."""
        neighbours = Reading([text]).neighbours
        for first, _, known in self._parts:
            if (forms := known.forms) is not None:
                for several in forms.count_joined(neighbours):
                    yield several, {first + row for row, _ in forms.of(several)}


def _either(one: Sequence[Set[int]], other: Sequence[Set[int]]) -> Sequence[Set[int]]:
    """Return what documents have that have what one or what the other asks for; any of it where that is too much."""
    if not one or not other:
        return one or other
    if len(one) * len(other) > MAX_PARTS:
        return [frozenset().union(*one, *other)]
    return [a | b for a in one for b in other]
