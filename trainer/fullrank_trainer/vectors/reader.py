"""Read the vectors of a collection's words from a file of any known format."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fullrank_trainer.vectors.collector import Collector, WordVectors
from fullrank_trainer.vectors.model2vec import read_model2vec
from fullrank_trainer.vectors.text import read_text


def read_vectors(path: Path, wanted: Collection[str]) -> WordVectors:
    """Read the vectors of some words; memory grows with these words, not with the file.

    Args:
        path: a model2vec ``model.safetensors`` with its ``tokenizer.json`` in the same folder, or a text file of
            word2vec, GloVe or fastText (``.vec``, ``.txt``), plain or gzipped.
        wanted: the words, as the featuriser writes them.

    Raises:
        TrainingError: the file is damaged or of another format, or it has a vector for no wanted word.

    Example:
        >>> read_vectors(Path("wiki.en.vec"), ["ant", "bee"]).vectors.shape
        (2, 300)
    """
    collector = Collector(wanted)
    read = read_model2vec if path.suffix == ".safetensors" else read_text
    return collector.collect(path, read(path, collector))
