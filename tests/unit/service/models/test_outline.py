"""The outline of a bundle: fields to filter by, and examples of queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fullrank.bundle import Bundle, open_bundle
from fullrank.storage.documents import Document
from fullrank_service.models.outline import FieldOutline, outline_of
from tests.bundles import make_bundle


def bundle_of(root: Path, fields: list[dict[str, Any]], **changes: Any) -> Bundle:
    documents = [Document(f"d{i}", {"text": "x", **more}) for i, more in enumerate(fields)]
    return open_bundle(root / "one" / make_bundle(root, "one", documents, **changes))


def test_fields_have_their_kinds_and_how_many_values_differ(tmp_path: Path) -> None:
    fields: list[dict[str, Any]] = [
        {"tag": ["a", "b"], "year": 1999},
        {"tag": "a", "year": True},
        {"meta": {"x": 1}},
    ]
    outline = outline_of(bundle_of(tmp_path, fields))
    assert outline.fields == {
        "text": FieldOutline(("keyword",), 1),
        "tag": FieldOutline(("keyword",), 2),
        "year": FieldOutline(("boolean", "number"), 3),
    }


def test_numbers_and_times_have_bounds(tmp_path: Path) -> None:
    fields: list[dict[str, Any]] = [
        {
            "price": 2.5,
            "day": "2026-11-23",
            "at": "2026-11-23T01:00:00+02:00",
            "mixed": "2026-01-01",
        },
        {"price": [-1, 7], "day": ["2024-02-29", "2025-01-01"], "at": "2026-11-22T23:30:00Z"},
        {"mixed": "tea", "code": "1999-x", "flag": True},
    ]
    outline = outline_of(bundle_of(tmp_path, fields))
    found = {name: (field.min, field.max) for name, field in outline.fields.items()}
    assert found == {
        "text": (None, None),
        "price": (-1.0, 7.0),
        "day": ("2024-02-29T00:00:00+00:00", "2026-11-23T00:00:00+00:00"),
        # The later text is the earlier time.
        "at": ("2026-11-22T23:00:00+00:00", "2026-11-22T23:30:00+00:00"),
        "mixed": (None, None),
        "code": (None, None),
        "flag": (None, None),
    }


def test_examples_are_different_short_titles_of_several_words(tmp_path: Path) -> None:
    titles = ["one", "two words", "two words", "y" * 41, "three short words", "no", "a last title"]
    outline = outline_of(bundle_of(tmp_path, [{"title": title} for title in titles]))
    assert outline.examples == ("two words", "three short words", "a last title")


def test_single_words_are_examples_where_there_is_nothing_else(tmp_path: Path) -> None:
    outline = outline_of(bundle_of(tmp_path, [{"title": "one"}, {"title": "two words"}, {}]))
    assert outline.examples == ("one", "two words")


def test_without_titles_examples_are_values_of_the_first_field_that_is_read(tmp_path: Path) -> None:
    verdicts = [{"name": name, "is_read": name != "sku"} for name in ("sku", "name", "brand")]
    card = {"trained": {"collection": {"fields": verdicts}}}
    products = [{"sku": "B-1", "name": "Rain boots", "brand": "Acme"}, {"sku": "B-2"}]
    outline = outline_of(bundle_of(tmp_path, products, card=card))
    assert outline.examples == ("Rain boots",)


def test_examples_come_from_all_over_a_large_bundle(tmp_path: Path) -> None:
    outline = outline_of(bundle_of(tmp_path, [{"title": f"title {i}"} for i in range(600)]))
    numbers = [int(example.split()[1]) for example in outline.examples]
    assert numbers == sorted(numbers)
    assert [number // 200 for number in numbers] == [0, 1, 2]
