"""fastText: documents as labels of a supervised model, and mean word vectors of an unsupervised one.

    python -m benchmarks.peers.fasttext_peer [--collection tldr/en]

fasttext-labels     supervised; a training query and the text of a document each predict the label of the document
fasttext-vectors    skip-grams over all texts; cosine of the mean word vectors

The package is no dependency of the project: see requirements-fasttext.txt.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.command import PeerSystem, Settings, parser, run
from benchmarks.peers.data import PeerData
from benchmarks.peers.dense import passage_scores, unit_rows
from benchmarks.peers.ranking import Float32, Trained
from fullrank.text.words import words

LABEL = "__label__"
_END = "</s>"  # fastText adds this word to each line of training


def labelled_lines(data: PeerData) -> list[str]:
    """Return a line for each training pair and each document: its label and its words."""
    pairs = [*data.train, *((text, row) for row, text in enumerate(data.documents))]
    return [f"{LABEL}{row} {' '.join(words(text))}" for text, row in pairs]


def fit_labels(data: PeerData, settings: Settings) -> Trained:
    """Train a supervised model. Settings: those of train_supervised; any loss but hs, whose labels form a tree."""
    model = _trained("train_supervised", labelled_lines(data), settings)
    places = np.array([int(label.removeprefix(LABEL)) for label in model.labels])
    output = np.zeros((len(data.documents), model.get_dimension()), np.float32)
    output[places] = model.get_output_matrix()
    columns = np.ascontiguousarray(output.T)

    def score(texts: Sequence[str]) -> Float32:
        lines = [f"{' '.join(words(text))} {_END}" for text in texts]
        vectors = np.stack([model.get_sentence_vector(line) for line in lines])
        return np.asarray(vectors @ columns, np.float32)

    return Trained(score)


def fit_vectors(data: PeerData, settings: Settings) -> Trained:
    """Train an unsupervised model on documents and training queries. Settings: those of train_unsupervised."""
    lines = [
        " ".join(words(text)) for text in (*data.documents, *(query for query, _ in data.train))
    ]
    model = _trained("train_unsupervised", lines, settings)

    def encode(texts: Sequence[str]) -> Float32:
        vectors = [model.get_sentence_vector(" ".join(words(text))) for text in texts]
        return unit_rows(np.stack(vectors))

    return Trained(passage_scores(encode, encode(data.documents), np.arange(len(data.documents))))


def _trained(function: str, lines: Sequence[str], settings: Settings) -> Any:
    with tempfile.TemporaryDirectory(prefix="fullrank-peer-") as folder:
        file = Path(folder) / "train.txt"
        file.write_text("\n".join(lines) + "\n", "utf-8")
        train = getattr(import_module("fasttext"), function)
        return train(str(file), thread=1, verbose=0, **settings)


LABEL_TRIALS: tuple[Settings, ...] = (
    {"loss": "softmax", "dim": 50, "epoch": 10, "lr": 1.0},
    {"loss": "softmax", "dim": 50, "epoch": 25, "lr": 1.0},
)

SYSTEMS = (
    PeerSystem("fasttext-labels", fit_labels, LABEL_TRIALS),
    PeerSystem("fasttext-vectors", fit_vectors, ({"model": "skipgram", "dim": 100, "epoch": 5},)),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems."""
    given = parser(__doc__).parse_args(arguments)
    run("benchmarks.peers.fasttext_peer", SYSTEMS, given, ("fasttext-wheel",), arguments)


if __name__ == "__main__":
    main()
