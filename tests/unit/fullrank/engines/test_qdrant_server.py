"""Collections and aliases of a Qdrant server, on the client's own implementation of the server's interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from fullrank import Bundle
from fullrank.engines import qdrant as qdrant_server
from fullrank.engines.qdrant import Queries, export_collection
from fullrank.engines.source import Source
from fullrank.errors import ExportError
from fullrank.progress import Reporter
from tests.unit.fullrank.engines.truth import QUERIES, assert_is_top


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
def test_searches_find_the_best_documents(
    bundle: Bundle, client: QdrantClient, report: Reporter, mode: str
) -> None:
    assert export_collection(Source.of(bundle), client, report)
    queries = Queries(bundle)
    for text in QUERIES:
        body = queries.request(text, mode=mode)
        for name in (queries.collection, "my_shop"):
            assert_is_top(bundle, text, ask(client, name, body))


def test_a_filter_reads_the_payload(bundle: Bundle, client: QdrantClient, report: Reporter) -> None:
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
