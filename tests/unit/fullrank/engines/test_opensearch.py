"""Bulk files and bodies for OpenSearch, read as its documentation describes them.

`run` does in Python what the Painless script does with doc values, in the precision of OpenSearch: long doc values
ascend, a score is a float32 and must not be negative.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fullrank import Bundle
from fullrank.engines.opensearch import SCRIPT, Queries, _check_names, pack, write_bulk
from fullrank.engines.source import Source
from fullrank.errors import ExportError
from fullrank.progress import Reporter
from tests.unit.fullrank.engines.truth import QUERIES, assert_is_top, true_scores

Written = tuple[list[tuple[dict[str, Any], dict[str, Any]]], dict[str, Any], dict[str, Any]]


def written(bundle: Bundle, folder: Path, report: Reporter) -> Written:
    """Return (action, document) pairs, the index and the aliases."""
    file, index, aliases = write_bulk(Source.of(bundle), folder / "shop.ndjson", report)
    text = file.read_text("utf-8")
    assert text.endswith("\n")
    lines = [json.loads(line) for line in text.splitlines()]
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    return pairs, json.loads(index.read_text()), json.loads(aliases.read_text())


def run(script: dict[str, Any], vector: list[int]) -> float:
    """Evaluate the score script for a document."""
    assert script["source"] == SCRIPT
    assert script["lang"] == "painless"
    parameters = script["params"]
    query = dict(zip(parameters["features"], parameters["weights"], strict=True))
    assert parameters["features"] == sorted(query)
    score = parameters["offset"]
    for packed in sorted(vector):
        feature, bits = packed >> 32, packed & 0xFFFFFFFF
        [weight] = struct.unpack("<f", struct.pack("<I", bits))
        score += weight * query.get(feature, 0.0)
    assert score >= 0
    return float(np.float32(score))


def search(
    queries: Queries, body: dict[str, Any], script_score: dict[str, Any], pairs: Any
) -> list[tuple[str, float]]:
    hits = [
        {"_id": action["index"]["_id"], "_score": run(script_score["script"], document["vector"])}
        for action, document in pairs
    ]
    hits.sort(key=lambda hit: -hit["_score"])
    page = hits[body["from"] : body["from"] + body["size"]]
    return [(hit["_id"], queries.score(hit, body)) for hit in page]


def test_the_script_finds_the_best_documents(
    bundle: Bundle, tmp_path: Path, report: Reporter
) -> None:
    pairs, _, _ = written(bundle, tmp_path, report)
    queries = Queries(bundle)
    for text in QUERIES:
        exact = queries.request(text)
        assert exact["query"]["script_score"]["query"] == {"match_all": {}}
        found = search(queries, exact, exact["query"]["script_score"], pairs)
        assert_is_top(bundle, text, found)
        fast = queries.request(text, 7, offset=20, mode="fast")
        rescored = fast["rescore"]["query"]["rescore_query"]["script_score"]
        assert_is_top(bundle, text, search(queries, fast, rescored, pairs), 7, 20)


def test_the_offset_is_above_every_negative_score(bundle: Bundle) -> None:
    for text in QUERIES:
        script = Queries(bundle).request(text)["query"]["script_score"]["script"]
        assert script["params"]["offset"] >= -true_scores(bundle, text).min()


def test_documents_follow_the_mapping(bundle: Bundle, tmp_path: Path, report: Reporter) -> None:
    pairs, index, aliases = written(bundle, tmp_path, report)
    name = Source.of(bundle).versioned
    assert name == Queries(bundle).index
    properties = index["mappings"]["properties"]
    assert properties["vector"] == {"type": "long", "index": False}
    assert properties["dense"]["dimension"] == 6
    assert properties["fields"]["properties"] == {
        "title": {"type": "keyword"},
        "text": {"type": "keyword"},
        "section": {"type": "double"},
        "tags": {"type": "keyword"},
        "is_open": {"type": "boolean"},
    }
    assert index["settings"] == {"index": {"knn": True}}
    assert aliases["actions"][1] == {"add": {"index": name, "alias": "my_shop"}}
    assert [action for action, _ in pairs] == [
        {"index": {"_index": name, "_id": id}} for id in bundle.documents.ids
    ]
    for row, (_, document) in enumerate(pairs):
        assert document.keys() == properties.keys()
        assert document["fields"] == bundle.documents.fields(row)
        v, features, weights, bias = bundle.encoded.row(row)
        assert np.array_equal(np.array(document["dense"], np.float32), [*v, bias])
        # rank_features takes strictly positive values only.
        assert all(weight > 0 for weight in document["words"].values())
        assert document["words"] == {
            str(feature): pytest.approx(weight, rel=1e-6)
            for feature, weight in zip(features.tolist(), weights.tolist(), strict=True)
        }


def test_a_model_without_a_dense_part_needs_no_plugin(
    words_only: Bundle, tmp_path: Path, report: Reporter
) -> None:
    pairs, index, _ = written(words_only, tmp_path, report)
    assert index["settings"] == {}
    assert "dense" not in index["mappings"]["properties"]
    assert all("dense" not in document for _, document in pairs)
    fast = Queries(words_only).request("olddoor", mode="fast")
    [side] = fast["query"]["bool"]["should"]
    assert side["rank_feature"].keys() == {"field", "linear", "boost"}


def test_candidates_are_words_and_neighbours_within_the_filter(bundle: Bundle) -> None:
    only = {"term": {"fields.section": 1}}
    query = bundle.encode("redapple")
    fast = Queries(bundle).request("redapple", mode="fast", filter=only)["query"]["bool"]
    *words, nearest = fast["should"]
    expected = zip(*(part.tolist() for part in query.sparse.row(0)), strict=True)
    assert words == [
        {"rank_feature": {"field": f"words.{feature}", "linear": {}, "boost": weight}}
        for feature, weight in expected
    ]
    assert nearest["knn"]["dense"]["vector"] == [*query.dense[0].tolist(), 1.0]
    assert nearest["knn"]["dense"]["filter"] == only
    assert fast["filter"] == [only]
    exact = Queries(bundle).request("redapple", filter=only)["query"]["script_score"]
    assert exact["query"] == {"bool": {"filter": [only]}}


def test_packed_vectors_sort_by_feature_and_fit_a_long() -> None:
    features = np.array([0, 1, 2, 2**31 - 1], np.int64)
    weights = np.array([-1.5, 3e38, -1e-30, -2], np.float32)
    packed = pack(features, weights)
    assert packed.tolist() == sorted(packed.tolist())
    assert packed.min() >= 0
    assert np.array_equal(packed >> 32, features)
    assert np.array_equal((packed & 0xFFFFFFFF).astype(np.uint32).view(np.float32), weights)


def test_a_failed_export_keeps_the_old_file(
    bundle: Bundle, tmp_path: Path, report: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.ndjson"
    index = tmp_path / "shop.ndjson.index.json"
    for path in (file, index):
        path.write_text("old\n")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fullrank.engines.opensearch._document", die)
    with pytest.raises(KeyboardInterrupt):
        write_bulk(Source.of(bundle), file, report)
    assert file.read_text() == index.read_text() == "old\n"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a", "a.b"], "'a.b': OpenSearch reads it as a part of the field 'a'"),
        (["a", "a.b.c"], "as a part of the field 'a'"),
        ([""], "no empty names"),
        (["a..b"], "no empty names"),
        ([" "], "no empty names"),
    ],
)
def test_fields_that_the_server_would_refuse_are_refused(names: list[str], reason: str) -> None:
    source = SimpleNamespace(filter_fields=dict.fromkeys(names))
    with pytest.raises(ExportError, match=reason):
        _check_names(cast(Any, source))
    _check_names(cast(Any, SimpleNamespace(filter_fields=dict.fromkeys(["a.b", "a.c", "ab"]))))
