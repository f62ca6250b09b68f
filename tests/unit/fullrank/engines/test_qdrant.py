"""Shards of Qdrant Edge, on the real engine in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import qdrant_edge as edge
from qdrant_client import QdrantClient, models

from fullrank import Bundle
from fullrank.engines import qdrant as qdrant_server
from fullrank.engines.qdrant import Queries, export_collection, export_shard, search
from fullrank.engines.source import Source
from fullrank.errors import ExportError
from fullrank.progress import Reporter
from tests.unit.fullrank.engines.killed import export_killed
from tests.unit.fullrank.engines.truth import QUERIES, assert_is_top


def opened(bundle: Bundle, folder: Path, report: Reporter) -> edge.EdgeShard:
    assert export_shard(Source.of(bundle), folder, report)
    return edge.EdgeShard.load(str(folder / Queries(bundle).collection))


def found(points: list[edge.ScoredPoint]) -> list[tuple[str, float]]:
    return [((point.payload or {})["_id"], point.score) for point in points]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_searches_find_the_best_documents(
    bundle: Bundle, tmp_path: Path, report: Reporter, mode: str
) -> None:
    shard, queries = opened(bundle, tmp_path / "qdrant", report), Queries(bundle)
    for text in QUERIES:
        points = search(shard, queries.request(text, mode=mode))
        assert_is_top(bundle, text, found(points))
    page = search(shard, queries.request(QUERIES[0], limit=7, offset=20, mode=mode))
    assert_is_top(bundle, QUERIES[0], found(page), 7, 20)


def test_a_model_without_a_dense_part_has_one_vector(
    words_only: Bundle, tmp_path: Path, report: Reporter
) -> None:
    shard, queries = opened(words_only, tmp_path, report), Queries(words_only)
    for text in QUERIES:
        request = queries.request(text, mode="fast")
        assert "prefetch" not in request
        assert_is_top(words_only, text, found(search(shard, request)))


def test_a_filter_reads_the_payload(bundle: Bundle, tmp_path: Path, report: Reporter) -> None:
    shard, queries = opened(bundle, tmp_path, report), Queries(bundle)
    only = edge.Filter(must=[edge.FieldCondition("section", match=edge.MatchValue(1))])
    for mode in ("exact", "fast"):
        points = search(shard, queries.request(QUERIES[0], limit=60, mode=mode), only)
        assert sorted(id for id, _ in found(points)) == bundle.documents.ids[1::3]
        assert {(point.payload or {})["section"] for point in points} == {1}
        assert points[0].payload == {"_id": found(points)[0][0], **fields(bundle, points[0])}


def fields(bundle: Bundle, point: edge.ScoredPoint) -> dict[str, object]:
    assert isinstance(point.id, int)
    return bundle.documents.fields(point.id)


def test_the_link_moves_and_older_versions_are_deleted(
    bundle: Bundle, later: list[Bundle], tmp_path: Path, report: Reporter
) -> None:
    sources = [Source.of(version) for version in (bundle, *later)]
    for source in sources:
        assert export_shard(source, tmp_path, report)
        assert (tmp_path / "my_shop").readlink().name == source.versioned
    kept = sorted(item.name for item in tmp_path.iterdir())
    assert kept == sorted(["my_shop", sources[-2].versioned, sources[-1].versioned])
    # Back to the version before: nothing is written, only the link moves.
    assert not export_shard(sources[-2], tmp_path, report)
    assert (tmp_path / "my_shop").readlink().name == sources[-2].versioned
    assert (tmp_path / sources[-1].versioned).is_dir()


@pytest.mark.sweep
def test_a_killed_export_is_not_served_and_is_deleted_by_the_next(
    bundle: Bundle, tmp_path: Path, report: Reporter
) -> None:
    export_killed(bundle, f"qdrant://{tmp_path}")
    partial = f".{Source.of(bundle).versioned}.partial"
    assert [item.name for item in tmp_path.iterdir()] == [partial]
    shard = opened(bundle, tmp_path, report)
    assert not list(tmp_path.glob(".*"))
    assert_is_top(bundle, "olddoor", found(search(shard, Queries(bundle).request("olddoor"))))


@pytest.fixture
def client() -> Iterator[QdrantClient]:
    opened = QdrantClient(":memory:")
    yield opened
    opened.close()


def ask(client: QdrantClient, collection: str, body: dict[str, Any]) -> list[tuple[str, float]]:
    """Send a request as the models of the server's own description parse it."""
    request = models.QueryRequest.model_validate(body)
    assert request.model_dump(exclude_none=True, by_alias=True).keys() == body.keys()
    answer = client.query_points(
        collection,
        query=request.query,
        using=request.using,
        prefetch=request.prefetch,
        query_filter=request.filter,
        limit=request.limit or 0,
        offset=request.offset,
        with_payload=request.with_payload or False,
    )
    return [((point.payload or {})["_id"], point.score) for point in answer.points]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_qdrant_server_searches_find_the_best_documents(
    bundle: Bundle, client: QdrantClient, report: Reporter, mode: str
) -> None:
    assert export_collection(Source.of(bundle), client, report)
    queries = Queries(bundle)
    for text in QUERIES:
        body = queries.request(text, mode=mode)
        for name in (queries.collection, "my_shop"):
            assert_is_top(bundle, text, ask(client, name, body))


def test_qdrant_server_a_filter_reads_the_payload(
    bundle: Bundle, client: QdrantClient, report: Reporter
) -> None:
    export_collection(Source.of(bundle), client, report)
    only = {"must": [{"key": "tags", "match": {"value": "sale"}}]}
    for mode in ("exact", "fast"):
        body = Queries(bundle).request("olddoor", limit=60, mode=mode, filter=only)
        rows = [bundle.documents.row(id) for id, _ in ask(client, "my_shop", body)]
        expected = [row for row in range(60) if "sale" in bundle.documents.fields(row)["tags"]]
        assert sorted(rows) == expected


def collections(client: QdrantClient) -> set[str]:
    return {item.name for item in client.get_collections().collections}


def aliases(client: QdrantClient) -> dict[str, str]:
    return {item.alias_name: item.collection_name for item in client.get_aliases().aliases}


def test_aliases_move_and_older_versions_are_deleted(
    bundle: Bundle, later: list[Bundle], client: QdrantClient, report: Reporter
) -> None:
    names = []
    for version in (bundle, *later):
        source = Source.of(version)
        assert export_collection(source, client, report)
        names.append(source.versioned)
        points = f"{source.versioned}_points"
        assert aliases(client)["my_shop"] == aliases(client)[source.versioned] == points
    assert collections(client) == {f"{name}_points" for name in names[-2:]}
    assert aliases(client).keys() == {"my_shop", *names[-2:]}
    assert not export_collection(Source.of(later[-2]), client, report)
    assert aliases(client)["my_shop"] == f"{names[-2]}_points"
    assert collections(client) == {f"{name}_points" for name in names[-2:]}


def test_an_unfinished_export_has_no_alias_and_is_deleted_by_the_next(
    bundle: Bundle,
    later: list[Bundle],
    client: QdrantClient,
    report: Reporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for version in (bundle, later[0]):
        with monkeypatch.context() as patch:
            patch.setattr(qdrant_server, "_switch_aliases", die)
            with pytest.raises(KeyboardInterrupt):
                export_collection(Source.of(version), client, report)
        assert collections(client) == {f"{Source.of(version).versioned}_points"}
        assert aliases(client) == {}
    assert export_collection(Source.of(bundle), client, report)
    assert collections(client) == {f"{Source.of(bundle).versioned}_points"}


def test_a_collection_of_this_name_is_not_replaced(
    bundle: Bundle, client: QdrantClient, report: Reporter
) -> None:
    client.create_collection("my_shop", sparse_vectors_config={"own": models.SparseVectorParams()})
    with pytest.raises(ExportError, match="my_shop: is a collection"):
        export_collection(Source.of(bundle), client, report)


def test_missing_points_are_noticed(
    bundle: Bundle, client: QdrantClient, report: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "upsert", lambda *_, **__: None)
    with pytest.raises(ExportError, match="stored 0 of 60 points"):
        export_collection(Source.of(bundle), client, report)
    assert aliases(client) == {}
