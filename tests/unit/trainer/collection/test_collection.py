"""The collection reader: what it keeps, counts and refuses, and its error messages."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import CollectionError
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.training.validation import typed_queries
from tests.planted import write_lines, write_qrels
from tests.random_cases import cases

HEADER = "query-id\tcorpus-id\tscore\n"


def lines(*items: object) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


CORPUS = lines(
    {"_id": "b", "title": "Bee", "text": "second", "legs": 6},
    {"_id": "a", "title": "Ant", "text": "first"},
)
QUERIES = lines({"_id": "q1", "text": "one"}, {"_id": "q2", "text": "two"})
FILES: dict[str, str | bytes] = {
    "corpus.jsonl": CORPUS,
    "queries.jsonl": QUERIES,
    "qrels/train.tsv": HEADER + "q1\ta\t1\n",
    "qrels/test.tsv": HEADER + "q2\tb\t2\n",
}


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def read(folder: Path, **changed: str | bytes) -> Collection:
    return read_collection(write(folder, {**FILES, **changed}))


def test_documents_come_in_id_order_with_their_fields(tmp_path: Path) -> None:
    collection = read(tmp_path)
    assert [document.id for document in collection.documents] == ["a", "b"]
    assert collection.documents[1].fields == {"title": "Bee", "text": "second", "legs": 6}
    assert collection.queries is not None
    assert [(query.id, query.text) for query in collection.queries] == [
        ("q1", "one"),
        ("q2", "two"),
    ]
    assert collection.splits == ("train", "test")
    assert collection.qrels("test") == {"q2": {"b": 2}}
    assert not collection.documents_are_queries
    assert not collection.has_mates
    assert collection.report.as_dict() == {
        "documents": 2,
        "queries": 2,
        "judgements": {"train": 1, "test": 1},
        "unknown_ids": 0,
        "unknown_examples": [],
        "empty_documents": 0,
        "empty_queries": 0,
        "repeated_judgements": 0,
        "other_queries": 0,
        "self_links": 0,
        "zero_grades": 0,
        "values_without_judgement": 0,
        "queries_without_judgements": 0,
        "blank_lines": 0,
    }
    assert collection.report.remarks() == []


def test_gzip_reads_the_same_and_has_the_same_fingerprint(tmp_path: Path) -> None:
    plain = read(tmp_path / "plain")
    zipped = read_collection(
        write(tmp_path / "zipped", {f"{name}.gz": content for name, content in FILES.items()})
    )
    assert zipped.documents == plain.documents
    assert all(zipped.qrels(split) == plain.qrels(split) for split in plain.splits)
    assert zipped.fingerprint == plain.fingerprint


@pytest.mark.parametrize("name", FILES)
def test_any_change_changes_the_fingerprint(tmp_path: Path, name: str) -> None:
    before = read(tmp_path).fingerprint
    content = FILES[name]
    assert isinstance(content, str)
    changed = content.replace("first", "fist").replace("two", "too").replace("1\n", "3\n")
    changed = changed.replace("2\n", "3\n")
    assert changed != content
    assert read(tmp_path, **{name: changed}).fingerprint != before


def test_the_corpus_may_lie_one_folder_up(tmp_path: Path) -> None:
    files = {name if name == "corpus.jsonl" else f"en/{name}": text for name, text in FILES.items()}
    write(tmp_path, files)
    assert len(read_collection(tmp_path / "en").documents) == 2


def test_without_queries_the_documents_are_the_queries(tmp_path: Path) -> None:
    write(tmp_path, {"corpus.jsonl": CORPUS, "qrels/train.tsv": HEADER + "a\tb\t1\nb\tb\t1\n"})
    collection = read_collection(tmp_path)
    assert collection.documents_are_queries
    assert collection.has_mates
    assert collection.queries is None
    assert collection.qrels("train") == {"a": {"b": 1}}
    assert collection.report.self_links == 1
    assert collection.report.queries_without_judgements == 1


MATES: dict[str, str | bytes] = {
    "corpus.jsonl": CORPUS + lines({"_id": "c", "text": "third"}),
    "qrels/train.tsv": HEADER + "a\tb\t1\nb\ta\t1\nb\tc\t1\nb\tb\t1\n",
    "qrels/test.tsv": HEADER + "a\tc\t1\n",
    "ja/queries.jsonl": lines({"_id": "b", "title": "ミツバチ", "text": "二番"}),
}


def test_descriptions_of_documents_inherit_the_judgements_of_their_mates(tmp_path: Path) -> None:
    collection = read_collection(write(tmp_path, MATES) / "ja")
    assert collection.queries is not None
    assert [(query.id, query.text) for query in collection.queries] == [("b", "ミツバチ\n二番")]
    assert collection.has_mates
    assert not collection.documents_are_queries
    assert collection.splits == ("train", "test")
    assert collection.qrels("train") == {"b": {"a": 1, "c": 1}}
    assert collection.qrels("test") == {}
    assert collection.report.other_queries == 2
    assert collection.report.self_links == 1
    assert collection.report.judgements == {"train": 2, "test": 0}
    assert "2 judgements of documents without a query here, left out" in (
        collection.report.remarks()
    )
    assert collection.fingerprint != read_collection(tmp_path).fingerprint


def test_the_folder_above_may_link_to_a_corpus_elsewhere(tmp_path: Path) -> None:
    """The qrels of the linking folder count, not those next to the linked corpus."""
    write(tmp_path / "far", MATES)
    near = {name: text for name, text in MATES.items() if name != "corpus.jsonl"}
    write(tmp_path / "near", {**near, "qrels/train.tsv": HEADER + "b\tc\t1\n"})
    (tmp_path / "near" / "corpus.jsonl").symlink_to(tmp_path / "far" / "corpus.jsonl")
    collection = read_collection(tmp_path / "near" / "ja")
    assert collection.qrels("train") == {"b": {"c": 1}}


def test_inherited_judgements_are_read_as_strictly(tmp_path: Path) -> None:
    changed: dict[str, str | bytes] = {"qrels/test.tsv": HEADER + "z\tc\t1\n"}
    with pytest.raises(CollectionError, match=r"test\.tsv:2: field 'query-id': unknown id 'z'"):
        read_collection(write(tmp_path, {**MATES, **changed}) / "ja", strict=True)
    assert read_collection(tmp_path / "ja").report.unknown_ids == 1


def test_queries_with_and_without_a_mate_are_refused(tmp_path: Path) -> None:
    changed = MATES["ja/queries.jsonl"]
    assert isinstance(changed, str)
    changed += lines({"_id": "x", "text": "?"})
    with pytest.raises(CollectionError, match=r"'x' is no document\. .* \(1 of 2 have none\)"):
        read_collection(write(tmp_path, {**MATES, "ja/queries.jsonl": changed}) / "ja")


@pytest.mark.parametrize(
    "changed",
    [
        {"ja/qrels/train.tsv": HEADER + "b\tb\t1\n"},  # its own qrels: a mate is an ordinary answer
        {"queries.jsonl": lines({"_id": "a", "text": "x"}, {"_id": "b", "text": "x"})},
        {"ja/queries.jsonl": lines({"_id": "x", "text": "?"})},
        {"ja/corpus.jsonl": CORPUS},
    ],
    ids=["own qrels", "the parent judges queries", "no mates", "own corpus"],
)
def test_other_folders_do_not_inherit_judgements(
    tmp_path: Path, changed: dict[str, str | bytes]
) -> None:
    collection = read_collection(write(tmp_path, {**MATES, **changed}) / "ja")
    assert not collection.has_mates
    if "ja/qrels/train.tsv" in changed:
        assert collection.qrels("train") == {"b": {"b": 1}}
    else:
        assert collection.splits == ()


def test_oddities_are_counted(tmp_path: Path) -> None:
    corpus = CORPUS + "\n" + lines({"_id": "c", "title": "Sea", "text": " "}, {"_id": "d"})
    queries = QUERIES + lines({"_id": "q3", "text": ""})
    qrels = HEADER + "q1\ta\t1\nq1\ta\t1\nq1\tb\t0\r\n\nq1\tc\t-1\n"
    report = read(
        tmp_path, **{"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels/train.tsv": qrels}
    ).report
    assert report.empty_documents == 2
    assert report.empty_queries == 1
    assert report.repeated_judgements == 1
    assert report.zero_grades == 2
    assert report.blank_lines == 2
    assert report.queries_without_judgements == 1
    assert report.judgements == {"train": 3, "test": 1}
    assert len(report.remarks()) == 6


SURROGATE = '{"_id": "x", "text": "\\ud800"}\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", CORPUS + "{oops\n", "corpus.jsonl:3: is not JSON (character 2)"),
        ("corpus.jsonl", CORPUS + "[1]\n", "corpus.jsonl:3: expected a JSON object, got list"),
        ("corpus.jsonl", CORPUS + "null\n", "corpus.jsonl:3: expected a JSON object, got null"),
        ("corpus.jsonl", lines({"text": "x"}), "corpus.jsonl:1: field '_id': missing"),
        ("corpus.jsonl", lines({"_id": " "}), "corpus.jsonl:1: field '_id': empty"),
        ("corpus.jsonl", lines({"_id": 7}), "corpus.jsonl:1: field '_id': expected a string, got int"),
        (
            "corpus.jsonl",
            lines({"_id": "a\tb"}),
            "corpus.jsonl:1: field '_id': 'a\\tb' has a tab, newline or control character",
        ),
        ("corpus.jsonl", CORPUS + lines({"_id": "b"}), "corpus.jsonl:3: field '_id': 'b' is already the id of line 1"),
        ("corpus.jsonl", lines({"_id": "a", "text": 7}), "corpus.jsonl:1: field 'text': expected a string, got int"),
        (
            "corpus.jsonl",
            lines({"_id": "a", "title": None}),
            "corpus.jsonl:1: field 'title': expected a string, got null",
        ),
        ("corpus.jsonl", CORPUS + SURROGATE, "corpus.jsonl:3: field 'text' holds a lone surrogate"),
        ("corpus.jsonl", CORPUS + '{"_id": NaN}\n', "corpus.jsonl:3: holds NaN, which is not a JSON number"),
        (
            "corpus.jsonl",
            CORPUS + '{"_id": "x", "year": 1, "year": 2}\n',
            "corpus.jsonl:3: holds the key 'year' twice in one object",
        ),
        (
            "corpus.jsonl",
            CORPUS.encode() + '{"_id": "é"}\n'.encode("latin-1"),
            "corpus.jsonl:3: is not UTF-8 at byte 10",
        ),
        ("corpus.jsonl", "\ufeff" + CORPUS, "corpus.jsonl:1: starts with a byte order mark"),
        ("corpus.jsonl", CORPUS.encode("utf-16"), "corpus.jsonl:1: is not UTF-8"),
        ("corpus.jsonl", "", "corpus.jsonl: no documents"),
        ("queries.jsonl", "", "queries.jsonl: no queries"),
        ("queries.jsonl", lines({"_id": "q1"}), "queries.jsonl:1: field 'text': missing"),
        (
            "queries.jsonl",
            lines({"_id": "q1", "title": 7, "text": "x"}),
            "queries.jsonl:1: field 'title': expected a string, got int",
        ),
        (
            "queries.jsonl",
            QUERIES + lines({"_id": "q2", "text": "again"}),
            "queries.jsonl:3: field '_id': 'q2' is already the id of line 2",
        ),
        ("qrels/test.tsv", "", "test.tsv: empty; the header line is missing"),
        ("qrels/test.tsv", "q1\ta\t1\n", "test.tsv:1: expected the header"),
        ("qrels/test.tsv", "query-id corpus-id score\n", "test.tsv:1: expected the header"),
        ("qrels/test.tsv", HEADER + "q1\ta\n", "test.tsv:2: expected 3 tab-separated columns, got 2"),
        (
            "qrels/test.tsv",
            HEADER + "q1\ta\t1.5\n",
            "test.tsv:2: field 'score': expected an integer of at most 9 digits, got '1.5'",
        ),
        (
            "qrels/test.tsv",
            HEADER + "q1\ta\t1\nq1\ta\t2\n",
            "test.tsv:3: field 'score': 'q1' 'a' was judged 1 above, now 2",
        ),
        ("qrels/test.tsv", HEADER.encode() + b"q\xff\ta\t1\n", "test.tsv:2: not valid UTF-8 at byte 2 of the line"),
    ],
)  # fmt: skip
def test_malformed_input_is_refused_with_file_line_and_field(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(CollectionError) as caught:
        read(tmp_path, **{name: content})
    assert str(caught.value).startswith(str(tmp_path))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("corpus.jsonl", lines({"_id": "a"}), "'a' is already the id of line 2"),
        ("corpus.jsonl", "no JSON\n", "is not JSON"),
        ("corpus.jsonl", lines({"text": "no id"}), "field '_id': missing"),
        ("queries.jsonl", lines({"_id": "q1", "text": ""}), "'q1' is already the id of line 1"),
        ("qrels/test.tsv", "q2\tb\n", "expected 3 tab-separated columns, got 2"),
        ("qrels/test.tsv", "q2\tb\tx\n", "expected an integer of at most 9 digits, got 'x'"),
        ("qrels/test.tsv", "q2\tb\t1\n", "'q2' 'b' was judged 2 above, now 1"),
        ("qrels/test.tsv", "q2\tz\t1\n", "unknown id 'z'"),
    ],
)
def test_one_reading_counts_all_wrong_lines_and_names_ten(
    tmp_path: Path, name: str, wrong: str, message: str
) -> None:
    content = FILES[name]
    assert isinstance(content, str)
    folder = write(tmp_path, {**FILES, name: content + 12 * wrong})
    with pytest.raises(CollectionError) as caught:
        read_collection(folder, strict=True)
    first = len(content.splitlines()) + 1
    shown = [str(caught.value), *caught.value.__notes__]
    assert len(shown) == 10
    for number, line in enumerate(shown, first):
        assert line.startswith(f"{folder / name}:{number}: ")
        assert message in line
    assert shown[0].endswith(" (12 lines are wrong)")


UNKNOWN = "q1\ta\t1\nq9\ta\t1\nq1\tz\t1\nq1\ty\t2\nq8\tx\t1\n"


def test_judgements_of_unknown_ids_are_skipped_and_counted(tmp_path: Path) -> None:
    collection = read(tmp_path, **{"qrels/train.tsv": HEADER + UNKNOWN})
    assert collection.qrels("train") == {"q1": {"a": 1}}
    assert collection.report.judgements == {"train": 1, "test": 1}
    assert collection.report.unknown_ids == 4
    assert collection.report.remarks() == [
        "4 judgements of unknown ids, skipped: "
        "'q9' (train.tsv:3), 'z' (train.tsv:4), 'y' (train.tsv:5), …"
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q9\ta\t1\n", "test.tsv:2: field 'query-id': unknown id 'q9'"),
        ("q1\tz\t1\n", "test.tsv:2: field 'corpus-id': unknown id 'z'"),
    ],
)
def test_strict_reading_refuses_unknown_ids(tmp_path: Path, line: str, message: str) -> None:
    folder = write(tmp_path, {**FILES, "qrels/test.tsv": HEADER + line})
    with pytest.raises(CollectionError, match=message):
        read_collection(folder, strict=True)


def test_a_skipped_judgement_must_still_be_well_formed(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="expected an integer of at most 9 digits, got 'x'"):
        read(tmp_path, **{"qrels/test.tsv": HEADER + "q9\ta\tx\n"})


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {name: text for name, text in FILES.items() if name != "corpus.jsonl"})
    whole = gzip.compress(CORPUS.encode() * 50)
    for damaged in (b"plain text", whole[: len(whole) // 2], whole[:12] + b"\xff" + whole[13:]):
        (tmp_path / "corpus.jsonl.gz").write_bytes(damaged)
        with pytest.raises(CollectionError, match=r"corpus\.jsonl\.gz"):
            read_collection(tmp_path)


def test_missing_and_ambiguous_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="no such folder"):
        read_collection(tmp_path / "absent")
    table = write(tmp_path / "shop", {"products.csv": "name\nboots\n"}) / "products.csv"
    with pytest.raises(CollectionError, match=r"products\.csv: a file, not a folder") as caught:
        read_collection(table)
    assert "docs/guides/search/fields.md" in caught.value.__notes__[0]
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    with pytest.raises(CollectionError, match=r"no corpus\.jsonl"):
        read_collection(tmp_path / "empty" / "deep")
    write(tmp_path, {**FILES, "corpus.jsonl.gz": CORPUS})
    with pytest.raises(CollectionError, match=r"both corpus\.jsonl and corpus\.jsonl\.gz"):
        read_collection(tmp_path)


def test_an_unknown_split_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="no split 'dev'; there are: train, test"):
        read(tmp_path).qrels("dev")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
IDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=6)


@pytest.mark.sweep
@cases(20)
@given(
    documents=st.dictionaries(
        IDS,
        st.fixed_dictionaries({"title": TEXT, "text": TEXT}, optional={"more": JSON}),
        min_size=1,
    )
)
def test_any_corpus_round_trips(
    tmp_path_factory: pytest.TempPathFactory, documents: dict[str, dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    text = "".join(
        json.dumps({"_id": id, **fields}, ensure_ascii=False) + "\n"
        for id, fields in documents.items()
    )
    write(folder, {"corpus.jsonl": text})
    collection = read_collection(folder)
    assert {document.id: document.fields for document in collection.documents} == {
        id: {n: v for n, v in fields.items() if not isinstance(v, str) or v.strip()}
        for id, fields in documents.items()
    }
    assert [document.id for document in collection.documents] == sorted(documents)


SWEEP = pytest.mark.sweep


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "documents", "queries", "judgements"),
    [
        ("tldr/en", 7425, 28919, None),
        pytest.param("wikispeedia", 4598, None, {"train": 71700, "valid": 6053, "test": 30061}, marks=SWEEP),
        pytest.param("debian", 63435, None, {"train": 120882, "valid": 10254, "test": 50188}, marks=SWEEP),
        pytest.param("debian/ja", 63435, 6514, {"train": 15069, "valid": 1357, "test": 6326}, marks=SWEEP),
    ],
)  # fmt: skip
def test_the_shared_collections_read_whole(
    data_dir: Path,
    name: str,
    documents: int,
    queries: int | None,
    judgements: dict[str, int] | None,
) -> None:
    collection = read_collection(data_dir / name)
    assert len(collection.documents) == documents
    assert (collection.queries and len(collection.queries)) == queries
    if judgements is not None:
        assert collection.report.judgements == judgements


TITLES = ["Install it", "Configure the server", "Write a plugin", "Upgrade", "Get help", "Licence"]
DOCUMENTS = [
    {
        "_id": f"p{i}",
        "title": title,
        "text": f"# {title} now\n\nThis page says how. More of {title}.",
    }
    for i, title in enumerate(TITLES)
]


def anchors_read(folder: Path, anchors: str | None = None) -> Collection:
    write_lines(folder / "corpus.jsonl", DOCUMENTS)
    write_qrels(folder / "qrels" / "train.tsv", [("p0", "p1"), ("p1", "p2")])
    if anchors is not None:
        (folder / "anchors.tsv").write_text(anchors)
    return read_collection(folder)


def anchors_of(lines: list[tuple[str, str]]) -> str:
    return "anchor\tcorpus-id\n" + "".join(f"{text}\t{id}\n" for text, id in lines)


def test_documents_are_read_with_the_texts_of_their_links(tmp_path: Path) -> None:
    lines = [(f"setup {i}", "p0") for i in range(40)] + [("setup 7", "p0"), ("gone", "p9")]
    found = anchors_read(tmp_path, anchors_of(lines))
    learned = str(found.documents[0].fields["anchors"]).split("\n")
    assert 25 <= len(learned) < 40
    assert "anchors" not in found.documents[1].fields
    assert {*learned} | {*found.anchors} >= {text for text, id in lines if id == "p0"}
    assert not {*learned} & {*found.anchors}
    assert [v.name for v in found.fields if v.is_read] == ["title", "text", "anchors"]
    assert "setup" in count_collection(found, processes=1).counts.words


def test_typed_queries_are_parts_of_documents_and_anchors_that_none_has(tmp_path: Path) -> None:
    corpus = count_collection(
        anchors_read(tmp_path, anchors_of([(f"go {i}", "p2") for i in range(60)])), processes=1
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


def test_what_passages_repeat_of_their_page_is_no_typed_query(tmp_path: Path) -> None:
    shared = {"page": "Whole page", "page_context": "words that all passages of a page share"}
    write_lines(tmp_path / "corpus.jsonl", [d | shared for d in DOCUMENTS])
    write_qrels(tmp_path / "qrels" / "train.tsv", [("p0", "p1"), ("p1", "p2")])
    plain, passages = (
        typed_queries(count_collection(found, processes=1))[0]
        for found in (anchors_read(tmp_path / "plain"), read_collection(tmp_path))
    )
    assert plain is not None
    assert passages is not None
    assert passages.texts == plain.texts


def test_a_name_is_asked_for_like_a_title(tmp_path: Path) -> None:
    documents = [{"_id": d["_id"], "name": d["title"], "text": d["text"]} for d in DOCUMENTS]
    write_lines(tmp_path / "corpus.jsonl", documents)
    write_qrels(tmp_path / "qrels" / "train.tsv", [("p0", "p1"), ("p1", "p2")])
    named, titled = (
        typed_queries(count_collection(found, processes=1))
        for found in (read_collection(tmp_path), anchors_read(tmp_path / "titled"))
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
        anchors_read(tmp_path, text)
