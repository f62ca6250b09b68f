"""Encode documents and queries under current parameters, without compiling a model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fullrank.encoding import Encoded, Float32, Int64, Rows
from fullrank.models.linear.sides import Tower
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.features.phi import Phi
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.systems.linear.scratch import Scratch
from fullrank_trainer.systems.linear.towers import forward
from fullrank_trainer.training.memory import drop_pages

BLOCK = 1 << 17
"""Documents that are encoded at once."""
_ROWS = 1 << 14  # embedded at once: a pass over all documents would keep several values of each


def scan_documents(
    features: Features, parameters: Parameters, start: int = 0, stop: int | None = None
) -> Encoded:
    """Encode documents start..stop, by default the corpus: v and t = Σ_f D_f z_f."""
    count = features.documents
    stop = count if stop is None else min(stop, count)
    z = [rows.slice(start, stop) for rows in features.z]
    t = Rows.add([_weighted(rows, D) for rows, D in zip(z, parameters.D, strict=True)])
    drop_pages(*(array for rows in z for array in rows.arrays))
    unit = 1.0 if features.settings.cosine else 0.0
    xd = features.xd.slice(start, stop) if len(parameters.V) else features.xd
    dense = _embed(xd, parameters.V, parameters.document, unit, stop - start)
    return Encoded.from_rows(t, dense, parameters.bias[start:stop])


def scan_blocks(features: Features, parameters: Parameters) -> Iterator[Encoded]:
    """Encode the corpus, block after block."""
    for start in range(0, features.documents, BLOCK):
        yield scan_documents(features, parameters, start, start + BLOCK)


def _weighted(z: Rows, D: Float32) -> Rows:
    values = D[z.indices]
    values *= z.values
    return z.with_values(values)


def scan_queries(features: Features, parameters: Parameters, rows: Int64) -> Encoded:
    """Encode queries, given by row: u and s."""
    s = features.s.take(rows)
    xq = features.xq.take(rows) if len(parameters.U) else features.xq
    dense = _embed(Phi(xq), parameters.U, parameters.query, features.settings.cosine, len(rows))
    return Encoded.from_rows(s, dense)


def _embed(phi: Phi, table: Float32, tower: Tower, gamma: float, count: int) -> Float32:
    """Return the dense vectors, (count, N); (count, 0) without a table."""
    if not len(table):
        return np.zeros((count, 0), np.float32)
    found, scratch = np.empty((count, tower.width(table.shape[1])), np.float32), Scratch()
    for start in range(0, count, _ROWS):
        part = phi.slice(start, min(start + _ROWS, count))
        found[start : start + _ROWS] = forward(part, table, tower, gamma, scratch).u
        drop_pages(*phi.words.arrays)
    return found
