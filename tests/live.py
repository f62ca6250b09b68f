"""Bundles in memory, and what a view of one should answer, computed the plain way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fullrank.bundle import Bundle
from fullrank.bundle.manifest import Manifest
from fullrank.live import View
from fullrank.models.contract import Model
from fullrank.retrieval import Retriever
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded, concatenate
from fullrank.storage.strings import DocumentStore

Stored = Mapping[str, Mapping[str, Any]]


def bundle_of(model: Model, documents: Stored) -> Bundle:
    """An opened bundle of these documents, fields by id, without a folder."""
    ids = sorted(documents)
    encoded = model.encode_documents([texts(documents[id]) for id in ids])
    store = DocumentStore.of([Document(id, documents[id]) for id in ids])
    manifest: Any = SimpleNamespace(name="live", version="live-1", bundle_id="b" * 64, floor=None)
    retriever = Retriever(encoded, model.scorer(encoded))
    return Bundle(Path(), cast(Manifest, manifest), model, encoded, store, retriever, {})


def texts(fields: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def wide(encoded: Encoded, width: int) -> Encoded:
    return replace(encoded, sparse=replace(encoded.sparse, width=width))


def flat(view: View, base: Stored, added: Stored) -> tuple[list[str], Encoded]:
    """The ids and the encoding of the documents that a view should hold, in one piece.

    base, added  what is left of the bundle's documents, and what was written since
    """
    bundle, width = view.bundle, view.encoder.n_sparse
    ids = sorted([*base, *added])
    new = sorted(added)
    rows = view.encoder.encode_documents([added[id] for id in new])
    pieces = []
    for id in ids:
        if id in added:
            pieces.append(rows.slice(new.index(id), new.index(id) + 1))
        else:
            row = bundle.documents.row(id)
            pieces.append(wide(bundle.encoded.slice(row, row + 1), width))
    if not pieces:
        return ids, wide(bundle.encoded.slice(0, 0), width)
    return ids, concatenate(pieces)


def brute_force(
    documents: Encoded, query: Encoded, ids: Sequence[str], kept: Sequence[bool]
) -> list[tuple[str, float]]:
    """Every kept document with its score u·v + s·t + b in float64, best first, ties by id."""
    u = query.dense[0].astype(np.float64)
    s = np.zeros(documents.sparse.width)
    s[query.sparse.indices] = query.sparse.values
    match = documents.sparse.csr().astype(np.float64) @ s
    scores = documents.dense.astype(np.float64) @ u + match + documents.bias
    found = [(id, float(score)) for id, score, keep in zip(ids, scores, kept, strict=True) if keep]
    return sorted(found, key=lambda one: (-one[1], one[0]))
