"""Find the nearest frequent words of a word or 2-gram, as correlated feature hashing uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fullrank.errors import CollectionError
from fullrank.models.contract import field_text
from fullrank.progress import Reporter
from fullrank.text.bigrams import Bigrams, is_bigram
from fullrank.text.features import count_corpus
from fullrank.text.words import words
from fullrank_trainer.collection import Collection
from fullrank_trainer.features.corpus import text_fields
from fullrank_trainer.features.dice import most_frequent, nearest, sentences


@dataclass(frozen=True)
class Neighbour:
    """A frequent word and its DICE coefficient."""

    word: str
    dice: float


@dataclass(frozen=True)
class Related:
    """A word or 2-gram and its neighbours.

    Attributes:
        term: the word or 2-gram.
        occurs: number of documents or sentences that contain it.
        nearest: its neighbours, nearest first.
    """

    term: str
    occurs: int
    nearest: list[Neighbour]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def related(
    collection: Collection,
    terms: Sequence[str],
    *,
    top: int = 5,
    frequent_words: int = 30_000,
    context: str = "document",
    processes: int = 1,
    reporter: Reporter | None = None,
) -> list[Related]:
    """Find the frequent words nearest to each term, by DICE.

    Args:
        collection: the collection.
        terms: words, and 2-grams as two words with a space between them.
        top: neighbours of each term; its own words are left out.
        frequent_words: choose among the so many most frequent words.
        context: "document" or "sentence": the unit in which words occur together.
        processes: that count text.
        reporter: receives progress.

    Raises:
        CollectionError: a term is neither a word nor a 2-gram, or does not occur in the collection.
    """
    reporter = reporter or Reporter(quiet=True)
    wanted = [_term(term) for term in terms]
    sources = text_fields(collection)
    texts = [field_text(document.fields, sources) for document in collection.documents]
    if context == "sentence":
        texts = sentences(texts)
    counter = Bigrams(filter(is_bigram, wanted)).count
    with reporter.stage("counting", len(texts)) as stage:
        counts = count_corpus([texts], processes=processes, counter=counter, progress=stage.advance)
    contexts, place = counts.columns[0], {word: i for i, word in enumerate(counts.words)}
    for term in wanted:
        if term not in place:
            raise CollectionError(f"{collection.path}: {term!r} occurs in no {context}")
    occur = np.bincount(contexts.indices, minlength=len(place)).astype(np.int64)
    single = np.array([not is_bigram(word) for word in counts.words], np.bool_)
    frequent = most_frequent(np.where(single, occur, 0), frequent_words)
    columns = np.array([place[term] for term in wanted], np.int64)
    places, scores = nearest(contexts, frequent, columns, top + 2)
    found = []
    for term, column, line, dice in zip(wanted, columns, places, scores, strict=True):
        own = set(term.split(" "))
        near = [
            Neighbour(word, score)
            for j, score in zip(line.tolist(), dice.tolist(), strict=True)
            if j >= 0 and (word := counts.words[frequent[j]]) not in own
        ]
        found.append(Related(term, int(occur[column]), near[:top]))
    return found


def _term(text: str) -> str:
    """Return a word or 2-gram as it is counted."""
    found = words(text)
    if not 1 <= len(found) <= 2:
        cut = f"; it is cut into {', '.join(found)}" if found else ""
        raise CollectionError(f"{text!r} is neither a word nor a 2-gram{cut}")
    return " ".join(found)
