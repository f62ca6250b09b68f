"""Texts of links: documents are found by nine in ten of them, validation asks for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.errors import CollectionError
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.training.validation import typed_queries
from tests.planted import write_lines, write_qrels

TITLES = ["Install it", "Configure the server", "Write a plugin", "Upgrade", "Get help", "Licence"]
DOCUMENTS = [
    {
        "_id": f"p{i}",
        "title": title,
        "text": f"# {title} now\n\nThis page says how. More of {title}.",
    }
    for i, title in enumerate(TITLES)
]


def read(folder: Path, anchors: str | None = None) -> Collection:
    write_lines(folder / "corpus.jsonl", DOCUMENTS)
    write_qrels(folder / "qrels" / "train.tsv", [("p0", "p1"), ("p1", "p2")])
    if anchors is not None:
        (folder / "anchors.tsv").write_text(anchors)
    return read_collection(folder)


def anchors_of(lines: list[tuple[str, str]]) -> str:
    return "anchor\tcorpus-id\n" + "".join(f"{text}\t{id}\n" for text, id in lines)


def test_documents_are_read_with_the_texts_of_their_links(tmp_path: Path) -> None:
    lines = [(f"setup {i}", "p0") for i in range(40)] + [("setup 7", "p0"), ("gone", "p9")]
    found = read(tmp_path, anchors_of(lines))
    learned = str(found.documents[0].fields["anchors"]).split("\n")
    assert 25 <= len(learned) < 40
    assert "anchors" not in found.documents[1].fields
    assert {*learned} | {*found.anchors} >= {text for text, id in lines if id == "p0"}
    assert not {*learned} & {*found.anchors}
    assert [v.name for v in found.fields if v.is_read] == ["title", "text", "anchors"]
    assert "setup" in count_collection(found, processes=1).counts.words


def test_typed_queries_are_parts_of_documents_and_anchors_that_none_has(tmp_path: Path) -> None:
    corpus = count_collection(
        read(tmp_path, anchors_of([(f"go {i}", "p2") for i in range(60)])), processes=1
    )
    found, kinds = typed_queries(corpus)
    assert found is not None
    assert found.texts is not None
    assert kinds.count("anchor") == len(corpus.collection.anchors) > 0
    assert len(kinds) == len(found.texts) == len(TITLES) + kinds.count("anchor")
    assert kinds == sorted(kinds)
    for kind, text, judgement in zip(kinds, found.texts, found.judgements, strict=True):
        [row] = judgement.relevant.tolist()
        fields = corpus.collection.documents[row].fields
        whole = " ".join(f"{fields['title']} {fields['text']}".split())
        if kind == "anchor":
            assert text.startswith("go ")
            assert row == 2
        elif kind == "keywords":
            assert {*text.split()} <= {*whole.split()}
            assert all(len(word) >= 4 for word in text.split())
        else:
            assert text in whole
    again, _ = typed_queries(corpus)
    assert again is not None
    assert again.texts == found.texts


def test_a_name_is_asked_for_like_a_title(tmp_path: Path) -> None:
    documents = [{"_id": d["_id"], "name": d["title"], "text": d["text"]} for d in DOCUMENTS]
    write_lines(tmp_path / "corpus.jsonl", documents)
    write_qrels(tmp_path / "qrels" / "train.tsv", [("p0", "p1"), ("p1", "p2")])
    named, titled = (
        typed_queries(count_collection(found, processes=1))
        for found in (read_collection(tmp_path), read(tmp_path / "titled"))
    )
    assert named[1] == titled[1]
    assert named[0] is not None
    assert titled[0] is not None
    assert named[0].texts == titled[0].texts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text\tid\n", "anchors.tsv:1: expected the header anchor<TAB>corpus-id"),
        ("anchor\tcorpus-id\nsetup\n", "anchors.tsv:2: expected anchor<TAB>corpus-id"),
    ],
)
def test_what_is_no_table_of_anchors_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CollectionError, match=message):
        read(tmp_path, text)
