"""The texts that complete what people type: queries of the log, titles of a view, words that its documents may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice
from typing import Any

from fullrank.bundle import Bundle
from fullrank.complete import Candidate, Completions, Kind, folded_prefix, is_completing_word
from fullrank.live import View
from fullrank.live.part import Part
from fullrank.live.segments import words_of
from fullrank_service.completion.digest import Digest, clicked_for, queries_for

TITLE = "title"
MAX_TITLES, MAX_WORDS = 100_000, 100_000
MAX_CHARS = 100
_TEXTS_PER_PAUSE = 200


class CandidateReader:
    """Collects candidates; remembers those of bundles, which do not change.

    Args:
        pause: Called now and then, to let other threads run; what it raises ends the collecting.
    """

    def __init__(self, pause: Callable[[], None] = lambda: None) -> None:
        self._pause = pause
        self._titles: dict[str, list[tuple[int, str, str]]] = {}
        self._words: dict[str, list[Candidate]] = {}

    def completions(self, view: View, digest: Digest) -> Completions:
        """Build the completions of a view. Takes seconds for 100,000 titles; call it on a thread."""
        name, bundle = view.bundle.name, view.bundle.bundle_id
        if bundle not in self._words:
            self._words[bundle] = list(self._paused(_words(view)))
        candidates = [
            Candidate(key, text, Kind.QUERY, count)
            for text, count in self._paused(queries_for(digest, name))
            if len(text) <= MAX_CHARS and (key := folded_prefix(text))
        ]
        clicked, seen = clicked_for(digest, name), 0
        for part in reversed(view.titled):
            ids, removed = part.store.ids, part.removed
            for row, key, text in self._paused(self._of_part(view.bundle, part)):
                if (removed is None or not removed[row]) and seen < MAX_TITLES:
                    seen += 1
                    count = clicked.get(ids[row], 0) if clicked else 0
                    candidates.append(Candidate(key, text, Kind.TITLE, count))
        candidates += (
            Candidate(folded_prefix(word), word, Kind.WORD, 0.0)
            for word in self._paused(islice(words_of(view.parts), MAX_WORDS))
        )
        return Completions([*candidates, *self._words[bundle]], self._pause)

    def forget_others(self, views: Iterable[View]) -> None:
        """Forget the titles and words of bundles and segments that are no longer loaded."""
        views = list(views)
        bundles = {view.bundle.bundle_id for view in views}
        parts = {part.key for view in views for part in view.titled}
        self._words = {key: found for key, found in self._words.items() if key in bundles}
        self._titles = {key: found for key, found in self._titles.items() if key in parts}

    def _of_part(self, bundle: Bundle, part: Part) -> list[tuple[int, str, str]]:
        """Return row, folded form and text of the titles of a part."""
        found = self._titles.get(part.key)
        if found is None:
            rows, names = range(min(len(part), MAX_TITLES)), title_fields(bundle)
            titles = ((row, title_of(part.store.fields(row), names)) for row in self._paused(rows))
            found = self._titles[part.key] = [
                (row, key, " ".join(title.split()))
                for row, title in titles
                if title is not None and (key := folded_prefix(title.strip()))
            ]
        return found

    def _paused(self, items: Iterable[Any]) -> Iterator[Any]:
        for number, item in enumerate(items):
            if number % _TEXTS_PER_PAUSE == _TEXTS_PER_PAUSE - 1:
                self._pause()
            yield item


def title_fields(bundle: Bundle) -> Sequence[str]:
    """Return the fields that may have the title of a document: `title`, then those that the model searches."""
    model = bundle.live_model
    searched = () if model is None else chain.from_iterable(model.rule.columns)
    return [*dict.fromkeys([TITLE, *searched])]


def title_of(fields: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the text of the first of these fields that a document has; None for a long text, or without any."""
    for name in names:
        if isinstance(text := fields.get(name), str) and text.strip():
            return text if len(text) <= MAX_CHARS else None
    return None


def _words(view: View) -> Iterator[Candidate]:
    """Yield the most frequent words that the model knows."""
    counts: dict[str, float] = {}
    for vocabulary, frequency in view.bundle.known_words.tables:
        for word, count in zip(vocabulary.words, frequency.tolist(), strict=True):
            counts.setdefault(word, count)
    best: list[tuple[str, Any]] = nlargest(
        MAX_WORDS, counts.items(), key=lambda item: (item[1], item[0])
    )
    for word, count in best:
        if is_completing_word(word):
            yield Candidate(folded_prefix(word), word, Kind.WORD, count)
