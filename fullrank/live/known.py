"""Suggestions and evidence floors of queries, by the words of the model and of live documents."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from itertools import chain, islice
from typing import Any

from fullrank.complete import UNKNOWN
from fullrank.live.view import View
from fullrank.models.known import MAX_WORDS
from fullrank.models.widening import Additions
from fullrank.retrieval import Floor
from fullrank.text.words import query_words, words


def did_you_mean(view: View, text: str, best: Callable[[], Mapping[str, Any]] = dict) -> str | None:
    """Return a query with each unknown word replaced by a known one that is one edit away; None if there is none.

    A word that some live document has is known, although the model may not know it. Of several words one edit away, one
    of the best hit is meant: the search looked for all of them, so that document fits the other words too.

    Args:
        view: The documents.
        text: The query.
        best: Returns the fields of the best hit; none without a hit.

    Example:
        >>> did_you_mean(View.of(open_bundle(path)), "red aple")
        'red apple'
    """

    def found() -> Container[str]:
        return frozenset(words(view.model.query_text(best())))

    known = view.bundle.known_words
    return known.corrected(text, lambda word: is_in_live(view, word), found)


def begun_by(view: View, text: str) -> Additions:
    """Return the features of words that the last word of a query begins, those of the model and those of documents."""
    return view.bundle.prefixes.of(text) + view.new_prefixes.of(text)


def floor_of(view: View, text: str, begun: str | None = None) -> Floor | None:
    """Return what a document must reach to be found by one query; None: every document is found.

    Args:
        view: The documents.
        text: The query.
        begun: A word of it that known words begin with.
    """
    floor = view.bundle.floor_of(text, lambda piece: piece == begun or is_in_live(view, piece))
    if floor is None:
        return None
    # The floor of the bundle has the features of the query, except of words that only live documents have.
    texts = [text] if view.added or not floor.words else []
    if begun is not None and not is_known(view, begun):
        # Its completions have that share of the weight of whole words.
        floor = floor.of_share(UNKNOWN)
        texts += begun_by(view, text).terms
    return with_words(view, floor, texts) if texts else floor


def with_words(view: View, floor: Floor, texts: Iterable[str]) -> Floor:
    """Return a floor that documents with a word of some texts reach, if words are evidence."""
    if floor.per_word is None:
        return floor
    is_live = bool(view.added)
    found = (view.bundle.word_features(text, is_live=is_live) for text in texts)
    return floor.having(chain.from_iterable(found))


def is_known(view: View, word: str) -> bool:
    """Return whether the model or a document has a word."""
    return view.bundle.is_known(word) or is_in_live(view, word)


def has_known_word(view: View, text: str, begun: str | None = None) -> bool:
    """Return whether a query has a word that the model or a document has, or the beginning of one."""
    if begun is not None:
        return True
    words = dict.fromkeys(query_words(text))
    if any(map(view.bundle.known_words.is_known, words)):
        return True
    # Each of these takes up to a millisecond, so only the first words of a long text are looked up.
    return any(is_in_live(view, word) for word in islice(words, MAX_WORDS))


def is_in_live(view: View, word: str) -> bool:
    """Return whether a document that was added has a word that the model does not know."""
    if view.bundle.has_unseen(word):
        return True
    model = view.bundle.live_model
    if not view.added or model is None:
        return False
    unseen = model.unseen_features(word)
    return any(part.features is not None and part.has_features(unseen).any() for part in view.added)
