"""Documents that a text names: their titles stand in it, word for word.

    f(q, d) = Σ_t max(0, ln(P(d | q says t) / P(d)))        t: the names of d

A name is a title, or what others call the document. Each is a sparse feature, so the score is an inner product.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from fullrank.models.contract import Model, Parts
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Encoded, Float32, Rows
from fullrank.storage.strings import Lexicon
from fullrank.text.words import words

KIND = "mentions"
MAX_WORDS = 10
"""Longer titles are sentences, which no other text repeats."""

# What follows tells documents of one name apart, or describes them: "Mercury (planet)", "tar: archive files".
_AFTER_NAME = re.compile(r"\s*[:(|]|\s[-\u2013\u2014]\s")


def names_of(text: str) -> Iterator[str]:
    """Yield the names that lines of titles give: each line whole, and what stands before a colon, bracket or dash.

    Example:
        >>> sorted(names_of("Mercury (planet)"))
        ['mercury', 'mercury planet']
    """
    for line in text.splitlines():
        for name in {line, _AFTER_NAME.split(line, maxsplit=1)[0]}:
            if 0 < len(found := words(name)) <= MAX_WORDS:
                yield " ".join(found)


@dataclass(frozen=True, eq=False)
class MentionsModel(Model):
    """Known names: their words with spaces between, and what a text that says one adds to a document that has it.

    Attributes:
        titles, sources: Fields that name a document, and whose text is the query of a document.
    """

    names: Lexicon
    values: Float32
    titles: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def n_sparse(self) -> int:
        return len(self.names)

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": KIND, "titles": list(self.titles), "sources": list(self.sources)}

    def query_text(self, fields: Mapping[str, Any]) -> str:
        return field_text(fields, self.sources)

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        found = [self.said(text) for text in texts]
        rows = [(said, [1.0] * len(said)) for said in found]
        return Encoded.from_rows(Rows.from_lists(rows, self.n_sparse))

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        rows = []
        for document in documents:
            own = self._known({*names_of(field_text(document, self.titles))})
            rows.append((own, self.values[own].tolist()))
        return Encoded.from_rows(Rows.from_lists(rows, self.n_sparse))

    def said(self, text: str) -> list[int]:
        """Return the features of the names that a text says, ascending."""
        single, longer = self._beginnings
        found = words(text)
        names = single.intersection(found)
        for first, pair in enumerate(pairwise(found)):
            for length in longer.get(pair, ()):
                names.add(" ".join(found[first : first + length]))
        return self._known(names)

    def _known(self, names: Collection[str]) -> list[int]:
        rows = self.names.rows([*names])
        found: list[int] = np.sort(rows[rows >= 0]).tolist()
        return found

    @cached_property
    def _beginnings(self) -> tuple[set[str], dict[tuple[str, str], set[int]]]:
        """The names of one word; and how many words the others have, by their first two."""
        single: set[str] = set()
        longer: dict[tuple[str, str], set[int]] = {}
        for name in self.names:
            match name.split(" "):
                case [word]:
                    single.add(word)
                case [first, second, *rest]:
                    longer.setdefault((first, second), set()).add(2 + len(rest))
        return single, longer

    def query_terms(self, text: str) -> list[TermShare]:
        nothing = np.zeros(0, np.float32)
        return [TermShare(f"“{self.names[row]}”", nothing, row, 1.0) for row in self.said(text)]

    def parts(self) -> Parts:
        return Parts(self.config, {"values": self.values}, {"names": self.names})

    @classmethod
    def from_parts(cls, parts: Parts) -> MentionsModel:
        names, values = Lexicon.of(parts.strings["names"]), parts.arrays["values"]
        if values.shape != (len(names),) or not (values >= 0).all():
            raise ValueError(f"{len(names)} names, values of the shape {values.shape}")
        config = parts.config
        return cls(names, values, tuple(config["titles"]), tuple(config["sources"]))
