"""What a set records is merged from what its shards record."""

from __future__ import annotations

from fullrank_fleet.jobs.facts import Facts, FieldFacts, ValueSample
from fullrank_fleet.sets.words import SetWords
from fullrank_service.models.outline import FieldOutline, Outline


def test_facts_of_shards_are_merged() -> None:
    first = {
        "size": FieldFacts(ValueSample(3, 3, [1, 5, 9]), {"number": (-1.0, 4.0)}),
        "day": FieldFacts(ValueSample(1, 1, [3]), {"keyword": (0.0, 0.0)}),
        "x": FieldFacts(ValueSample(1, 1, [2]), {"keyword": (0.0, 60.0)}),
    }
    second = {
        "size": FieldFacts(ValueSample(2, 2, [4, 6]), {"keyword": None}),
        "text": FieldFacts(ValueSample(2, 2, [7, 8]), {"keyword": None}),
        "day": FieldFacts(ValueSample(2, 2, [3, 4]), {"keyword": (0.0, 86400.0)}),
        "x": FieldFacts(ValueSample(2, 2, [2, 9]), {"keyword": None}),
    }
    found = Facts.merged(
        [
            Facts(
                {"size": ["number"], "text": {"refused": "long"}, "x": ["keyword"], "day": []},
                ["x"],
                False,
                {"size": 3, "x": 2},
                first,
                ("a b", "c"),
            ),
            Facts(
                {"size": ["keyword"], "text": ["keyword"], "x": ["keyword"], "day": []},
                ["size", "x"],
                True,
                {"size": 2},
                second,
                ("a b", "d e", "f g"),
            ),
            Facts({}, [], False, {}),
        ]
    )
    assert found.outline == Outline(
        {
            "size": FieldOutline(("number", "keyword"), 5),
            "day": FieldOutline(
                ("keyword",), 2, "1970-01-01T00:00:00+00:00", "1970-01-02T00:00:00+00:00"
            ),
            "x": FieldOutline(("keyword",), 2),
        },
        ("a b", "d e", "f g"),
    )
    assert found.values == {"size": 5, "x": 2}
    assert found.columns == {
        "size": ["keyword", "number"],
        "text": {"refused": "long"},
        "x": ["keyword"],
        "day": [],
    }
    assert (found.time_fields, found.has_ads) == (["size", "x"], True)
    assert Facts.parse(found.dump()) == found


def test_words_of_shards_are_merged() -> None:
    shards = [SetWords(["b", "d"], [1, 5]), SetWords(["a", "b"], [5, 9]), SetWords()]
    found = SetWords.merged(shards)
    assert found == SetWords(["a", "b", "d"], [1, 5, 9])
    assert SetWords.parse(found.dump()) == found
