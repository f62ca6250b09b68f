"""Make a file of word vectors with a sentence encoder: the vector of a word is the encoding of the word alone.

    python benchmarks/experiments/distil.py words.txt words.vec.gz --model FOLDER

Needs the package sentence-transformers, which Fullrank does not depend on; run it in an environment of its own. It
imports nothing of Fullrank. FOLDER is a model that is already on this machine. ``words.txt`` has one word a line.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path


def main() -> None:
    """Encode the words and write the text format of word2vec."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", type=Path)
    parser.add_argument("out", type=Path, help="a .vec.gz file")
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()

    from sentence_transformers import SentenceTransformer

    words = given.words.read_text("utf-8").splitlines()
    model = SentenceTransformer(str(given.model), device="cpu", local_files_only=True)
    vectors = model.encode(words, batch_size=256, normalize_embeddings=True)
    with gzip.open(given.out, "wt", encoding="utf-8") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n")
        for word, vector in zip(words, vectors, strict=True):
            file.write(f"{word} {' '.join(f'{number:.5f}' for number in vector)}\n")
    print(f"{len(words):,} vectors of width {vectors.shape[1]}")


if __name__ == "__main__":
    main()
