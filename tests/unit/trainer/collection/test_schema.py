"""Which fields are read, kinds of values, tables of judgements and weights, the store of documents."""

from __future__ import annotations

import gc
import json
import os
import tracemalloc
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.collection.pairs import ById, Ids, PairReader, Repeat
from fullrank_trainer.collection.schema import MAX_FIELDS, Kind, choose_fields, field_uses, kind_of
from fullrank_trainer.collection.store import StoredDocuments
from tests.planted import write_lines
from tests.random_cases import cases
from tests.shop import shop, write_shop

LETTERS = "abcdefghijklmnopqrstuvwxy"
READ = ["title", "text", "brand", "category", "colour", "tags"]


@pytest.mark.parametrize("languages", [("en",), ("ja",), ("ar",), ("en", "ja", "ar")])
def test_a_shop_is_searched_by_names_and_categories_only(languages: tuple[str, ...]) -> None:
    found = choose_fields(shop(*languages))
    assert [verdict.name for verdict in found if verdict.is_read] == READ
    reasons = {verdict.name: verdict.reason for verdict in found if not verdict.is_read}
    expected = {
        "sku": "codes",
        "date": "dates",
        "image": "links",
        "file": "paths and dotted names",
        "price": "numbers",
        "isbn": "numbers",
        "contact": "e-mail addresses",
        "size": "short codes",
        "in_stock": "yes or no",
        "handle": "ids",
        "currency": "the same in every document",
        "shop": "the same in every document",
        "empty": "no words",
        "stock": "numbers",
        "boxes": "lists",
        "on_sale": "true or false",
        "shipping": "objects",
        "rating": "text and numbers",
        "note": "no words",
    }
    assert {name: reasons[name] for name in expected} == expected
    assert "codes" in reasons["hash"]
    one = len(languages) == 1
    assert reasons["language"] == ("the same in every document" if one else "short codes")


def test_the_verdict_does_not_depend_on_the_order_of_fields_or_chance() -> None:
    documents = shop("en", "ja", size=60)
    backwards = [Document(d.id, dict(reversed(list(d.fields.items())))) for d in documents]
    found = {verdict.name: verdict for verdict in choose_fields(documents)}
    assert {verdict.name: verdict for verdict in choose_fields(backwards)} == found
    assert [v.name for v in choose_fields(backwards)][:2] == ["title", "text"]


def test_labels_are_words_if_they_repeat_and_ids_if_not() -> None:
    for values, is_read in (
        (["NIKE", "ADIDAS", "PUMA"] * 5, True),
        ([f"{a}{b}QZT" for a in "ABCD" for b in "EFGH"], False),
        (["mens-running-shoes", "womens-rain-jackets"] * 5, True),
        ([f"blue-{a}-shoe" for a in ("fine", "cheap", "rare", "new")], False),
    ):
        documents = [Document(f"{i:03}", {"f": value}) for i, value in enumerate(values)]
        [verdict] = choose_fields(documents)
        assert verdict.is_read == is_read, verdict


def test_half_of_the_distinct_values_must_be_words() -> None:
    """One frequent code does not outvote the names, and one frequent name does not outvote the codes."""
    names, codes = ["Anna Weber", "Ben Koch", "Carla Ruiz"], ["A1", "B22", "C333"]
    for values, is_read, reason in (
        ([*names, *codes], True, "50 % words"),
        ([*names[:2], *codes], False, "60 % codes"),
        ([*names, *["A1"] * 50], True, "75 % words"),
        ([*["Anna Weber"] * 50, *codes], False, "75 % codes"),
    ):
        documents = [Document(f"{i:03}", {"f": value}) for i, value in enumerate(values)]
        [verdict] = choose_fields(documents)
        assert (verdict.is_read, verdict.reason) == (is_read, reason)


def test_a_long_field_is_judged_on_an_even_sample() -> None:
    """The first thousand values alone would be the wrong half."""
    values = [f"C{i}" for i in range(1000)]
    values += [
        f"name {a}{b}{c}{d}" for a in "abcdef" for b in "abcde" for c in LETTERS for d in "abcd"
    ]
    assert len(values) == 4000
    documents = [Document(f"{i:05}", {"f": value}) for i, value in enumerate(values)]
    [verdict] = choose_fields(documents)
    assert (verdict.is_read, verdict.reason) == (True, "75 % words")


def test_a_field_that_some_documents_lack_is_read_even_if_it_has_one_value() -> None:
    documents = [Document("a", {"text": "x", "note": "discontinued"}), Document("b", {"text": "y"})]
    assert field_uses(choose_fields(documents))["read"] == "text (always read), note (words)"


def test_the_rule_reads_at_most_so_many_fields() -> None:
    """Fields that the most documents have come first; a schema or --fields may read more."""
    many = {f"f{i:02}": f"word {'abcdefghij'[i % 10]}" for i in range(MAX_FIELDS + 5)}
    documents = [
        Document("a", {"title": "t", **many}),
        Document("b", dict.fromkeys(list(many)[10:], "other words")),
    ]
    found = choose_fields(documents)
    read = [verdict.name for verdict in found if verdict.is_read]
    assert len(read) == MAX_FIELDS
    assert set(read) == {"title", *list(many)[10:], *list(many)[:4]}
    assert (
        f"f09 (beyond {MAX_FIELDS} text fields: name it to read it)" in field_uses(found)["stored"]
    )
    assert all(v.is_read for v in choose_fields(documents, None, ["title", *many]))


def shop_with(folder: Path, schema: str | bytes) -> Path:
    write_shop(folder)
    (folder / "schema.json").write_bytes(schema.encode() if isinstance(schema, str) else schema)
    return folder


def read_fields(folder: Path, fields: list[str] | None = None) -> list[str]:
    return [v.name for v in read_collection(folder, fields=fields).fields if v.is_read]


def test_asked_fields_beat_the_schema_and_the_schema_beats_the_rule(tmp_path: Path) -> None:
    schema = {"fields": {"sku": "text", "brand": "stored", "text": "stored", "tags": "stored"}}
    folder = shop_with(tmp_path, json.dumps(schema))
    assert read_fields(folder) == ["title", "sku", "category", "colour"]
    assert read_fields(folder, ["brand", "text"]) == ["brand", "text"]
    uses = {v.name: v.reason for v in read_collection(folder).fields}
    assert (uses["sku"], uses["brand"], uses["colour"]) == ("schema.json", "schema.json", "words")
    uses = {v.name: v.reason for v in read_collection(folder, fields=["brand"]).fields}
    assert (uses["brand"], uses["sku"]) == ("asked for", "not asked for")


def test_query_sets_share_the_schema_next_to_the_corpus(tmp_path: Path) -> None:
    folder = shop_with(tmp_path, '{"fields": {"sku": "text"}}')
    write_lines(folder / "en" / "queries.jsonl", [{"_id": "q", "text": "shoe"}])
    assert "sku" in read_fields(folder / "en")
    (folder / "en" / "schema.json").write_text('{"fields": {"isbn": "text"}}')
    assert "sku" not in read_fields(folder / "en")
    assert "isbn" in read_fields(folder / "en")


def test_the_fingerprint_covers_the_schema_and_the_fields_asked_for(tmp_path: Path) -> None:
    """So that --resume refuses the checkpoint of a training on other fields."""
    folder = write_shop(tmp_path)
    prints = [read_collection(folder).fingerprint]
    prints += [read_collection(folder, fields=names).fingerprint for names in (["title"], ["text"])]
    shop_with(tmp_path, '{"fields": {"sku": "text"}}')
    prints.append(read_collection(folder).fingerprint)
    assert len(set(prints)) == 4


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{oops", "schema.json: is not JSON (character 2)"),
        ("[]", "schema.json: is not a JSON object"),
        (b"\xff{}", "schema.json: is not UTF-8 at byte 1"),
        ("{}", "schema.json: field 'fields': expected an object such as"),
        ('{"fields": ["sku"]}', "schema.json: field 'fields': expected an object such as"),
        ('{"field": {}}', "schema.json: field 'field': unknown; there is only 'fields'"),
        ('{"fields": {}, "x": 1}', "schema.json: field 'x': unknown; there is only 'fields'"),
        (
            '{"fields": {"sku": "searched"}}',
            "schema.json: field 'sku': expected \"text\" or \"stored\", got 'searched'",
        ),
        ('{"fields": {"sku": true}}', 'field \'sku\': expected "text" or "stored", got True'),
        ('{"fields": {"sku": ["text"]}}', "field 'sku': expected \"text\" or \"stored\", got ['text']"),
        ('{"fields": {"sku": "text", "sku": "stored"}}', "schema.json: holds the key 'sku' twice"),
        (
            '{"fields": {"brnd": "text"}}',
            "schema.json: no document has a field 'brnd'; did you mean 'brand'?",
        ),
        (
            '{"fields": {"zzz": "stored"}}',
            "schema.json: no document has a field 'zzz'; there are: sku, date, image,",
        ),
        (
            '{"fields": {"boxes": "text"}}',
            "schema.json: field 'boxes' cannot be read: document 'p0000' has lists there; "
            "only text can be searched",
        ),
        ('{"fields": {"rating": "text"}}', "field 'rating' cannot be read: document 'p0001' has numbers"),
    ],
)  # fmt: skip
def test_a_bad_schema_is_refused_with_file_and_field(
    schema: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CollectionError) as error:
        read_collection(shop_with(tmp_path, schema))
    assert str(error.value).startswith(str(tmp_path / "schema.json"))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([], "fields: name at least one text field"),
        (["title", "brand", "title"], "fields: 'title' is given twice"),
        (["title", "brnd"], "fields: no document has a field 'brnd'; did you mean 'brand'?"),
        (["stock"], "fields: field 'stock' cannot be read: document 'p0000' has numbers there"),
    ],
)
def test_bad_fields_are_refused(asked: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(CollectionError) as error:
        read_collection(write_shop(tmp_path), fields=asked)
    assert message in str(error.value)


def test_texts_do_not_stay_in_memory() -> None:
    size = 100_000
    documents = StoredDocuments(
        Document(f"d{i:03}", {"text": f"{i} " + "word " * (size // 5)}) for i in range(200)
    )
    tracemalloc.start()
    try:
        [verdict] = choose_fields(documents)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert verdict.is_read
    # One text at a time, as bytes of the file, as a text and encoded to be hashed.
    assert most < 6 * size


QUERIES, DOCUMENTS = Ids(["q2", "q0", "q1", "q3"]), Ids(["a", "b", "c"])
LINES = st.lists(
    st.tuples(
        st.sampled_from([*QUERIES]), st.sampled_from([*DOCUMENTS]), st.integers(-2, 3)
    ),
    max_size=30,
)  # fmt: skip


def read(lines: list[tuple[str, str, int]]) -> tuple[ById, list[Repeat]]:
    reader = PairReader(QUERIES, DOCUMENTS, np.int32)
    for number, (query, document, value) in enumerate(lines, 2):
        reader.add(number, QUERIES.rows[query], DOCUMENTS.rows[document], value)
    pairs, grades, repeats = reader.pairs()
    return ById(QUERIES, DOCUMENTS, replace(pairs, grades=grades), "grades"), repeats


@given(LINES)
def test_a_table_is_the_dictionary_of_the_first_values(lines: list[tuple[str, str, int]]) -> None:
    wanted: dict[str, dict[str, int]] = {}
    again = []
    for number, (query, document, value) in enumerate(lines, 2):
        first = wanted.setdefault(query, {}).setdefault(document, value)
        again.append((number, QUERIES.rows[query], DOCUMENTS.rows[document], value, first))
    seen: set[tuple[int, ...]] = set()
    repeats = []
    for row in again:
        if row[1:3] in seen:
            repeats.append(row)
        seen.add(row[1:3])
    table, found = read(lines)
    assert table == wanted
    # The order counts, too: measures add up in it.
    assert [(query, [*pairs.items()]) for query, pairs in table.items()] == [
        (query, [*pairs.items()]) for query, pairs in wanted.items()
    ]
    assert [tuple(repeat) for repeat in found] == repeats
    assert table.pairs.grades is not None
    assert table.pairs.grades.dtype == np.int32
    for query in QUERIES:
        assert (query in table) == (query in wanted)
        assert table.get(query, {}) == wanted.get(query, {})


def test_unknown_queries_have_no_pairs() -> None:
    table, _ = read([("q0", "a", 1)])
    assert "nobody" not in table
    for query in ("nobody", "q1"):
        with pytest.raises(KeyError):
            table[query]


EXAMPLES: dict[Kind | None, list[str]] = {
    Kind.WORDS: [
        *("Nike", "Coca-Cola", "Dr. Oetker", "L'Oréal", "Müller", "Procter & Gamble"),
        *("Running shoes", "Home & Garden > Tools", "Home/Kitchen/Knives", "men-shoes", "utils"),
        *("red", "Blau", "赤", "青い", "أحمر", "красный", "शुद्ध लाल", "สีแดง", "빨강", "שחור"),
        *("iPhone 15", "Galaxy S23 Ultra", "Sony WH-1000XM4", "Canon EOS R5", "Windows 11"),
        *("iPhone用ケース2個入り", "حذاء رياضي مقاس 42", "12 Main St, Springfield, IL 62704"),
        "am start -n com.android.settings/.Settings ; am start -a android.intent.action.VIEW",
        "Warm and waterproof. See https://example.com/a and https://example.com/b for more.",
    ],
    Kind.LABELS: ["NIKE", "H&M", "RDSHXL", "mens-running-shoes", "running_shoes"],
    Kind.NUMBERS: [
        *("19,99 €", "$1,299.00", "EUR 12", "1,200円", "1 200 руб.", "١٢٫٥٠ ر.س", "5公斤", "３個"),
        *("12.5 kg", "10 x 20 x 30 cm", "10x20", "12 pcs", "+49 30 123456", "192.168.0.1"),
        *("978-3-16-148410-0", "0-306-40615-X", "4006381333931", "-5", "99%"),
    ],
    Kind.DATES: [
        *("2024-01-05", "2024-01-05T10:00:00Z", "05.01.2024", "1/5/24", "2024-01", "10:30 pm"),
        *("12 March 2024", "Mar 5, 2024", "5. März 2024", "5 de diciembre de 2023", "June 2024"),
        *("Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 2 January 2006", "1er janvier 2024"),
        *("2024年1月5日", "2024년 3월 1일", "٥/١/٢٠٢٤"),
    ],
    Kind.LINKS: ["https://x.de/a?b=c", "www.x.de", "//cdn.x.de/a", "data:image/png;base64,AAA"],
    Kind.EMAILS: ["jane.doe@example.com", "info@müller.de"],
    Kind.FILES: [
        *("img/red-shoe.jpg", "IMG_1234.PNG", "report final.pdf", "archive.tar.gz"),
        *("/var/lib/x", "C:\\x\\y", "../a/b", "example.com", "numpy.linalg", "写真.jpg"),
    ],
    Kind.FLAGS: ["yes", "No", "TRUE", "false"],
    Kind.SHORT: ["en", "de-AT", "USD", "XL", "S/M", "US, DE"],
    Kind.CODES: [
        *("AB-1234", "SKU-0012", "B00XYZ", "#ff00aa", "v1.2.3", "SW1A 1AA", "x11"),
        *("d41d8cd98f00b204e9800998ecf8427e", "550e8400-e29b-41d4-a716-446655440000"),
        "A12 B13 C14",
    ],
    None: ["", " \n", "-", "★★★★☆", "n/a", "NULL"],
}


@pytest.mark.parametrize(
    ("value", "kind"), [(value, kind) for kind, values in EXAMPLES.items() for value in values]
)
def test_a_value_has_the_kind_that_a_reader_sees(value: str, kind: Kind | None) -> None:
    assert kind_of(value) is kind
    assert kind_of(f"  {value}\n") is kind


@given(st.text(max_size=60))
def test_every_text_has_a_kind(text: str) -> None:
    # A sign of one character may stand for several: ㋀ is 1月.
    has_letter_or_digit = any(map(str.isalnum, unicodedata.normalize("NFKC", text)))
    if not has_letter_or_digit:
        assert kind_of(text) is None
    assert kind_of(text) is kind_of(text + " ")


def test_long_values_take_no_longer_than_their_first_characters() -> None:
    """A pattern that tries every way to split a text would take hours here."""
    for piece in ("a-", "a.", "a ", "1.", "a@", "1 a", "/a", "あ1", "-_"):
        assert kind_of(piece * 200) is kind_of(piece * 200_000)


FILES = {
    "corpus.jsonl": '{"_id": "a", "text": "first"}\n{"_id": "b", "text": "second"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n',
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t1\nq2\ta\t0\n",
}
HEADER = "query-id\tcorpus-id\tweight\n"


def weights_read(folder: Path, *, strict: bool = True, **files: str) -> Collection:
    named = {name.replace("__", "/") + ".tsv": text for name, text in files.items()}
    for name, text in {**FILES, **named}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return read_collection(folder, strict=strict)


def test_weights_and_people_are_read(tmp_path: Path) -> None:
    people = "query-id\tcorpus-id\tpeople\nq1\ta\t3\n"
    found = weights_read(tmp_path, weights__train=f"{HEADER}q1\ta\t.5e-1\n".replace(".5", "0.5"))
    assert found.weights == {"train": {"q1": {"a": 0.05}}}
    assert found.judgements["train"].people is None
    other = weights_read(tmp_path, people__train=people)
    train = other.judgements["train"]
    assert train.people is not None
    assert train.people.tolist() == [3, 0, 0]
    assert other.fingerprint != found.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "query-id\tcorpus-id\tscore\n",
            "train.tsv:1: expected the header 'query-id corpus-id weight'",
        ),
        ("", "empty; the header line is missing"),
        (f"{HEADER}q1\ta\n", "train.tsv:2: expected 3 tab-separated columns, got 2"),
        (f"{HEADER}q1\ta\t0\n", "train.tsv:2: field 'weight': expected a number above 0, got '0'"),
        (f"{HEADER}q1\ta\t-1\n", "expected a number above 0, got '-1'"),
        (f"{HEADER}q1\ta\tnan\n", "expected a number above 0, got 'nan'"),
        (f"{HEADER}q1\ta\t1e999\n", "expected a number above 0, got '1e999'"),
        (f"{HEADER}q1\ta\t1\nq1\ta\t2\n", "train.tsv:3: field 'weight': 'q1' 'a' had 1 above"),
        (f"{HEADER}q2\ta\t1\n", "train.tsv:2: 'q2' 'a' is not judged to be relevant"),
        (f"{HEADER}q9\ta\t1\n", "train.tsv:2: 'q9' 'a' is not judged to be relevant"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CollectionError) as raised:
        weights_read(tmp_path, weights__train=text)
    assert message in str(raised.value)


def test_weights_of_pairs_without_a_judgement_are_skipped_unless_strict(tmp_path: Path) -> None:
    found = weights_read(tmp_path, strict=False, weights__train=f"{HEADER}q1\tz\t1\nq1\tb\t2\n")
    assert found.weights == {"train": {"q1": {"b": 2}}}
    assert found.report.values_without_judgement == 1


def test_weights_need_judgements(tmp_path: Path) -> None:
    with pytest.raises(
        CollectionError, match=r"weights/recent.tsv:1: there is no qrels/recent.tsv"
    ):
        weights_read(tmp_path, weights__recent=HEADER)


def test_people_are_whole_numbers(tmp_path: Path) -> None:
    people = "query-id\tcorpus-id\tpeople\nq1\ta\t1.5\n"
    with pytest.raises(
        CollectionError, match=r"field 'people': expected a number above 0, got '1.5'"
    ):
        weights_read(tmp_path, people__train=people)


TEXTS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@cases(30)
@given(st.dictionaries(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=4), max_size=8))
def test_documents_come_back_in_order_of_id(given: dict[str, dict[str, Any]]) -> None:
    stored = StoredDocuments(Document(id, fields) for id, fields in given.items())
    wanted = [Document(id, given[id]) for id in sorted(given)]
    assert list(stored) == wanted
    assert stored == wanted
    assert stored.ids == sorted(given)
    assert stored[1:] == wanted[1:]
    assert [stored[i] for i in range(len(stored))] == wanted
    for document, other in zip(stored, wanted, strict=True):
        assert repr(document) == repr(other)  # 1, 1.0 and True are equal but not the same
    assert stored != [*wanted, Document("another", {})]


def test_the_file_is_closed_with_the_documents() -> None:
    stored = StoredDocuments([Document("a", {"title": "x"})])
    descriptor = stored._contents._file
    file = _file_of(descriptor)
    assert file is not None
    assert stored[0].fields == {"title": "x"}
    del stored
    gc.collect()
    # Another thread may have opened a file under the number since.
    assert _file_of(descriptor) != file


def _file_of(descriptor: int) -> tuple[int, int] | None:
    """Return device and inode of an open file; None for a number under which no file is open."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
