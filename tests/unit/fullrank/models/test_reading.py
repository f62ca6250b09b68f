"""Documents that are read once give the counts of documents that are read anew."""

from __future__ import annotations

from typing import Any

import pytest

from fullrank.highlight import split_fields
from fullrank.models.reading import DocumentReading, SplitDocuments

DOCUMENTS: list[dict[str, Any]] = [
    {"title": "red apple", "text": "a red red apple, 東京都", "year": 7, "maker": "Zenith apple"},
    {"title": "pear", "maker": ""},
    {"text": "Apple pear", "title": None},
]


@pytest.mark.parametrize("names", [[], ["title"], ["text", "maker", "title", "year"]])
@pytest.mark.parametrize("most", [3, 100])
def test_split_documents_have_the_counts_of_the_whole_ones(names: list[str], most: int) -> None:
    split = split_fields(DOCUMENTS, names, most)
    reading = SplitDocuments(DOCUMENTS, split.words, split.complete)
    for columns in ([["title"], ["text"]], [["title", "text", "maker", "year", "nowhere"]]):
        found, plain = reading.counts(columns), DocumentReading(DOCUMENTS).counts(columns)
        assert len(found.words) == len(set(found.words))
        assert len(found.columns) == len(columns)
        for own, expected in zip(found.columns, plain.columns, strict=True):
            for i in range(len(DOCUMENTS)):
                [counted, wanted] = [
                    {words[j]: value for j, value in zip(*rows.row(i), strict=True)}
                    for words, rows in ((found.words, own), (plain.words, expected))
                ]
                assert counted == wanted
