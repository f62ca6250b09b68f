"""Read the word vectors of a model2vec model: ``model.safetensors`` and the vocabulary of ``tokenizer.json``.

The vector of a token is a row of the tensor ``embeddings``; a model with fewer rows than tokens also has ``mapping``,
the row of each token. Tokens of parts of words are left out. The tensor ``weights`` is not needed, because every
vector gets the same length later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.storage import strict_json
from fullrank.storage.strict_json import JsonError
from fullrank_trainer.vectors.collector import Collector
from fullrank_trainer.vectors.safetensors import read_tensors

_NAMES = ("embeddings", "embedding.weight")  # of model2vec and of sentence-transformers
_WORD_STARTS = ("▁", "Ġ")  # how SentencePiece and byte-level vocabularies mark the start of a word


def read_model2vec(path: Path, collector: Collector) -> str:
    """Read a model into the collector.

    Args:
        path: of the safetensors file; tokenizer.json must lie in the same folder.
        collector: gets the vectors.

    Returns:
        The sha256 of both files, hexadecimal.

    Raises:
        TrainingError: a file is missing or damaged, or they do not fit each other.
    """
    tensors, tokenizer = read_tensors(path), path.with_name("tokenizer.json")
    name = next((name for name in _NAMES if name in tensors), None)
    if name is None:
        raise _refused(
            path,
            f"has no tensor 'embeddings', so it is no model2vec model; its first of {len(tensors)} "
            f"is {next(iter(tensors), '')!r}",
        )
    table = tensors[name]
    if table.ndim != 2:
        raise _refused(path, f"tensor {name!r} has {table.ndim} dimensions, expected 2")
    tokens = _tokens(tokenizer)
    rows = _rows(path, tensors.get("mapping"), len(table), max(tokens.values(), default=-1) + 1)
    for token, id in _whole_words(tokens).items():
        word = collector.word_of(token)
        if word is not None:
            collector.add(word, token, table[rows[id]].astype(np.float32))
    digest = hashlib.sha256()
    for file in (path, tokenizer):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _tokens(path: Path) -> dict[str, int]:
    """Return the vocabulary, token → id, without special tokens as [PAD]."""
    try:
        tokenizer = strict_json.parse(path.read_bytes())
        vocabulary: Any = tokenizer["model"]["vocab"]
        special = {
            token["content"] for token in tokenizer.get("added_tokens") or () if token["special"]
        }
        if isinstance(vocabulary, list):  # SentencePiece: [[token, score], …]
            vocabulary = {token: id for id, (token, _) in enumerate(vocabulary)}
    except OSError as error:
        raise _refused(
            path, f"cannot be read: {error.strerror}; the model needs it in the same folder"
        ) from error
    except JsonError as error:
        raise _refused(path, str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _refused(path, "has no vocabulary at model.vocab") from None
    if not isinstance(vocabulary, dict) or not all(
        isinstance(id, int) and id >= 0 for id in vocabulary.values()
    ):
        raise _refused(path, "model.vocab does not give each token an id")
    return {token: id for token, id in vocabulary.items() if token not in special}


def _rows(
    path: Path, mapping: npt.NDArray[Any] | None, rows: int, tokens: int
) -> npt.NDArray[np.int64]:
    """Return the row of each token."""
    if mapping is None:
        found = np.arange(rows)
    elif mapping.ndim == 1 and mapping.dtype.kind in "iu":
        found = mapping.astype(np.int64)
    else:
        raise _refused(path, "tensor 'mapping' is not a list of whole numbers")
    if len(found) < tokens:
        raise _refused(path, f"has vectors for {len(found)} tokens, tokenizer.json has {tokens}")
    if len(found) and not (found.min() >= 0 and found.max() < rows):
        raise _refused(path, f"tensor 'mapping' points beyond the {rows} rows")
    return found


def _whole_words(tokens: Mapping[str, int]) -> dict[str, int]:
    """Return the tokens that are whole words, without the mark of a word's start.

    WordPiece marks the other tokens: "##s" is no word of any collection.
    """
    for start in _WORD_STARTS:
        if any(token.startswith(start) for token in tokens):
            return {
                token[1:]: id
                for token, id in tokens.items()
                # Byte-level vocabularies write other letters than ASCII as two or more characters.
                if token.startswith(start) and (start != "Ġ" or token[1:].isascii())
            }
    return dict(tokens)


def _refused(path: Path, reason: str) -> TrainingError:
    return TrainingError(f"train.vectors: {path}: {reason}")
