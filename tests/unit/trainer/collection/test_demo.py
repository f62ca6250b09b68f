"""The demo collection has the right size and form, and documents do not contain their queries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.collection.demo import split_of, write_demo_collection


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
