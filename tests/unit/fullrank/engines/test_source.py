"""Names of versions, vectors of documents and queries, and models that no engine can score."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fullrank import Bundle, open_bundle
from fullrank.engines.source import Source, as_json, identifier, outdated
from fullrank.errors import ExportError
from fullrank.models.expansion import ExpansionModel
from fullrank.progress import Reporter
from tests.bundles import make_bundle
from tests.unit.fullrank.engines.truth import QUERIES, true_scores


def test_joined_vectors_multiply_to_the_score(bundle: Bundle, report: Reporter) -> None:
    source = Source.of(bundle)
    width = source.n_terms + source.n_dense
    entries = [entry for batch in source.batches(report) for entry in batch]
    assert [entry.row for entry in entries] == list(range(len(bundle.documents)))
    for text in QUERIES:
        query = np.zeros(width)
        features, weights = source.joined(source.encode(text))
        query[features] = weights
        for entry, score in zip(entries, true_scores(bundle, text), strict=True):
            features, weights = source.joined(entry)
            assert query[features] @ weights == pytest.approx(score, abs=1e-9)


def test_stored_fields_of_one_kind_can_be_filtered_by(bundle: Bundle) -> None:
    fields = Source.of(bundle).filter_fields
    assert {name: (field.kind, field.is_list) for name, field in fields.items()} == {
        "title": ("keyword", False),
        "text": ("keyword", False),
        "section": ("number", False),
        "tags": ("keyword", True),
        "is_open": ("boolean", False),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [("shop", "shop"), ("Shop.search-EN", "shop_search_en"), ("2024", "b_2024"), ("日本", "b_")],
)
def test_identifiers_fit_every_engine(name: str, expected: str) -> None:
    assert identifier(name) == expected


def test_a_version_is_named_after_the_bundle_id(bundle: Bundle) -> None:
    assert Source.of(bundle).versioned == f"my_shop_{bundle.bundle_id[:12]}"
    assert Source.of(bundle, "other").versioned == f"other_{bundle.bundle_id[:12]}"
    longest = Source.of(bundle, "x" * 200).versioned
    assert len(longest) < 63


def test_the_new_and_the_replaced_version_are_kept(bundle: Bundle) -> None:
    source = Source.of(bundle)
    names = [f"my_shop_{digit * 12}" for digit in "123"]
    others = ["my_shop", "my_shop_notes", "my_shop_two_" + "1" * 12, "your_shop_" + "1" * 12]
    assert outdated(source, names[0], [*names, *others, source.versioned]) == names[1:]
    assert outdated(source, None, names) == names
    # The same version again replaces nothing.
    assert outdated(source, source.versioned, names) == []


def test_float32_is_printed_as_short_as_possible_and_read_back_equal() -> None:
    numbers = np.array([0.1, -1e-7, 3.4e38, 16777216, 1 / 3], np.float32)
    text = as_json(numbers)
    assert text.startswith("[0.1,")
    assert np.array_equal(np.array(json.loads(text), np.float32), numbers)


def test_a_model_with_a_scorer_is_refused(tmp_path: Path) -> None:
    version = make_bundle(tmp_path, "mine", wrap=lambda base: ExpansionModel(base, 0.5, 5))
    opened = open_bundle(tmp_path / "mine" / version)
    with pytest.raises(ExportError, match="kind 'expansion' computes its scores itself"):
        Source.of(opened)
