"""Start U and V at pretrained word vectors.

    X: the vectors of known words, each of length 1, minus their mean
    Y = X P                         P: their first principal components, (width, r), r ≤ N
    u_w = σ √N Q y_w / ‖y_w‖        Q: the identity if r = N, else a random orthonormal embedding of r in N dimensions

Each row then has the root mean square σ that a row drawn at random has, so learning rates keep their meaning. A word
has the same start on both sides. Words without a vector, a word whose vector is the mean, and letter trigrams keep
their random start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32
from fullrank.errors import TrainingError
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.vectors import WordVectors

_ZERO = 1e-9  # unit vectors: a shorter difference from their mean is a rounding error


def start_rows(
    found: WordVectors,
    features: Features,
    parameters: Parameters,
    init: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Set the rows of words that have a vector, in place.

    Args:
        found: the vectors.
        features: names the rows of both sides.
        parameters: at the random start.
        init: σ; 0 takes the standard deviation of the random start.
        rng: draws the orthonormal embedding.

    Returns:
        For the model card: the file, and how many words of how many start at a vector.

    Raises:
        TrainingError: no word of the model has a vector.
    """
    sides = [(parameters.U, features.query_composition.labels)]
    if not parameters.tied:
        sides.append((parameters.V, features.document_composition.labels))
    words = {word for _, labels in sides for word in labels}
    known = [i for i, word in enumerate(found.words) if word in words]
    if not known:
        raise TrainingError(
            f"train.vectors: {found.path} has a vector for no word of the model's {len(words):,}"
        )
    width = parameters.V.shape[1]
    rows = project(found.vectors[known], width, rng)
    rows *= (init or float(parameters.V.std())) * np.sqrt(width)
    index = {found.words[i]: row for i, row in zip(known, rows, strict=True) if row.any()}
    for table, labels in sides:
        for i, word in enumerate(labels):
            if word in index:
                table[i] = index[word]
    return {
        "file": found.path.name,
        "sha256": found.fingerprint,
        "width": found.vectors.shape[1],
        "words": len(index),
        "of": len(words),
    }


def project(vectors: Float32, width: int, rng: np.random.Generator) -> Float32:
    """Return unit rows of another width.

    Args:
        vectors: float32 (words, columns), no row is zero.
        width: N.
        rng: draws the embedding if the vectors span fewer than N dimensions.

    Returns:
        float32 (words, N); zero for a vector that is the mean of all.
    """
    X = _unit(vectors.astype(np.float64))
    X -= X.mean(axis=0)
    components = np.linalg.eigh(X.T @ X)[1][:, ::-1]  # by descending variance
    rank = min(width, len(X), X.shape[1])
    Y = X @ components[:, :rank]
    if rank < width:
        basis, _ = np.linalg.qr(rng.standard_normal((width, rank)))
        Y = Y @ basis.T
    return np.asarray(_unit(Y), np.float32)


def _unit(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scale rows to length 1; what is left of a zero row by rounding becomes zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(norms > _ZERO, rows / np.maximum(norms, _ZERO), 0.0)
