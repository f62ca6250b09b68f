"""A corpus file read in the order of ids: what it keeps, refuses and leaves behind."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from fullrank.errors import CollectionError
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.collection.corpus import CorpusFile
from fullrank_trainer.collection.demo import split_of, write_demo_collection

LINES = [
    json.dumps({"_id": f"d{i:02}", "title": f"Title {i}", "text": "é日本\u2028🙂 " * i, "n": i})
    for i in range(30)
]
SHUFFLED = random.Random(1).sample(LINES, len(LINES))
ODD = ["", *SHUFFLED[:7], "  ", "", *SHUFFLED[7:]]


@pytest.mark.parametrize("lines", [LINES, LINES[::-1], SHUFFLED, ODD, LINES[:1]])
@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("packed", [False, True])
def test_a_corpus_file_gives_the_documents_of_a_collection(
    lines: list[str], end: str, packed: bool, tmp_path: Path
) -> None:
    content = ("\n".join(lines) + end).encode()
    path = tmp_path / ("corpus.jsonl.gz" if packed else "corpus.jsonl")
    path.write_bytes(gzip.compress(content) if packed else content)
    expected = read_collection(tmp_path)
    for given in (path, tmp_path):
        with CorpusFile(given, scratch=tmp_path) as corpus:
            assert len(corpus) == len(expected.documents)
            assert list(corpus.documents()) == expected.documents
            assert corpus.document(len(corpus) - 1) == expected.documents[-1]
            assert corpus.report.empty_documents == expected.report.empty_documents
            assert corpus.report.blank_lines == expected.report.blank_lines
            # A gzipped file is unpacked into an anonymous file.
            assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_fingerprint_depends_on_the_content_only(tmp_path: Path) -> None:
    content = "\n".join(LINES).encode()
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.jsonl").write_bytes(content + b"\n")
    found = []
    for path in sorted(tmp_path.iterdir()):
        with CorpusFile(path) as corpus:
            found.append(corpus.fingerprint)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"_id": "d03", "text": ""}', ":31: field '_id': 'd03' is already the id of line 4"),
        ('{"_id": "", "text": ""}', ":31: field '_id': empty"),
        ('{"text": ""}', ":31: field '_id': missing"),
        ('{"_id": "x", "text": 7}', ":31: field 'text': expected a string, got int"),
        ("[]", ":31: expected a JSON object"),
        ("{", ":31: is not JSON"),
        (
            '{"_id": "x", "text": "", "a": [18446744073709551616]}',
            ":31: field 'a' holds an integer of more than 64 bits",
        ),
        (
            '{"_id": "x", "text": "", "a": -9223372036854775809}',
            ":31: field 'a' holds an integer of more than 64 bits",
        ),
    ],
)
def test_malformed_lines_are_refused_like_in_a_collection(
    line: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join([*LINES, line]), "utf-8")
    with pytest.raises(CollectionError) as raised:
        CorpusFile(path)
    assert f"{path}{reason}" in str(raised.value)


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_no_documents_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"\n") if name.endswith("gz") else b"\n")
    with pytest.raises(CollectionError, match="no documents"):
        CorpusFile(path)


@pytest.mark.parametrize("given", ["absent.jsonl", "absent.jsonl.gz", "."])
def test_a_missing_corpus_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(CollectionError):
        CorpusFile(tmp_path / given)


def test_a_damaged_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(LINES * 1).encode())[:-40])
    with pytest.raises(CollectionError, match="cannot be read"):
        CorpusFile(path)


def test_a_corpus_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(LINES), "utf-8")
    with CorpusFile(path) as corpus:
        path.write_text("x" * 10_000)
        with pytest.raises(CollectionError, match="changed while it was read"):
            list(corpus.documents())


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    content = "".join(f'{{"_id": "{i:03}", "text": "apple"}}\n' for i in reversed(range(300)))
    plain = tmp_path / "plain.jsonl"
    plain.write_text(content)
    reader, writer = os.pipe()
    os.write(writer, content.encode())
    os.close(writer)
    with CorpusFile(plain) as expected, CorpusFile(f"/dev/fd/{reader}") as found:
        os.close(reader)
        assert found.fingerprint == expected.fingerprint
        assert list(found.documents()) == list(expected.documents())


def test_numbers_keep_their_type(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    numbers = [2**64 - 1, -(2**63), 1e300, 0.1234567890123456789, "1" * 30]
    path.write_text(json.dumps({"_id": "a", "text": "", "numbers": numbers}))
    with CorpusFile(path) as corpus:
        assert corpus.document(0).fields["numbers"] == numbers


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return read_collection(write_demo_collection(tmp_path_factory.mktemp("demo")))


@pytest.fixture(scope="module")
def document_texts(demo: Collection) -> dict[str, str]:
    """The text of each document; a text that is no string is left out."""
    texts = ((document.id, document.fields["text"]) for document in demo.documents)
    return {id: text for id, text in texts if isinstance(text, str)}


def judged(demo: Collection, query: str) -> Mapping[str, int]:
    return demo.qrels(split_of(query))[query]


@pytest.mark.sweep
def test_the_demo_has_about_2500_documents_and_no_oddities(demo: Collection) -> None:
    assert 2000 <= len(demo.documents) <= 3500
    assert demo.queries is not None
    assert 2000 <= len(demo.queries) <= len(demo.documents)
    assert demo.report.remarks() == []
    texts = [document.fields["text"] for document in demo.documents]
    assert len(set(texts)) == len(texts)


def test_a_docstring_is_split_into_sentence_text_and_see_also(
    demo: Collection, document_texts: dict[str, str]
) -> None:
    assert demo.queries is not None
    texts = {query.id: query.text for query in demo.queries}
    assert texts["summary/scipy.signal.convolve"] == "Convolve two N-dimensional arrays."
    text = document_texts["scipy.signal.convolve"]
    assert "Convolve two N-dimensional arrays." not in text
    assert "See Also" not in text
    assert "Parameters\n----------" in text
    grades = judged(demo, "summary/scipy.signal.convolve")
    assert grades["scipy.signal.convolve"] == 2
    assert grades["scipy.signal.fftconvolve"] == 1
    assert grades["numpy.polymul"] == 1


def test_a_signature_line_is_not_the_first_sentence(demo: Collection) -> None:
    assert demo.queries is not None
    texts = {query.id: query.text for query in demo.queries}
    assert texts["summary/numpy.sin"] == "Trigonometric sine, element-wise."


def test_no_first_sentence_is_indexed_at_the_head_of_its_document(
    demo: Collection, document_texts: dict[str, str]
) -> None:
    assert demo.queries is not None
    for query in demo.queries:
        for id, grade in judged(demo, query.id).items():
            if grade == 2:
                assert not document_texts[id].startswith(query.text)


def test_every_query_has_its_own_docstring(demo: Collection) -> None:
    assert demo.queries is not None
    for query in demo.queries:
        assert 2 in judged(demo, query.id).values()


def test_the_split_is_about_80_10_10_and_disjoint(demo: Collection) -> None:
    assert demo.splits == ("train", "valid", "test")
    counts = {split: len(demo.qrels(split)) for split in demo.splits}
    total = sum(counts.values())
    assert demo.queries is not None
    assert total == len(demo.queries)
    assert 0.07 < counts["test"] / total < 0.13
    assert 0.07 < counts["valid"] / total < 0.13


@pytest.mark.sweep
def test_the_same_versions_give_the_same_bytes(
    demo: Collection, tmp_path_factory: pytest.TempPathFactory
) -> None:
    again: Path = write_demo_collection(tmp_path_factory.mktemp("again"))
    for file in sorted(demo.path.rglob("*.*")):
        assert file.read_bytes() == (again / file.relative_to(demo.path)).read_bytes()
