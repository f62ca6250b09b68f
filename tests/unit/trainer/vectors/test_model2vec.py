"""Word vectors of model2vec, written byte by byte, and of text files; vocabularies and faults."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.errors import TrainingError
from fullrank_trainer.vectors import read_tensors, read_vectors

TOKENS = ["[PAD]", "[UNK]", "ant", "##s", "bee", "Cat", "pad"]
TABLE = np.arange(1, 22, dtype=np.float32).reshape(7, 3)
WORDS = ["ant", "bee", "cat", "dog", "pad", "s"]
SPECIAL = [{"id": i, "content": TOKENS[i], "special": True} for i in range(2)]


def safetensors(header: dict[str, Any] | bytes, data: bytes) -> bytes:
    """The format as its documentation gives it: u64 length, JSON, numbers."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(
    folder: Path, *, tokens: Any = None, content: bytes | None = None, added: Any = SPECIAL
) -> Path:
    """A model with the usual table and vocabulary, unless given others."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {token: i for i, token in enumerate(TOKENS)} if tokens is None else tokens
    tokenizer = {"model": {"type": "any", "vocab": vocabulary}, "added_tokens": added}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    path = folder / "model.safetensors"
    data = TABLE.tobytes()
    path.write_bytes(content or safetensors({"embeddings": entry("F32", [7, 3], 0, 84)}, data))
    return path


def found_in(path: Path) -> dict[str, list[float]]:
    found = read_vectors(path, WORDS)
    return dict(zip(found.words, found.vectors.tolist(), strict=True))


def test_whole_words_get_their_rows(tmp_path: Path) -> None:
    """Special tokens and parts of words are left out."""
    rows = {"ant": 2, "bee": 4, "cat": 5, "pad": 6}
    assert found_in(write(tmp_path)) == {word: TABLE[i].tolist() for word, i in rows.items()}


@pytest.mark.parametrize("start", ["▁", "Ġ"])
def test_a_mark_at_the_start_of_a_word_is_removed(start: str, tmp_path: Path) -> None:
    """SentencePiece stores [token, score] pairs; without the mark a token continues a word."""
    tokens = ["[PAD]", "[UNK]", f"{start}ant", "s", "bee", f"{start}Cat", f"{start}dog"]
    listed = [[token, -1.5] for token in tokens]
    wanted = {"ant": TABLE[2].tolist(), "cat": TABLE[5].tolist(), "dog": TABLE[6].tolist()}
    assert found_in(write(tmp_path / "list", tokens=listed)) == wanted
    numbered = {token: i for i, token in enumerate(tokens)}
    assert found_in(write(tmp_path / "dict", tokens=numbered)) == wanted


def test_mapped_tokens_share_rows(tmp_path: Path) -> None:
    """A model of fewer rows than tokens: the row of token i is mapping[i]."""
    mapping = np.array([0, 0, 2, 1, 2, 0, 1], np.int64)
    table = TABLE[:3].astype(np.float16)
    data = mapping.tobytes() + table.tobytes() + np.ones(7, np.float64).tobytes()
    header = {
        "__metadata__": {"format": "pt"},
        "mapping": entry("I64", [7], 0, 56),
        "embeddings": entry("F16", [3, 3], 56, 74),
        "weights": entry("F64", [7], 74, 130),
    }
    path = write(tmp_path, content=safetensors(header, data))
    rows = {"ant": 2, "bee": 2, "cat": 0, "pad": 1}
    assert found_in(path) == {word: TABLE[i].tolist() for word, i in rows.items()}


def test_every_number_type_is_read(tmp_path: Path) -> None:
    """bfloat16 is the upper half of a float32."""
    numbers = np.array([[1.5, -2.0], [0.0, 96.0]])
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I8": "i1", "I32": "<i4", "U64": "<u8"}
    for dtype, kind in kinds.items():
        wanted = np.abs(numbers).astype(kind)
        header = {"x": entry(dtype, [2, 2], 0, wanted.nbytes)}
        (tmp_path / "x.safetensors").write_bytes(safetensors(header, wanted.tobytes()))
        found = read_tensors(tmp_path / "x.safetensors")["x"]
        assert found.dtype == np.dtype(kind)
        np.testing.assert_array_equal(found, wanted)
    upper = numbers.astype("<f4").view("<u2")[:, 1::2]
    header = {"x": entry("BF16", [2, 2], 0, 8), "none": entry("F32", [0, 4], 8, 8)}
    (tmp_path / "x.safetensors").write_bytes(safetensors(header, upper.tobytes()))
    tensors = read_tensors(tmp_path / "x.safetensors")
    np.testing.assert_array_equal(tensors["x"], numbers.astype(np.float32))
    assert tensors["none"].shape == (0, 4)


def test_the_fingerprint_covers_both_files(tmp_path: Path) -> None:
    path = write(tmp_path)
    first = read_vectors(path, WORDS).fingerprint
    tokens = {token: i for i, token in enumerate(TOKENS)}
    write(tmp_path, tokens={**tokens, "ant": 4, "bee": 2})
    second = read_vectors(path, WORDS).fingerprint
    write(tmp_path, content=path.read_bytes()[:-1] + b"\x42")
    assert len({first, second, read_vectors(path, WORDS).fingerprint}) == 3


DATA = TABLE.tobytes()
FAULTS = {
    "empty": (b"", "is truncated or no safetensors file"),
    "not safetensors": (b"ant 1 2 3 4 5\n", "is truncated or no safetensors file"),
    "endless header": (struct.pack("<Q", 2**63) + b"{}", "is truncated or no safetensors file"),
    "header is no JSON": (safetensors(b"{]", b""), "the header is not JSON"),
    "header is not UTF-8": (safetensors(b'{"\xff": 1}', b""), "the header is not UTF-8"),
    "header is a list": (safetensors(b"[]", b""), "the header is no JSON object"),
    "truncated": (
        safetensors({"embeddings": entry("F32", [7, 3], 0, 84)}, DATA[:-4]),
        "has 80 bytes of numbers, its header announces 84",
    ),
    "longer": (
        safetensors({"embeddings": entry("F32", [7, 3], 0, 84)}, DATA + b"xy"),
        "has 86 bytes of numbers, its header announces 84",
    ),
    "shape": (
        safetensors({"embeddings": entry("F32", [7, 4], 0, 84)}, DATA),
        "tensor 'embeddings': 84 bytes do not fit the shape",
    ),
    "gap": (
        safetensors({"embeddings": entry("F32", [6, 3], 12, 84)}, DATA),
        "tensor 'embeddings' begins at byte 12, expected 0",
    ),
    "negative": (
        safetensors({"embeddings": entry("F32", [7, -3], 0, 84)}, DATA),
        "shape and data_offsets are no whole numbers",
    ),
    "dtype": (
        safetensors({"embeddings": entry("F8_E4M3", [7, 12], 0, 84)}, DATA),
        "dtype 'F8_E4M3' is not one of F64",
    ),
    "no offsets": (
        safetensors({"embeddings": {"dtype": "F32", "shape": [7, 3]}}, DATA),
        "tensor 'embeddings' needs dtype, shape and data_offsets",
    ),
    "other tensors": (
        safetensors({"weight": entry("F32", [7, 3], 0, 84)}, DATA),
        "has no tensor 'embeddings', so it is no model2vec model; its first of 1 is 'weight'",
    ),
    "one dimension": (
        safetensors({"embeddings": entry("F32", [21], 0, 84)}, DATA),
        "tensor 'embeddings' has 1 dimensions, expected 2",
    ),
    "fewer rows than tokens": (
        safetensors({"embeddings": entry("F32", [3, 7], 0, 84)}, DATA),
        "has vectors for 3 tokens, tokenizer.json has 7",
    ),
    "mapping beyond the table": (
        safetensors(
            {"embeddings": entry("F32", [7, 3], 0, 84), "mapping": entry("I8", [7], 84, 91)},
            DATA + bytes([0, 1, 2, 3, 4, 5, 7]),
        ),
        "tensor 'mapping' points beyond the 7 rows",
    ),
    "mapping of fractions": (
        safetensors(
            {"embeddings": entry("F32", [7, 3], 0, 84), "mapping": entry("F32", [1], 84, 88)},
            DATA + bytes(4),
        ),
        "tensor 'mapping' is not a list of whole numbers",
    ),
    "not finite": (
        safetensors(
            {"embeddings": entry("F32", [7, 3], 0, 84)},
            np.where(TABLE == 8, np.nan, TABLE).astype("<f4").tobytes(),
        ),
        "the vector of 'ant' has a number that is not finite",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_model_is_refused(fault: str, tmp_path: Path) -> None:
    content, message = FAULTS[fault]
    path = write(tmp_path)
    path.write_bytes(content)
    with pytest.raises(TrainingError, match=rf"train\.vectors: .*model\.safetensors.*{message}"):
        read_vectors(path, WORDS)


VOCABULARIES = {
    "missing": (None, "tokenizer.json: cannot be read: No such file"),
    "no JSON": ("{", "tokenizer.json: is not JSON"),
    "a list": ("[]", "tokenizer.json: has no vocabulary at model.vocab"),
    "no model": ('{"model": {}}', "tokenizer.json: has no vocabulary at model.vocab"),
    "ids of text": ('{"model": {"vocab": {"ant": "1"}}}', "does not give each token an id"),
    "negative id": ('{"model": {"vocab": {"ant": -1}}}', "does not give each token an id"),
    "bare tokens": ('{"model": {"vocab": ["ant"]}}', "has no vocabulary at model.vocab"),
    "unknown words": ('{"model": {"vocab": {"elk": 0}}}', "has a vector for no word"),
}


@pytest.mark.parametrize("fault", VOCABULARIES)
def test_an_unusable_vocabulary_is_refused(fault: str, tmp_path: Path) -> None:
    content, message = VOCABULARIES[fault]
    path = write(tmp_path)
    path.with_name("tokenizer.json").unlink()
    if content is not None:
        path.with_name("tokenizer.json").write_text(content)
    with pytest.raises(TrainingError, match=message):
        read_vectors(path, WORDS)


WANTED = ["ant", "bee", "cat", "été", "日本"]
ANT, BEE = [0.5, -1.25, 3e-5], [1.0, 2.0, -3.0]


def line(word: str, numbers: list[float]) -> str:
    return f"{word} {' '.join(map(str, numbers))}"


def text_write(path: Path, *lines: str) -> Path:
    content = "".join(f"{text}\n" for text in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("name", ["a.vec", "a.txt", "a.vec.gz"])
@pytest.mark.parametrize("end", ["", " "], ids=["plain", "with a last space"])
def test_words_get_their_numbers(name: str, header: bool, end: str, tmp_path: Path) -> None:
    """word2vec and fastText write a header and may end lines with a space; GloVe has neither."""
    lines = [line("bee", BEE) + end, line("elk", [9, 9, 9]) + end, line("ant", ANT) + end]
    path = text_write(tmp_path / name, *(["3 3"] if header else []), *lines)
    found = read_vectors(path, WANTED)
    assert found.words == ["ant", "bee"]
    np.testing.assert_array_equal(found.vectors, np.array([ANT, BEE], np.float32))
    numbers = np.array([text.split()[1:] for text in lines], np.float64)
    assert found.vectors.dtype == np.float32
    np.testing.assert_array_equal(found.vectors, numbers[[2, 0]].astype(np.float32))


def test_the_exact_spelling_wins_then_the_first(tmp_path: Path) -> None:
    """Files keep case and Unicode forms apart; words are normalised and lowercase."""
    path = text_write(
        tmp_path / "a.vec",
        line("Ant", [1]), line("ANT", [2]), line("ant", [3]), line("ant", [4]),
        line("BEE", [5]), line("Bee", [6]),
        line("E\u0301te\u0301", [7]),  # decomposed
        line("日本", [8]),
        line("cat.", [9]), line("</s>", [9]),  # not words as the featuriser writes them
    )  # fmt: skip
    found = read_vectors(path, [*WANTED, "s"])
    assert dict(zip(found.words, found.vectors[:, 0].tolist(), strict=True)) == {
        "ant": 3, "bee": 5, "été": 7, "日本": 8,
    }  # fmt: skip


def test_words_with_spaces_are_left_out(tmp_path: Path) -> None:
    """GloVe has such words; the first part of one must not get shifted numbers."""
    path = text_write(tmp_path / "a.txt", line("bee", BEE), line("ant hill", ANT), line(". .", ANT))
    assert read_vectors(path, WANTED).words == ["bee"]


def test_zero_vectors_are_no_vectors(tmp_path: Path) -> None:
    path = text_write(tmp_path / "a.txt", line("bee", BEE), line("ant", [0, 0, 0]))
    assert read_vectors(path, WANTED).words == ["bee"]
    with pytest.raises(TrainingError, match=r"a\.txt has a vector for no word of the collection"):
        read_vectors(path, ["ant", "cat"])


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    plain = text_write(tmp_path / "a.vec", line("ant", ANT))
    other = text_write(tmp_path / "b.vec", line("ant", ANT), line("elk", ANT))
    prints = [read_vectors(path, WANTED).fingerprint for path in (plain, other)]
    assert prints[0] != prints[1]
    assert (
        read_vectors(text_write(tmp_path / "a.vec.gz", line("ant", ANT)), WANTED).fingerprint
        == (prints[0])
    )


TEXT_FAULTS = {
    "short line": (b"ant 1 2\nbee 1\n", r"2: expected a word and 2 numbers, got 1 numbers"),
    "one word": (b"ant\n", r"1: expected a word and its numbers"),
    "blank": (b"\n\n", r"1: expected a word and its numbers"),
    "not a number": (b"ant 1 x\n", r"1: the vector of 'ant': could not convert"),
    "nan": (b"ant 1 nan\n", r"1: the vector of 'ant' has a number that is not finite"),
    "infinite": (b"1 2\nant -inf 1\n", r"2: the vector of 'ant' has a number that is not finite"),
    "too large": (b"ant 1e39 1\n", r"1: the vector of 'ant' has a number that is not finite"),
    "not UTF-8": (b"ant 1 2\n\xff\xfe 1 2\n", r"2: is not UTF-8; binary files .* saved as text"),
    "fewer than announced": (b"3 2\nant 1 2\nbee 1 2\n", r"has 2 vectors, .* announces 3"),
    "more than announced": (b"1 2\nant 1 2\nbee 1 2\n", r"has 2 vectors, .* announces 1"),
    "empty": (b"", r"has a vector for no word"),
    "header alone": (b"0 3\n", r"has a vector for no word"),
}


@pytest.mark.parametrize("fault", TEXT_FAULTS)
def test_a_damaged_file_is_refused(fault: str, tmp_path: Path) -> None:
    content, message = TEXT_FAULTS[fault]
    (tmp_path / "a.vec").write_bytes(content)
    with pytest.raises(TrainingError, match=rf"train\.vectors: .*a\.vec.*{message}"):
        read_vectors(tmp_path / "a.vec", WANTED)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    path = text_write(
        tmp_path / "a.vec.gz", *(line(f"w{i}", [i, 1 / (i + 1)]) for i in range(3000))
    )
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"ant 1 2\n"):
        path.write_bytes(content)
        with pytest.raises(TrainingError, match=r"a\.vec\.gz:\d+: cannot be read"):
            read_vectors(path, ["w0"])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"nothing\.vec:1: cannot be read"):
        read_vectors(tmp_path / "nothing.vec", WANTED)
