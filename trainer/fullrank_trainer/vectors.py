"""Read word vectors: of model2vec, and in the text format of word2vec, GloVe and fastText."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import CollectionError, TrainingError
from fullrank.storage import strict_json
from fullrank.storage.encoding import Float32
from fullrank.storage.strict_json import JsonError
from fullrank_trainer.lines import Lines

# Tensors of a safetensors file.
#
#     8 bytes    little-endian length n of the header
#     n bytes    JSON: name → {"dtype": "F32", "shape": [rows, columns], "data_offsets": [begin, end]}, "__metadata__"
#     the rest   the numbers, little-endian, row by row; offsets count from here and leave no gap
#
# https://huggingface.co/docs/safetensors describes the format. Nothing in it can run code.

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
_MAX_HEADER_BYTES = 100_000_000  # the limit of the format
_MAX_DEPTH = 4


def read_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Map the tensors of a file into memory; bfloat16 is converted to float32. Raises TrainingError."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size - 8 - length
            if size < 0 or length > _MAX_HEADER_BYTES:
                raise _refused(path, "is truncated or no safetensors file")
            header = strict_json.parse(file.read(length), max_depth=_MAX_DEPTH)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error}") from error
    except JsonError as error:
        raise _refused(path, f"the header {error}") from error
    if not isinstance(header, dict):
        raise _refused(path, "the header is no JSON object")
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    places = {name: _place(path, name, entry) for name, entry in entries.items()}
    end = 0
    for name, (begin, stop, _, _) in sorted(places.items(), key=lambda item: item[1][:2]):
        if begin != end:
            raise _refused(path, f"tensor {name!r} begins at byte {begin}, expected {end}")
        end = stop
    if end != size:
        raise _refused(path, f"has {size} bytes of numbers, its header announces {end}")
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, (begin, stop, dtype, shape) in places.items():
        kind = np.dtype(_DTYPES[dtype])
        found: npt.NDArray[Any] = np.zeros(shape, kind)
        if begin != stop:
            found = np.memmap(path, kind, "r", 8 + length + begin, shape)
        # bfloat16 is the upper half of a float32
        is_half = dtype == "BF16"
        tensors[name] = (found.astype(np.uint32) << 16).view(np.float32) if is_half else found
    return tensors


def _place(path: Path, name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """Return begin, end, dtype and shape of a tensor; check that they fit each other."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise _refused(path, f"tensor {name!r} needs dtype, shape and data_offsets") from None
    if dtype not in _DTYPES:
        raise _refused(path, f"tensor {name!r}: dtype {dtype!r} is not one of {', '.join(_DTYPES)}")
    sizes = [*shape, begin, end] if isinstance(shape, list) else [None]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sizes):
        raise _refused(path, f"tensor {name!r}: shape and data_offsets are no whole numbers")
    if end - begin != math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize:
        raise _refused(path, f"tensor {name!r}: {end - begin} bytes do not fit the shape {shape}")
    return begin, end, dtype, tuple(shape)


def _refused(path: Path, reason: str) -> TrainingError:
    return TrainingError(f"train.vectors: {path}: {reason}")


# Read the word vectors of a model2vec model: ``model.safetensors`` and the vocabulary of ``tokenizer.json``.
#
# The vector of a token is a row of the tensor ``embeddings``; a model with fewer rows than tokens also has
# ``mapping``, the row of each token. Tokens of parts of words are left out.

_NAMES = ("embeddings", "embedding.weight")  # of model2vec and of sentence-transformers
_WORD_STARTS = ("▁", "Ġ")  # how SentencePiece and byte-level vocabularies mark the start of a word


def read_model2vec(path: Path, collector: Collector) -> str:
    """Read a safetensors file, with tokenizer.json in its folder; return the sha256 of both. Raises TrainingError."""
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


# Read the text format of word2vec, GloVe and fastText: one word and its numbers a line, separated by spaces.
#
# word2vec and fastText write a first line with the number of words and of numbers; GloVe does not.

_LARGEST = float(np.finfo(np.float32).max)


def read_text(path: Path, collector: Collector) -> str:
    """Read a text file, plain or gzipped; return the sha256 of its content. Raises TrainingError."""
    lines = Lines(path)
    try:
        _read(lines, collector)
    except CollectionError as error:
        raise TrainingError(f"train.vectors: {error}") from error
    return lines.digest()


def _read(lines: Lines, collector: Collector) -> None:
    width, expected, seen, number = 0, None, 0, 0
    for number, line in lines:
        fields = line.rstrip(b" \r\n").split(b" ") if number == 1 else []
        if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
            expected, width = int(fields[0]), int(fields[1])
            continue
        width = width or len(fields) - 1
        if width < 1:
            raise lines.error(number, "expected a word and its numbers, separated by spaces")
        _read_line(lines, number, line, width, collector)
        seen += 1
    if expected is not None and seen != expected:
        raise lines.error(
            number, f"the file has {seen:,} vectors, its first line announces {expected:,}"
        )


def _read_line(lines: Lines, number: int, line: bytes, width: int, collector: Collector) -> None:
    """Read one vector. A word may have spaces in some files; such a word is no word here."""
    line = line.rstrip(b" \r\n")
    if line.count(b" ") < width:
        found = line.count(b" ")
        raise lines.error(number, f"expected a word and {width} numbers, got {found} numbers")
    try:
        token = line[: line.index(b" ")].decode("utf-8")
    except UnicodeDecodeError:
        raise lines.error(
            number, "is not UTF-8; binary files of word2vec and fastText must be saved as text"
        ) from None
    word = collector.word_of(token)
    if word is None:
        return
    fields = line.split(b" ")[1:]
    if len(fields) > width:
        return
    try:
        vector = np.array([float(text) for text in fields])
    except ValueError as error:
        raise lines.error(number, f"the vector of {token!r}: {error}") from None
    if not (np.abs(vector) <= _LARGEST).all():
        raise lines.error(number, f"the vector of {token!r} has a number that is not finite")
    collector.add(word, token, vector.astype(np.float32))


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Vectors of known words.

    Attributes:
        words: the words of the collection that it has, as the featuriser writes them.
        vectors: float32 (words, width), finite and not zero.
    """

    path: Path
    fingerprint: str
    words: list[str]
    vectors: Float32


class Collector:
    """Collects one vector a word; the featuriser's own spelling replaces others, else the first one counts.

    A file may have "Apple" and "apple"; Unicode normalisation and lowercase make both the word "apple".
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = frozenset(wanted)
        self._tokens: dict[str, str] = {}
        self._vectors: dict[str, npt.ArrayLike] = {}

    def word_of(self, token: str) -> str | None:
        """Return the word whose vector the token has; None if that vector is not needed."""
        word = token
        if word not in self._wanted:
            word = unicodedata.normalize("NFKC", token).lower()
            if word not in self._wanted:
                return None
        known = self._tokens.get(word)
        return word if known is None or (token == word != known) else None

    def add(self, word: str, token: str, vector: npt.ArrayLike) -> None:
        """Keep the vector of a word that ``word_of`` returned."""
        self._tokens[word], self._vectors[word] = token, vector

    def collect(self, path: Path, fingerprint: str) -> WordVectors:
        """Return the vectors, without those that are zero. Raises TrainingError."""
        words = sorted(self._vectors)
        if words:
            vectors = np.array([self._vectors[word] for word in words], np.float32)
            finite = np.isfinite(vectors).all(axis=1)
            if not finite.all():
                token = self._tokens[words[int(np.argmin(finite))]]
                raise TrainingError(
                    f"train.vectors: {path}: the vector of {token!r} has a number that is not finite"
                )
            nonzero = np.flatnonzero(vectors.any(axis=1))
            words, vectors = [words[i] for i in nonzero.tolist()], vectors[nonzero]
        if not words:
            raise TrainingError(
                f"train.vectors: {path} has a vector for no word of the collection; "
                "is it of another language?"
            )
        return WordVectors(path, fingerprint, words, vectors)


def read_vectors(path: Path, wanted: Collection[str]) -> WordVectors:
    """Read the vectors of some words; memory grows with these words, not with the file.

    Args:
        path: a model2vec ``model.safetensors`` with its ``tokenizer.json`` in the same folder, or a text file of
            word2vec, GloVe or fastText (``.vec``, ``.txt``), plain or gzipped.

    Raises:
        TrainingError: the file is damaged or of another format, or it has a vector for no wanted word.
    """
    collector = Collector(wanted)
    read = read_model2vec if path.suffix == ".safetensors" else read_text
    return collector.collect(path, read(path, collector))
