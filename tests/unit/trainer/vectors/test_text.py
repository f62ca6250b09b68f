"""Word vectors in the text formats: what is read, which spelling counts, and one error for each fault."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fullrank.errors import TrainingError
from fullrank_trainer.vectors import read_vectors

WANTED = ["ant", "bee", "cat", "été", "日本"]
ANT, BEE = [0.5, -1.25, 3e-5], [1.0, 2.0, -3.0]


def line(word: str, numbers: list[float]) -> str:
    return f"{word} {' '.join(map(str, numbers))}"


def write(path: Path, *lines: str) -> Path:
    content = "".join(f"{text}\n" for text in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("name", ["a.vec", "a.txt", "a.vec.gz"])
@pytest.mark.parametrize("end", ["", " "], ids=["plain", "with a last space"])
def test_words_get_their_numbers(name: str, header: bool, end: str, tmp_path: Path) -> None:
    """word2vec and fastText write a header and may end lines with a space; GloVe has neither."""
    lines = [line("bee", BEE) + end, line("elk", [9, 9, 9]) + end, line("ant", ANT) + end]
    path = write(tmp_path / name, *(["3 3"] if header else []), *lines)
    found = read_vectors(path, WANTED)
    assert found.words == ["ant", "bee"]
    np.testing.assert_array_equal(found.vectors, np.array([ANT, BEE], np.float32))
    numbers = np.array([text.split()[1:] for text in lines], np.float64)
    assert found.vectors.dtype == np.float32
    np.testing.assert_array_equal(found.vectors, numbers[[2, 0]].astype(np.float32))


def test_the_exact_spelling_wins_then_the_first(tmp_path: Path) -> None:
    """Files keep case and Unicode forms apart; words are normalised and lowercase."""
    path = write(
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
    path = write(tmp_path / "a.txt", line("bee", BEE), line("ant hill", ANT), line(". .", ANT))
    assert read_vectors(path, WANTED).words == ["bee"]


def test_zero_vectors_are_no_vectors(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", line("bee", BEE), line("ant", [0, 0, 0]))
    assert read_vectors(path, WANTED).words == ["bee"]
    with pytest.raises(TrainingError, match=r"a\.txt has a vector for no word of the collection"):
        read_vectors(path, ["ant", "cat"])


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.vec", line("ant", ANT))
    other = write(tmp_path / "b.vec", line("ant", ANT), line("elk", ANT))
    prints = [read_vectors(path, WANTED).fingerprint for path in (plain, other)]
    assert prints[0] != prints[1]
    assert (
        read_vectors(write(tmp_path / "a.vec.gz", line("ant", ANT)), WANTED).fingerprint
        == (prints[0])
    )


FAULTS = {
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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_file_is_refused(fault: str, tmp_path: Path) -> None:
    content, message = FAULTS[fault]
    (tmp_path / "a.vec").write_bytes(content)
    with pytest.raises(TrainingError, match=rf"train\.vectors: .*a\.vec.*{message}"):
        read_vectors(tmp_path / "a.vec", WANTED)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.vec.gz", *(line(f"w{i}", [i, 1 / (i + 1)]) for i in range(3000)))
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"ant 1 2\n"):
        path.write_bytes(content)
        with pytest.raises(TrainingError, match=r"a\.vec\.gz:\d+: cannot be read"):
            read_vectors(path, ["w0"])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"nothing\.vec:1: cannot be read"):
        read_vectors(tmp_path / "nothing.vec", WANTED)
