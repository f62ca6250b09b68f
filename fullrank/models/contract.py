"""The contract of a model: two encoders, score = u·v + s·t + b. The service knows nothing else about a model.

A model that is no inner product also brings a Scorer, which replaces u·v + s·t.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.kernels.arrays import Mask
from fullrank.retrieval.scoring import Scorer, TermShare
from fullrank.storage.documents import field_text, text_of
from fullrank.storage.encoding import Encoded, Float32, Float64
from fullrank.text.features import Vocabulary
from fullrank.text.forms import Forms
from fullrank.text.spelling import Variants


@dataclass(frozen=True)
class Parts:
    """The stored form of a model: JSON settings, arrays and lists of strings, each under a name."""

    config: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    strings: dict[str, Sequence[str]]

    def under(self, prefix: str) -> Parts:
        """Return the same with a prefix before each name, to be stored with another model."""
        arrays = {f"{prefix}{name}": array for name, array in self.arrays.items()}
        strings = {f"{prefix}{name}": texts for name, texts in self.strings.items()}
        return Parts(self.config, arrays, strings)

    def within(self, prefix: str, config: dict[str, Any]) -> Parts:
        """Return the parts whose names have a prefix, without it; undoes ``under``."""

        def own(parts: Mapping[str, Any]) -> dict[str, Any]:
            found = {name: part for name, part in parts.items() if name.startswith(prefix)}
            return {name.removeprefix(prefix): part for name, part in found.items()}

        return Parts(config, own(self.arrays), own(self.strings))


class Known(NamedTuple):
    """The single words that a model knows.

    Attributes:
        tables: Its words, and how often each occurs relative to the rarest one.
        sources: Of other forms of words.
        of_documents: The table of the words of documents, where the others are of queries too.
        forms, idf: Of the features of words, where each word has its own.
        has_features: Whether a feature of documents may say that they have a word.
    """

    tables: Sequence[tuple[Vocabulary, Float64]] = ()
    sources: Sequence[Variants] = ()
    of_documents: Sequence[tuple[Vocabulary, Float64]] = ()
    forms: Forms | None = None
    idf: Float32 | None = None
    has_features: bool = True


class Model(ABC):
    """Two encoders over one dense width N and one sparse width F.

    What is not abstract is that of a model without a dense part whose features are whole texts. The setting
    `query_fields` has the fields of a document used as a query.
    """

    settings: dict[str, Any]

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """JSON settings; `kind` names the family."""

    @property
    def n_dense(self) -> int:
        """N, the number of dense dimensions."""
        return 0

    @property
    @abstractmethod
    def n_sparse(self) -> int:
        """F, the number of sparse features."""

    @abstractmethod
    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """Encode queries: u and s, bias 0. A batch gives the same bits as its texts one by one."""

    @abstractmethod
    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """Encode documents, given as field → text: v, t and the default bias."""

    @property
    def known(self) -> Known:
        """The words that the model knows; a blend has those of its leaves."""
        return Known()

    def columns_of(self, word: str) -> Sequence[int] | None:
        """Return the sparse columns that documents with a word have, in any of its forms; None: encode one to see."""
        return None

    @property
    def trained(self) -> Model:
        """The model without features for words that training did not see."""
        return self

    def unseen_features(self, word: str) -> list[int]:
        """Return the features of a word of a query that the trained model does not have."""
        return []

    def features_by_word(self, text: str) -> dict[str, set[int]]:
        """Return the same of each word of a query, and of neighbouring words as one, which are parted by spaces."""
        return {}

    @property
    def for_documents(self) -> Model:
        """The model that encodes documents as queries: the same, unless a blend has weights of its own for them."""
        return self

    def leaves(self, first: int = 0) -> Iterator[tuple[int, Model]]:
        """Yield the models that this one blends, each with its first sparse column."""
        yield first, self

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """Return the text of a document used as a query: its fields joined in the model's order."""
        return field_text(fields, self.settings["query_fields"])

    @abstractmethod
    def query_terms(self, text: str) -> list[TermShare]:
        """Split the encoding of a query by word, for explanations."""

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        """Return bool (W,): which words of documents a query asks for, as it is, in another form or misspelt."""
        return np.zeros(len(words), np.bool_)

    def word_shares(
        self,
        query: Encoded,
        documents: Sequence[Mapping[str, Any]],
        encoded: Encoded,
        words: Sequence[str],
    ) -> Float64:
        """Split the scores of B documents by their own words, as far as the model can tell.

        Returns:
            float64 (B, W), what each of W distinct words adds to the dense and the lexical part.
        """
        return np.zeros((len(encoded), len(words)))

    def scorer(self, documents: Encoded) -> Scorer | None:
        """Return the scorer of these documents; None for a model whose score is u·v + s·t + b."""
        return None

    @abstractmethod
    def parts(self) -> Parts:
        """Return the stored form of the model."""


class Wrapper(Model):
    """A model that does as another one what it does not override."""

    model: Model

    @property
    def n_dense(self) -> int:
        return self.model.n_dense

    @property
    def n_sparse(self) -> int:
        return self.model.n_sparse

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        return self.model.encode_queries(texts)

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        return self.model.encode_documents(documents)

    def query_text(self, fields: Mapping[str, Any]) -> str:
        return self.model.query_text(fields)

    def query_terms(self, text: str) -> list[TermShare]:
        return self.model.query_terms(text)

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        return self.model.matching_words(text, words)

    def word_shares(
        self,
        query: Encoded,
        documents: Sequence[Mapping[str, Any]],
        encoded: Encoded,
        words: Sequence[str],
    ) -> Float64:
        return self.model.word_shares(query, documents, encoded, words)


def fields_texts(documents: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    if len(names) != 1:
        return [field_text(document, names) for document in documents]
    # Most columns have one field, which needs no joining.
    [name] = names
    values = [document.get(name) for document in documents]
    return [value if isinstance(value, str) else text_of(value) or "" for value in values]


def warm(model: Model) -> None:
    """Build what the first query would build, what corrects typing errors too: the word is unknown to every model."""
    model.encode_queries(["zzqxwv"])


def are_in(words: Sequence[str], asked: Container[str]) -> Mask:
    return np.fromiter((word in asked for word in words), np.bool_, len(words))


def lexical_shares(features: np.ndarray, query: Encoded, encoded: Encoded) -> Float64:
    """Return s_f t_f of the feature f of W words (-1 without one) in B documents, float64 (B, W)."""
    found = np.zeros((len(encoded), len(features)))
    indices, weights = query.sparse.row(0)
    if not len(indices):
        return found
    at = np.minimum(np.searchsorted(indices, features), len(indices) - 1)
    asked = np.flatnonzero(indices[at] == features)
    # The entries of all documents by feature; several words may have one feature.
    order = np.argsort(encoded.sparse.indices, kind="stable")
    entries = encoded.sparse.indices[order]
    first = np.searchsorted(entries, features[asked])
    sizes = np.searchsorted(entries, features[asked], side="right") - first
    word = np.repeat(asked, sizes)
    before = np.cumsum(sizes) - sizes
    entry = order[np.repeat(first - before, sizes) + np.arange(len(word))]
    owner = np.searchsorted(encoded.sparse.indptr, entry, side="right") - 1
    found[owner, word] = weights[at[word]].astype(np.float64) * encoded.sparse.values[entry]
    return found
