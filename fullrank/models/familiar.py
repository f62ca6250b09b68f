"""Whether a model knows a word of a query well enough that a match of it is evidence.

A word is what stands between spaces and punctuation. Where scripts meet, and in scripts without spaces, it has several
pieces, which are features of their own: "급f벗" is 급, f and 벗. A document that shares one piece with a word of which
the model knows nothing else has nothing to do with it. So

    a piece is known     if the model knows the word or another form of it; if it is near a known word, then if the
                         odds of a typing error are large enough (fullrank.models.known)
    a word is familiar   if its known pieces have a large enough share of its letters
    a query is familiar  if a word is, or if neighbouring words are known as one

The share and the odds are calibrated on random words (trainer/fullrank_trainer/evaluation/floor.py).

A document of which one feature is that of a known piece has a word of the query, as it is, in another form or without
its typing error. Its other features, such as those of translations, are weaker evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import chain
from types import MappingProxyType

import numpy as np

from fullrank.encoding import Float32
from fullrank.models.contract import Model
from fullrank.models.known import MAX_WORDS, KnownWords
from fullrank.models.language import LanguageModel
from fullrank.models.linear import LinearModel
from fullrank.models.reading import DocumentReading, Reading
from fullrank.models.unseen import OpenModel
from fullrank.text.compounds import MAX_PARTS
from fullrank.text.words import query_words, tokens, words

MAX_BITS = 62
"""Words that a document may have to have."""
_CACHED = 1 << 14
_TEXTS = 1 << 4  # whole queries, of which one search asks twice


@dataclass(frozen=True, slots=True)
class Piece:
    """What a model knows about a piece of a word.

    Attributes:
        features: Its lexical features.
        odds: Infinite for a known word or another form of one, 0 for an unknown word, else those of the typing error.
    """

    features: frozenset[int]
    odds: float


@dataclass(frozen=True, slots=True)
class Word:
    """What documents have that have a word of a query, in any form, or the known word that it is a typing error of.

    Attributes:
        frequency: As ``KnownWords.document_frequency``.
        features: Theirs alone.
    """

    frequency: float
    features: frozenset[int]


class _Everywhere(DocumentReading):
    """A document whose every field is one text."""

    def __init__(self, text: str) -> None:
        super().__init__([{}])
        self._text = text

    def texts(self, sources: Sequence[str]) -> list[str]:
        """Return the text, whatever the fields are."""
        return [self._text]


class Familiar:
    """What a model knows about the words of queries.

    Args:
        model: Any model; its features of unknown words do not count.
        known: Its words.

    Attributes:
        known: Returns the known pieces of a query, each once, given the least odds of a known typing error; none of a
            text that is a document.
    """

    def __init__(self, model: Model, known: KnownWords) -> None:
        self._model = model.model if isinstance(model, OpenModel) else model
        self._known = known
        # The models whose documents have no features but those of their words, each with its first sparse column.
        self._parts = [
            leaf for leaf in self._model.leaves() if not isinstance(leaf[1], LanguageModel)
        ]
        self._piece = lru_cache(_CACHED)(self._find)
        self._word = lru_cache(_CACHED)(self._find_word)
        self.known = lru_cache(_TEXTS)(self._find_known)

    def knows(
        self,
        text: str,
        share: float,
        odds: float,
        is_known: Callable[[str], bool] = lambda piece: False,
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
            found.update(*(self._piece(piece).features for piece in pieces))
            whole += pieces if len(pieces) == 1 else ()
        # Features that no single word produces come from joined neighbours. Words made of several pieces are skipped.
        return len(whole) > 1 and not found.issuperset(self._features(" ".join(whole)))

    def share(
        self, pieces: list[str], odds: float, is_known: Callable[[str], bool] = lambda piece: False
    ) -> float:
        """Return the share of letters in known pieces of a word; arguments as for ``knows``."""
        known = letters = 0
        for piece in pieces:
            letters += len(piece)
            if self._is_known(piece, odds) or is_known(piece):
                known += len(piece)
        return known / max(1, letters)

    @property
    def has_word_features(self) -> bool:
        """Whether some features say that a document has a word."""
        return bool(self._parts)

    def _find_known(self, text: str, odds: float) -> tuple[str, ...]:
        pieces = query_words(text)
        if len(pieces) > MAX_WORDS:
            return ()
        return tuple(piece for piece in dict.fromkeys(pieces) if self._is_known(piece, odds))

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
        own = map(self._word, self.known(text, odds))
        known = [word for word in own if word.features]
        found = set[int]()
        if isinstance(model, OpenModel) and len(pieces := query_words(text)) <= MAX_WORDS:
            unknown = (piece for piece in pieces if not self._is_known(piece, odds))
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
    ) -> list[Word]:
        """Return what documents with all words of a query have; nothing for a text that is a document.

        A text without spaces counts as any of its pieces. A word that joins others, "playstation", counts as all of
        them. Neighbours that are one word of documents, "play station", count for each of them.

        Args:
            text: The query.
            odds: The least odds of a known typing error.
            model: As for ``word_features``.
            also: Texts that will do in place of a word.
            is_strict: Whether unknown words count, which no document has.
        """
        if len(query_words(text)) > MAX_WORDS:
            return []
        late = model.features_by_word(text) if isinstance(model, OpenModel) else {}
        found: dict[str, Sequence[Set[int]]] = {}
        for token in tokens(text):
            pieces = words(token)
            known = [piece for piece in pieces if self._is_known(piece, odds)]
            clauses = [
                *([self._word(piece).features] for piece in known if len(pieces) > 1),
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
        return [Word(self._frequency(own), frozenset(own)) for own in every if own or is_strict]

    def _all_of(self, piece: str) -> Sequence[Set[int]]:
        """Return features, of each set of which a document with a known piece has one: several for joined words."""
        every = self._word(piece).features
        meant = self._known.correction(piece) or piece
        parts = [
            [first + row for row in model.sparse.forms.parts(meant)]
            for first, model in self._parts
            if isinstance(model, LinearModel) and model.sparse.forms is not None
        ]
        whole = every.difference(*parts)
        return [whole.union(own) for own in zip(*filter(None, parts), strict=False)] or [every]

    def _frequency(self, features: Set[int]) -> float:
        """Return how often features of words occur in documents, as ``KnownWords.document_frequency`` does."""
        first, idf, rarest = self._idf
        own = [f - first for f in features if first <= f < first + len(idf)]
        return float(np.exp(rarest - idf[own].astype(np.float64)).sum())

    @cached_property
    def _idf(self) -> tuple[int, Float32, float]:
        """The first feature, the idf and the largest idf of the first words that are features."""
        for first, model in self._parts:
            if isinstance(model, LinearModel):
                idf = model.sparse.idf
                return first, idf, float(idf.max(initial=0.0))
        return 0, np.zeros(0, np.float32), 0.0

    def _joined(self, text: str) -> Iterator[tuple[str, set[int]]]:
        """Yield neighbours that documents have as one word, parted by spaces, and the features of that word."""
        neighbours = Reading([text]).neighbours
        for first, model in self._parts:
            if isinstance(model, LinearModel) and (forms := model.sparse.forms) is not None:
                for several in forms.count_joined(neighbours):
                    yield several, {first + row for row, _ in forms.of(several)}

    def odds(self, piece: str) -> float:
        """Return the odds of a piece: infinite for a known word, 0 for an unknown one."""
        return self._piece(piece).odds

    def _is_known(self, piece: str, odds: float) -> bool:
        if self._known.is_known(piece):
            return True
        found = self.odds(piece)
        return found > 0 and found >= odds

    def _features(self, text: str) -> list[int]:
        found: list[int] = self._model.encode_queries([text]).sparse.indices.tolist()
        return found

    def _find(self, piece: str) -> Piece:
        features = frozenset(self._features(piece))
        if self._known.is_known(piece):
            return Piece(features, math.inf)
        if not features:
            return Piece(features, 0.0)
        if (
            self._known.correction(piece) is None
        ):  # the model knows words by other means, such as stems
            return Piece(features, math.inf)
        return Piece(features, self._known.odds.of(piece))

    def _find_word(self, piece: str) -> Word:
        meant = self._known.correction(piece) or piece
        found = set[int]()
        for first, model in self._parts:
            if isinstance(model, LinearModel):
                found.update(first + column for column in model.columns_of(meant))
            else:
                document = model.encode_documents(_Everywhere(meant)).sparse.indices.tolist()
                if document:
                    found |= self._piece(piece).features & {first + column for column in document}
        return Word(self._known.document_frequency(meant), frozenset(found))


def _either(one: Sequence[Set[int]], other: Sequence[Set[int]]) -> Sequence[Set[int]]:
    """Return what documents have that have what one or what the other asks for; any of it where that is too much."""
    if not one or not other:
        return one or other
    if len(one) * len(other) > MAX_PARTS:
        return [frozenset().union(*one, *other)]
    return [a | b for a in one for b in other]
