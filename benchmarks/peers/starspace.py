"""StarSpace, built from its sources: embeddings of words, documents as bags of words, labels, or both.

    python -m benchmarks.peers.starspace --binary PATH/starspace [--collection tldr/en]

Build the binary outside of this repository with g++, make and Boost's headers. Its sources need one change: model.cpp
ends a thread by `bool doneTraining`, which an optimising compiler reads only once, so the program never ends. Make it a
`std::atomic<bool>` (and include <atomic>), then

    make starspace BOOST_DIR=/usr/include CXXFLAGS="-pthread -std=gnu++11 -O3 -march=native -DBOOST_UBLAS_NDEBUG"

StarSpace trains; the scores are computed here from the vectors that it writes, by its own formula: a text is the sum of
the vectors of its words divided by (number of words)^p, and a score is the cosine or the product of two texts.

starspace          trainMode 0, a query and a relevant document; trainMode 1, the texts of a document (its own and its
                   training queries), one of them against the others
                   names=true adds to each document a word that only it has
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.peers.command import PeerSystem, Settings, parser, run
from benchmarks.peers.data import PeerData
from benchmarks.peers.dense import unit_rows
from benchmarks.peers.ranking import Float32, Trained
from fullrank.text.words import words

SIZE_POWER = 0.5  # p, StarSpace's own default
NAME = "document_{row}"


def sides(data: PeerData, *, names: bool) -> list[list[str]]:
    """Return the words of each document, with its name as one more if ``names``."""
    found = [words(text) for text in data.documents]
    if names:
        for row, line in enumerate(found):
            line.append(NAME.format(row=row))
    return found


def training_lines(data: PeerData, mode: int, *, names: bool) -> list[str]:
    """Return the training file in the format labelDoc: bags of words, separated by tabs.

    Mode 0 has a line "query, document" for each pair. Mode 1 has a line for each document with training queries: its
    words and its queries; StarSpace draws one of them as the right-hand side.
    """
    documents = sides(data, names=names)
    if mode == 0:
        pairs = [(words(query), documents[row]) for query, row in data.train]
        return [_line(pair) for pair in pairs if all(pair)]
    queries: dict[int, list[list[str]]] = {}
    for query, row in data.train:
        queries.setdefault(row, []).append(words(query))
    bags = [[documents[row], *found] for row, found in sorted(queries.items())]
    return [_line(filter(None, bag)) for bag in bags]


def _line(bags: Iterable[Sequence[str]]) -> str:
    return "\t".join(" ".join(bag) for bag in bags)


def fit(data: PeerData, settings: Settings, *, binary: Path) -> Trained:
    """Train. Settings: names, and options of StarSpace by their own names (trainMode, dim, epoch, …)."""
    options = {"similarity": "cosine", "trainMode": 0, **settings}
    names = bool(options.pop("names", False))
    with tempfile.TemporaryDirectory(prefix="fullrank-peer-") as folder:
        train, model = Path(folder) / "train.txt", Path(folder) / "model"
        lines = training_lines(data, int(options["trainMode"]), names=names)
        train.write_text("\n".join(lines) + "\n", "utf-8")
        given = ["-trainFile", str(train), "-model", str(model), "-fileFormat", "labelDoc"]
        given += ["-thread", "1", "-p", str(SIZE_POWER)]
        given += [word for name, value in options.items() for word in (f"-{name}", str(value))]
        done = subprocess.run(
            [str(binary), "train", *given], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(
                f"{binary}: exit code {done.returncode}: {done.stderr or done.stdout}"
            )
        number, vectors = read_vectors(Path(f"{model}.tsv"))
    normalised = options["similarity"] == "cosine"
    documents = _embed(sides(data, names=names), number, vectors, normalised)
    columns = np.ascontiguousarray(documents.T)

    def score(texts: Sequence[str]) -> Float32:
        return _embed([words(text) for text in texts], number, vectors, normalised) @ columns

    return Trained(score)


def read_vectors(file: Path) -> tuple[dict[str, int], Float32]:
    """Read the words and vectors that StarSpace wrote: a line "word, numbers", separated by tabs."""
    number: dict[str, int] = {}
    vectors = []
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            word, _, values = line.rstrip("\n").partition("\t")
            number[word] = len(number)
            vectors.append(np.array(values.split("\t"), np.float32))
    return number, np.stack(vectors)


def _embed(
    texts: Sequence[Sequence[str]], number: dict[str, int], vectors: Float32, normalised: bool
) -> Float32:
    """Return the sum of the vectors of known words divided by their number to the power p."""
    found = np.zeros((len(texts), vectors.shape[1]), np.float32)
    for line, text in zip(found, texts, strict=True):
        rows = [number[word] for word in text if word in number]
        if rows:
            line[:] = vectors[rows].sum(axis=0) / len(rows) ** SIZE_POWER
    return unit_rows(found) if normalised else found


TRIALS: tuple[Settings, ...] = (
    {"trainMode": 0, "dim": 100, "epoch": 20},
    {"trainMode": 0, "dim": 100, "epoch": 20, "names": True},
    {"trainMode": 0, "dim": 100, "epoch": 20, "names": True, "lr": 0.05},
    {"trainMode": 1, "dim": 100, "epoch": 80, "names": True},
    {"trainMode": 1, "dim": 100, "epoch": 80, "names": True, "lr": 0.05},
)


def systems(given: argparse.Namespace) -> list[PeerSystem]:
    """Return the systems of this peer."""
    return [PeerSystem("starspace", partial(fit, binary=given.binary), TRIALS)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen systems."""
    options = parser(__doc__)
    options.add_argument("--binary", type=Path, required=True, help="the program starspace")
    given = options.parse_args(arguments)
    run("benchmarks.peers.starspace", systems(given), given, (), arguments)


if __name__ == "__main__":
    main()
