"""Which fields are read: the rule on a shop in three languages, schema.json, and the fields asked for."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.schema import MAX_FIELDS, choose_fields, field_uses
from fullrank_trainer.collection.store import StoredDocuments
from tests.planted import write_lines
from tests.shop import shop, write_shop

LETTERS = "abcdefghijklmnopqrstuvwxy"
READ = ["title", "text", "brand", "category", "colour"]


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
        "tags": "lists",
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
            '{"fields": {"tags": "text"}}',
            "schema.json: field 'tags' cannot be read: document 'p0000' has lists there; "
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
