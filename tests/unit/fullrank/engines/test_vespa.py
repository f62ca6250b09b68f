"""Feed files, schemas and bodies for Vespa, read as its documentation describes them.

`score` computes the expression of the rank profile from the tensors of a document and a request.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from fullrank import Bundle
from fullrank.engines.source import Source
from fullrank.engines.vespa import Queries, schema_text, write_feed
from fullrank.progress import Reporter
from tests.unit.fullrank.engines.truth import QUERIES, assert_is_top

CELL = re.compile(r"\{term:(\d+)\}:(-?[\d.]+(?:e-?\d+)?)")


def fed(bundle: Bundle, folder: Path, report: Reporter) -> list[dict[str, Any]]:
    feed, schema = write_feed(Source.of(bundle), folder / "shop.jsonl", report)
    assert schema.read_text() == schema_text(Source.of(bundle))
    return [json.loads(line) for line in feed.read_text("utf-8").splitlines()]


def mapped(literal: str) -> dict[str, float]:
    """Parse the literal form of a tensor with one mapped dimension."""
    assert literal.startswith("{")
    assert literal.endswith("}")
    cells = {label: float(value) for label, value in CELL.findall(literal)}
    rest = CELL.sub("", literal[1:-1])
    assert rest == "," * (len(cells) - 1)
    return cells


def score(body: dict[str, Any], fields: dict[str, Any]) -> float:
    """sum(query(s) * attribute(terms)) + sum(query(u) * attribute(dense))"""
    terms, s = fields["terms"]["cells"], mapped(body["input.query(s)"])
    shared = sum(np.float32(s[label]) * np.float32(terms[label]) for label in s.keys() & terms)
    u, dense = body["input.query(u)"], fields["dense"]["values"]
    assert len(u) == len(dense)
    return float(shared + np.array(u, np.float32) @ np.array(dense, np.float32))


def test_the_rank_profile_finds_the_best_documents(
    bundle: Bundle, tmp_path: Path, report: Reporter
) -> None:
    operations = fed(bundle, tmp_path, report)
    for text in QUERIES:
        body = Queries(bundle).request(text, 7, offset=5)
        assert body["yql"] == f"select id, fields from sources {Queries(bundle).schema} where true"
        found = [(item["fields"]["id"], score(body, item["fields"])) for item in operations]
        found.sort(key=lambda pair: -pair[1])
        page = found[body["offset"] : body["offset"] + body["hits"]]
        assert_is_top(bundle, text, page, 7, 5)


def test_documents_follow_the_schema(bundle: Bundle, tmp_path: Path, report: Reporter) -> None:
    operations, name = fed(bundle, tmp_path, report), Source.of(bundle).versioned
    declared = dict(re.findall(r"field (\w+) type (\S+) \{", schema_text(Source.of(bundle))))
    assert declared == {
        "id": "string",
        "fields": "string",
        "terms": "tensor<float>(term{})",
        "words": "weightedset<int>",
        "dense": "tensor<float>(x[6])",
        "stored_title": "string",
        "stored_text": "string",
        "stored_section": "double",
        "stored_tags": "array<string>",
        "stored_is_open": "bool",
    }
    for row, operation in enumerate(operations):
        id, stored = bundle.documents.ids[row], bundle.documents.fields(row)
        fields = operation["fields"]
        assert operation["put"] == f"id:fullrank:{name}::{id}"
        assert fields["id"] == id
        assert json.loads(fields["fields"]) == stored
        assert fields.keys() <= declared.keys()
        assert fields["stored_section"] == stored["section"]
        assert fields.get("stored_tags", []) == stored["tags"]
        assert fields["stored_is_open"] is stored["is_open"]
        assert all(isinstance(steps, int) and steps > 0 for steps in fields["words"].values())


def test_a_model_without_a_dense_part_has_no_neighbours(words_only: Bundle) -> None:
    text = schema_text(Source.of(words_only))
    assert "hnsw" not in text
    assert "tensor<float>(x[1])" in text
    yql = Queries(words_only).request("olddoor", mode="fast")["yql"]
    assert "nearestNeighbor" not in yql
    assert "wand(words, [[" in yql


def test_candidates_are_words_and_neighbours_within_the_filter(bundle: Bundle) -> None:
    body = Queries(bundle).request("redapple", mode="fast", filter="stored_section = 1")
    where = body["yql"].partition(" where ")[2]
    [(feature, weight)] = zip(*(part.tolist() for part in bundle.encode("redapple").sparse.row(0)),
                              strict=True)  # fmt: skip
    assert where == (
        f"(({{targetHits: 200}}wand(words, [[{feature}, {round(weight * 1000)}]])) or "
        "({targetHits: 200}nearestNeighbor(dense, u))) and (stored_section = 1)"
    )
    exact = Queries(bundle).request("redapple", filter="stored_section = 1")["yql"]
    assert exact.endswith(" where (true) and (stored_section = 1)")
