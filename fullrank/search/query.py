"""Queries, analysed once: words, features, vector, floor, required words, additions and correction.

query = analyzer.query(text, Options(by_prefix=True))       a Query, which any search takes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

from fullrank.models.clicks import ClickParts
from fullrank.models.contract import Model
from fullrank.models.unseen import OpenModel
from fullrank.models.widening import NO_ADDITIONS, Additions, widen
from fullrank.models.words import MAX_WORDS, Words
from fullrank.retrieval import Floor, Match, Required
from fullrank.search.complete import (
    LEAST_LETTERS,
    MOST,
    UNKNOWN,
    Prefixes,
    additions,
    has,
    last_word,
    places_beginning,
)  # fmt: skip
from fullrank.search.part import Part, Query
from fullrank.search.rerank.stage import SecondStage
from fullrank.search.rules.synonyms import Replaced, features_of
from fullrank.storage.encoding import Encoded
from fullrank.text.words import query_words, tokens, words

_REMEMBERED = 1 << 9
"""Texts, and last words, whose analysis is kept."""
_LONGEST = 1 << 12
"""Longer texts, in characters, are documents and are not kept."""
_OPTIONS = 8
"""Options kept of one text."""
_MOST_READ = 1000
"""Known words that are tried as completions of one beginning."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a request asks of its query.

    Attributes:
        match: Which words a document must have; None: as the collection says.
        min_score: The score that a hit must reach, in place of the evidence that the collection asks for.
        by_prefix: The last word also matches words that begin with it.
        synonyms: Texts whose lexical features the query gains.
        is_document: The text is a document, not something that a person typed.
        is_strict: Documents must have every word, unless `match` says any.
        by_any_word: Any word of the query is evidence.
        is_free: Documents need neither evidence nor words.
    """

    match: Match | None = None
    min_score: float | None = None
    by_prefix: bool = False
    synonyms: tuple[Replaced, ...] = ()
    is_document: bool = False
    is_strict: bool = False
    by_any_word: bool = False
    is_free: bool = False


PLAIN = Options()


@dataclass(slots=True)
class _Analysis:
    """What is known of one text; None is found on first use."""

    typed: Encoded | None = None
    document: Encoded | None = None
    queries: dict[Options, Query] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Analyzer:
    """Analyses the queries of one generation: of a bundle, and of the documents added to it.

    Attributes:
        model: Encodes queries.
        opened: Encodes added documents; None: there can be none.
        words: Those of the model.
        prefixes: Which of them a word may begin.
        floor: What a document must reach for a familiar query; None: nothing.
        clicks: The parts of the model that count clicks.
        match: Which words documents must have unless a request says.
        stage: The second stage.
        documents: Their number in the bundle.
        new_words: Of documents that were compacted into the bundle: words that training did not see.
        unseen: Returns the features of such words.
        added: The documents added since.
    """

    model: Model
    opened: OpenModel | None
    words: Words
    prefixes: Prefixes
    floor: Floor | None
    clicks: ClickParts | None
    match: Match
    stage: SecondStage | None
    documents: int
    new_words: Sequence[str]
    unseen: Callable[[], frozenset[int]]
    added: tuple[Part, ...] = ()
    _memo: dict[str, _Analysis] = field(default_factory=dict)
    _begun: dict[str, Additions] = field(default_factory=dict)

    def with_added(self, added: tuple[Part, ...]) -> Analyzer:
        """Return the analyzer of the same bundle with documents added."""
        assert self.opened is not None
        return replace(self, model=self.opened, added=added, _memo={}, _begun={})

    def query(self, text: str, options: Options = PLAIN, encoded: Encoded | None = None) -> Query:
        """Analyse a query.

        Args:
            text: The query.
            options: What a request asks of it.
            encoded: What `encode` returned for it, if the caller has that.
        """
        seen = self._analysis(text)
        found = seen.queries.get(options)
        if found is None:
            if len(seen.queries) >= _OPTIONS:
                seen.queries.clear()
            found = seen.queries[options] = self._query(text, options, encoded)
        return found

    def _analysis(self, text: str) -> _Analysis:
        seen = self._memo.get(text)
        if seen is None:
            if len(self._memo) >= _REMEMBERED:
                self._memo.clear()
            seen = _Analysis()
            if len(text) <= _LONGEST:
                self._memo[text] = seen
        return seen

    def _query(self, text: str, options: Options, encoded: Encoded | None) -> Query:
        if encoded is None:
            encoded = self.encode(text, is_document=options.is_document)
        begun = self.begun(text) if options.by_prefix else NO_ADDITIONS
        more = features_of(self.model, options.synonyms) if options.synonyms else NO_ADDITIONS
        widened = widen(encoded, more + begun if more else begun)
        own, stage = widened.encoded, self.stage
        return Query(
            own.dense, own.sparse, own.bias, text,
            self._floor(text, options, begun),
            self._required(text, options, begun),
            # Trees that were trained on short queries are unreliable for a document as a query, and vice versa.
            stage is not None and stage.of_documents == options.is_document,
            widened.find_terms,
        )  # fmt: skip

    def encode(self, text: str, *, is_document: bool = False) -> Encoded:
        seen = self._analysis(text)
        if is_document and self.model.for_documents is not self.model:
            if seen.document is None:
                seen.document = self.model.for_documents.encode_queries([text])
            return seen.document
        if seen.typed is None:
            seen.typed = self.model.encode_queries([text])
        return seen.typed

    # Words.

    def is_in_documents(self, word: str) -> bool:
        """Return whether a document that the model was not trained on has a word that the model does not know."""
        unseen = self.unseen()
        if not unseen and not self.added:
            return False
        features = self.model.unseen_features(word)
        if not unseen.isdisjoint(features):
            return True
        return any(
            part.features is not None and part.has_features(features).any() for part in self.added
        )

    def has_known_word(self, text: str, options: Options = PLAIN) -> bool:
        """Return whether a query has a word that the model or a document has, the beginning of one, or a synonym."""
        if options.synonyms or (options.by_prefix and self.begun(text)):
            return True
        own = dict.fromkeys(query_words(text))
        # Each of the others takes up to a millisecond, so only the first words of a long text are looked up.
        return any(map(self.words.is_known, own)) or any(
            map(self.is_in_documents, islice(own, MAX_WORDS))
        )

    def correction(self, text: str, best: Callable[[], Mapping[str, Any]] = dict) -> str | None:
        """Return a query with each unknown word replaced by a known one that is one edit away; None if there is none.

        Args:
            text: The query.
            best: Returns the fields of the best hit. Of several words one edit away, one of these is meant: the search
                looked for all of them, so that document fits the other words too.

        Example:
            >>> open_bundle(path).analyzer.correction("red aple")
            'red apple'
        """

        def found() -> Container[str]:
            return frozenset(words(self.model.query_text(best())))

        return self.words.corrected(text, self.is_in_documents, found)

    def begun(self, text: str) -> Additions:
        """Return the features of words that the last word of a query begins, of the model's and of documents'."""
        if not self._new or len(word := last_word(text)) < LEAST_LETTERS:
            return self.prefixes.of(text)
        new = self._begun.get(word)
        if new is None:
            if len(self._begun) >= _REMEMBERED:
                self._begun.clear()
            new = self._begun[word] = self._begun_new(word)
        return self.prefixes.of(text) + new

    @cached_property
    def _new(self) -> list[tuple[Sequence[str], Part | None]]:
        """Words that the model was not trained on, and the added documents that have them; None: the bundle's."""
        several = [(self.new_words, None), *((part.new_words, part) for part in self.added)]
        return [own for own in several if own[0]]

    def _begun_new(self, word: str) -> Additions:
        found: dict[str, list[Part | None]] = {}
        for known, part in self._new:
            for place in islice(places_beginning(known, word), _MOST_READ):
                found.setdefault(known[place], []).append(part)
        # No model knows how often these words occur, so those with the least left to type come first.
        shortest = sorted(found, key=lambda other: (len(other), other))
        left = (other for other in shortest if self._is_left(other, found[other]))
        having = [part for known, part in self._new if has(known, word)]
        is_known = self.words.is_known(word) or self._is_left(word, having)
        return additions(self.model, list(islice(left, MOST)), is_known=is_known)

    def _is_left(self, word: str, parts: Sequence[Part | None]) -> bool:
        if None in parts or not isinstance(self.model, OpenModel):
            return bool(parts)
        features = self.model.features_of([word])
        return any(part is not None and part.has_features(features).any() for part in parts)

    # Evidence.

    def _floor(self, text: str, options: Options, begun: Additions) -> Floor | None:
        if options.is_free:
            return None
        if options.min_score is not None:
            return Floor(score=options.min_score)
        # What is known is the evidence that typed text needs.
        if self.floor is None or (
            options.is_document and self.model.for_documents is not self.model
        ):
            return None
        if options.synonyms:  # a rule names what the query means
            floor = self._with_words(self.floor, text, *(one.synonym for one in options.synonyms))
        else:
            floor = self._own_floor(self.floor, text, begun)
        return floor.of_any_word() if options.by_any_word else floor

    def _own_floor(self, floor: Floor, text: str, begun: Additions) -> Floor:
        last = last_word(text) if begun else None

        def is_here(piece: str) -> bool:
            return piece == last or self.is_in_documents(piece)

        if floor.share:
            if not self.words.is_familiar(text, floor.share, floor.odds, is_here):
                floor = Floor(dense=floor.unfamiliar)
            elif floor.per_word is not None:
                known = len(self.words.known_pieces(text, floor.odds))
                floor = floor.of_words(known, self._word_features(text, None))
        if self.clicks is not None and (clicked := self.clicks.feature(text)) >= 0:
            # What people clicked after the query answers it, whatever its words are.
            floor = floor.or_having(clicked)
        texts = [text] if self.added or not floor.words else []
        if last is not None and not self.words.is_known(last) and not self.is_in_documents(last):
            # Its completions have that share of the weight of whole words.
            floor = floor.of_share(UNKNOWN)
            texts += begun.terms
        return self._with_words(floor, *texts) if texts else floor

    def _with_words(self, floor: Floor, *texts: str) -> Floor:
        if floor.per_word is None:
            return floor
        model = self.opened if self.added else None
        found = (self._word_features(text, model) for text in texts)
        return floor.having(chain.from_iterable(found))

    def _word_features(self, text: str, model: Model | None) -> set[int]:
        floor = self.floor or Floor()
        return self.words.word_features(text, floor.odds, floor.common, model)

    def _required(self, text: str, options: Options, begun: Additions) -> Required | None:
        match = options.match or ("auto" if options.is_strict else self.match)
        if match == "any" or options.is_free:
            return None
        also: dict[str, list[str]] = {word: [] for word in tokens(text)}
        for replaced in options.synonyms:
            for word in also.keys() - tokens(replaced.text):
                also[word].append(replaced.synonym)
        if begun and (last := last_word(text)) in also:
            also[last] += begun.terms
        floor, model = self.floor or Floor(), self.opened if self.added else None
        own = self.words.required(text, floor.odds, model, also, is_strict=options.is_strict)
        if match == "auto" and not options.is_strict:
            # Others may lack common words, "the", in documents and in queries alike.
            own = [word for word in own if word.frequency <= floor.common] or own
        if not own:
            return None
        clicked = -1 if self.clicks is None else self.clicks.feature(text)
        return Required(
            tuple(tuple(sorted(word.features)) for word in own),
            tuple(math.log1p(self.documents / max(1.0, word.frequency)) for word in own),
            match == "auto",
            (clicked,) if match == "auto" and clicked >= 0 else (),
            options.is_strict,
        )
