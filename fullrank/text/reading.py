"""Queries that are read once: the models of a blend share their words and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from fullrank.storage.lexicon import Names
from fullrank.text.features import Counts, count_corpus, count_each, count_one
from fullrank.text.forms import Joined, Neighbours, joined, spaced
from fullrank.text.words import query_words

_FEW = 16


class Reading(Sequence[str]):
    """Texts, and what every model reads in them; a model that takes texts takes this too.

    Example:
        >>> reading = Reading.of(["red apple"])
        >>> Reading.of(reading) is reading, reading.words
        (True, ['red', 'apple'])
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    @staticmethod
    def of(texts: Sequence[str]) -> Reading:
        """Return the texts as they are if they are a Reading."""
        return texts if isinstance(texts, Reading) else Reading(texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, place: Any) -> Any:
        return self._texts[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    @cached_property
    def words(self) -> list[str]:
        """The words of the only text, in order; of several texts they would take too much memory."""
        [text] = self._texts
        return list(query_words(text))

    @cached_property
    def are_words(self) -> bool:
        """Whether the texts are few, and each is one word as words are written; so are the completions of a word."""
        return len(self) <= _FEW and all(query_words(text) == (text,) for text in self._texts)

    @cached_property
    def spaced(self) -> Names:
        """The words of the only text in order, with a space behind each."""
        return spaced(self.words)

    @cached_property
    def neighbours(self) -> Neighbours:
        """The neighbouring words of the only text."""
        return Neighbours(self.spaced)

    @cached_property
    def joined(self) -> list[Joined]:
        """The neighbouring words of the only text, joined."""
        return joined(self.words)

    @cached_property
    def counts(self) -> Counts:
        """The counts of the words of each text: one column."""
        if len(self) == 1:
            return count_one(Counter(self.words))
        if self.are_words:
            return count_each(self._texts)
        return count_corpus([self._texts])
