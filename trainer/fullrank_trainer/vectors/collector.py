"""Collect the vectors of the words that a collection has."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32
from fullrank.errors import TrainingError


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Vectors of known words.

    Attributes:
        path: of the file.
        fingerprint: sha256 of its content, hexadecimal.
        words: the words of the collection that it has, as the featuriser writes them.
        vectors: float32 (words, width), finite and not zero.
    """

    path: Path
    fingerprint: str
    words: list[str]
    vectors: Float32


class Collector:
    """Collects one vector a word; the featuriser's own spelling replaces others, else the first one counts.

    A file may have "Apple" and "apple"; Unicode normalisation and lowercase make both the word "apple".
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = frozenset(wanted)
        self._tokens: dict[str, str] = {}
        self._vectors: dict[str, npt.ArrayLike] = {}

    def word_of(self, token: str) -> str | None:
        """Return the word whose vector the token has; None if that vector is not needed."""
        word = token
        if word not in self._wanted:
            word = unicodedata.normalize("NFKC", token).lower()
            if word not in self._wanted:
                return None
        known = self._tokens.get(word)
        return word if known is None or (token == word != known) else None

    def add(self, word: str, token: str, vector: npt.ArrayLike) -> None:
        """Keep the vector of a word that ``word_of`` returned."""
        self._tokens[word], self._vectors[word] = token, vector

    def collect(self, path: Path, fingerprint: str) -> WordVectors:
        """Return the vectors, without those that are zero.

        Raises:
            TrainingError: no word has a vector, or a number is not finite.
        """
        words = sorted(self._vectors)
        if words:
            vectors = np.array([self._vectors[word] for word in words], np.float32)
            finite = np.isfinite(vectors).all(axis=1)
            if not finite.all():
                token = self._tokens[words[int(np.argmin(finite))]]
                raise TrainingError(
                    f"train.vectors: {path}: the vector of {token!r} has a number that is not finite"
                )
            nonzero = np.flatnonzero(vectors.any(axis=1))
            words, vectors = [words[i] for i in nonzero.tolist()], vectors[nonzero]
        if not words:
            raise TrainingError(
                f"train.vectors: {path} has a vector for no word of the collection; "
                "is it of another language?"
            )
        return WordVectors(path, fingerprint, words, vectors)
