"""Which words of documents a highlight marks, and the weight of each.

    word      a word of the query as the model reads it: in any form, corrected, joined with or split from others
    meaning   one of the MAX_MEANING other words of the document with the largest share in its score, at least
              LEAST_MEANING of the largest share of any of its words

The weight of a marked word is its share in the score, at least 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fullrank.encoding import Encoded
from fullrank.highlight.fields import split_fields
from fullrank.highlight.snippets import Marked, Snippet, Tags, snippet
from fullrank.models.contract import Model
from fullrank.models.reading import SplitDocuments

MAX_MEANING = 8
LEAST_MEANING = 0.1
MAX_CHARS = 20_000
"""Characters of a field that are read; the answer to a query is rarely further down."""


@dataclass(frozen=True, slots=True)
class Highlight:
    """What to mark.

    Attributes:
        fields: Names of text fields.
        words: Number of words of a snippet, at least 1.
        tags: What to put before and after each span of an HTML snippet; None: the snippet is plain text.
    """

    fields: Sequence[str]
    words: int = 30
    tags: Tags | None = None


def highlights(
    model: Model,
    text: str,
    query: Encoded,
    documents: Sequence[Mapping[str, Any]],
    encoded: Encoded,
    asked: Highlight,
) -> list[dict[str, Snippet]]:
    """Return the snippets of documents for a query.

    Args:
        model: The model that encoded both.
        text: The query.
        query: The same query, encoded.
        documents: The stored fields of B documents.
        encoded: The same documents, encoded.
        asked: What to mark.

    Returns:
        For each document a snippet of each of the fields that it has as text.
    """
    split = split_fields(documents, asked.fields, MAX_CHARS)
    reading = SplitDocuments(documents, split.words, split.complete)
    matched = model.matching_words(text, split.words).tolist()
    shares = model.word_shares(query, reading, encoded, split.words).tolist()
    found: list[dict[str, Snippet]] = []
    for fields, own_shares in zip(split.fields, shares, strict=True):
        own = sorted({number for field in fields.values() for number in field.numbers})
        marked = _marked(own, matched, own_shares)
        found.append(
            {
                name: snippet(field, marked, asked.words, asked.tags)
                for name, field in fields.items()
            }
        )
    return found


def _marked(own: Sequence[int], matched: Sequence[bool], shares: Sequence[float]) -> Marked:
    """Return the kind and the weight of each word of a document that is marked, by number."""
    marked: Marked = {i: ("meaning", shares[i]) for i in meaning_words(own, matched, shares)}
    for i in own:
        if matched[i]:
            marked[i] = "word", max(0.0, shares[i])
    return marked


def meaning_words(
    own: Sequence[int], matched: Sequence[bool], shares: Sequence[float]
) -> list[int]:
    """Choose the words of a document to mark for their meaning.

    Args:
        own: The numbers of the words of the document, ascending.
        matched: Of W words, whether the query asks for it.
        shares: Of W words, the share in the score.

    Returns:
        Numbers of words, the largest share first, ties by number.
    """
    least = LEAST_MEANING * max([shares[i] for i in own], default=0.0)
    others = [i for i in own if shares[i] > 0 and shares[i] >= least and not matched[i]]
    others.sort(key=lambda i: -shares[i])
    return others[:MAX_MEANING]
