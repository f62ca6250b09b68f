"""Typed queries of a collection whose documents are the queries: short ones, made of the documents.

    title        the title of a document
    words        half of the words of a title, neighbouring ones
    heading      a Markdown heading of its text
    description  its first words, or those of a field "description" or "summary"
    span         2 to 5 neighbouring words of it
    keywords     2 to 5 words of it, each of four letters or more if there are such
    anchor       the text of links to it that training does not read (``fullrank_trainer.collection.anchors``)

The document is the answer; of anchors, all documents that they lead to. Hashes choose, so every run asks the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from fullrank.models.contract import field_text
from fullrank_trainer.evaluation.evaluate import Judgement, evenly_chosen, evenly_spread
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.features.fields import HEAVY
from fullrank_trainer.training.validation import Validation

TYPED = "typed"
_MOST = 3000  # queries
_FEWEST = 5  # fewer say nothing
_HEADING = re.compile(r"^#{1,6}[ \t]+(.*\w.*)$", re.MULTILINE)
_SENTENCE = re.compile(r"[.!?]\s|\n")
_DESCRIPTIONS = ("description", "summary")
_DESCRIBING_WORDS = 8
_SPAN_WORDS = (2, 5)
_LONG = 4  # letters; shorter words rarely say what a text is about


def typed_queries(corpus: Corpus) -> tuple[Validation | None, list[str]]:
    """Make typed queries of a counted collection.

    Returns:
        The queries, None if there are too few; and the kind of each. Those of one kind stand together.
    """
    collection = corpus.collection
    rows = collection.document_ids.rows
    anchors = [
        (text, [rows[id] for id in ids if id in rows]) for text, ids in collection.anchors.items()
    ]
    found = [("anchor", text, answers) for text, answers in evenly_chosen(anchors, _MOST // 2)]
    titled: dict[str, list[int]] = {}
    titles = [name for name in corpus.sources if name.lower() in HEAVY]
    for row, document in enumerate(collection.documents):
        titled.setdefault(_same(field_text(document.fields, titles)), []).append(row)
    for row in evenly_spread(len(rows), _MOST - len(found)).tolist():
        document = collection.documents[row]
        kinds = [*_made(document.fields, titles, corpus.sources, document.id)]
        if kinds:
            kind, text = kinds[_number(document.id, "kind") % len(kinds)]
            found.append((kind, text, titled.get(_same(text), [row])))
    found = [(kind, text, rows) for kind, text, rows in found if text and rows]
    found.sort(key=lambda query: query[0])
    if len(found) < _FEWEST:
        return None, []
    nothing = np.zeros(0, np.int64)
    judgements = [
        Judgement(text, np.unique(answers), np.ones(len({*answers}), np.int64), nothing)
        for _, text, answers in found
    ]
    texts = [text for _, text, _ in found]
    valid = Validation(TYPED, np.zeros(len(found), np.int64), judgements, texts)
    return valid, [kind for kind, _, _ in found]


def _made(
    fields: Mapping[str, object], titles: Sequence[str], sources: Sequence[str], id: str
) -> Iterator[tuple[str, str]]:
    """Yield a query of each kind that a document allows."""
    words = field_text(fields, titles).split()
    if words:
        yield "title", " ".join(words)
    if len(words) > 1:
        yield "words", _span(words, (len(words) + 1) // 2, id)
    text = field_text(fields, [name for name in sources if name not in titles])
    headings = _HEADING.findall(text)
    if headings:
        yield "heading", headings[_number(id, "heading") % len(headings)].strip()
    described = field_text(fields, _DESCRIPTIONS) or _SENTENCE.split(text.strip(), maxsplit=1)[0]
    if described := " ".join(described.split()[:_DESCRIBING_WORDS]):
        yield "description", described
    least, most = _SPAN_WORDS
    count = least + _number(id, "length") % (most - least + 1)
    words = text.split()
    if len(words) >= least:
        yield "span", _span(words, count, id)
    long = [word for word in words if len(word) >= _LONG] or words
    if len(long) >= least:
        some = (long[_number(id, f"keyword {i}") % len(long)] for i in range(count))
        yield "keywords", " ".join(dict.fromkeys(some))


def _span(words: Sequence[str], count: int, id: str) -> str:
    first = _number(id, "first") % max(1, len(words) - count + 1)
    return " ".join(words[first : first + count])


def _number(id: str, use: str) -> int:
    text = f"{use}\0{id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, person=b"typed").digest())


def _same(text: str) -> str:
    """Return what two spellings of one title share."""
    return " ".join(text.casefold().split())
