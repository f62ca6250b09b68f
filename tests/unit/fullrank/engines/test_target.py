"""Addresses of exports, the command, and what they say about bad input."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fullrank import Bundle, open_bundle
from fullrank.engines import opensearch, target, vespa
from fullrank.engines.command import export as command
from fullrank.engines.qdrant import Queries
from fullrank.engines.source import Source, as_json, identifier, outdated
from fullrank.engines.target import export
from fullrank.errors import ExportError
from fullrank.models.expansion import ExpansionModel
from fullrank.progress import Reporter
from tests.bundles import make_bundle
from tests.unit.fullrank.engines.truth import QUERIES, true_scores

ADDRESSES = r"must be qdrant:///FOLDER, .*vespa-feed:FILE"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("elastic://host", ADDRESSES),
        ("qdrant", ADDRESSES),
        ("opensearch-bulk:", ADDRESSES),
        ("vespa-feed", ADDRESSES),
        ("/some/file.json", ADDRESSES),
        ("", ADDRESSES),
        ("qdrant://host:port/shop", r"^--to: Port "),
        ("postgresql://127.0.0.1:99999/db", 'invalid port number: "99999"'),
        ("qdrant:///", "the folder is missing"),
        ("vespa-feed:/nowhere/feed.jsonl", "nowhere: no such folder"),
        ("qdrant://127.0.0.1:1/shop", r"^127\.0\.0\.1:1: .*; a folder is qdrant:///FOLDER$"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_error(
    bundle: Bundle, report: Reporter, address: str, reason: str
) -> None:
    with pytest.raises(ExportError, match=reason):
        export(bundle, address, None, report)


@pytest.mark.parametrize("address", ["qdrant://{}?b", "qdrant://:80{}", "qdrant://user@{}"])
def test_a_folder_of_qdrant_has_no_host_and_no_parameters(
    bundle: Bundle, tmp_path: Path, report: Reporter, address: str
) -> None:
    with pytest.raises(ExportError, match="must be qdrant:///FOLDER"):
        export(bundle, address.format(tmp_path / "shard"), None, report)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "address", "extra"),
    [
        ("qdrant_edge", "qdrant:///{folder}/edge", "qdrant"),
        ("qdrant_client", "qdrant://127.0.0.1/shop", "qdrant"),
        ("psycopg", "postgresql://127.0.0.1/shop", "postgresql"),
    ],
)
def test_a_missing_client_names_its_extra(
    bundle: Bundle,
    tmp_path: Path,
    report: Reporter,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    address: str,
    extra: str,
) -> None:
    # None makes an import raise ModuleNotFoundError.
    monkeypatch.setitem(sys.modules, package, None)
    where = address.format(folder=str(tmp_path).lstrip("/"))
    with pytest.raises(Exception, match=rf"needs {package}; install it with: .*\[{extra}\]"):
        export(bundle, where, None, report)
    assert list(tmp_path.iterdir()) == []


def test_a_server_gets_the_address_the_name_and_the_key(
    bundle: Bundle, report: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    names: list[str] = []

    class Client:
        def __init__(self, **settings: Any) -> None:
            made.append(settings)

        def close(self) -> None:
            pass

    def exported(source: Any, *_: object) -> bool:
        names.append(source.name)
        return True

    monkeypatch.setattr("qdrant_client.QdrantClient", Client)
    monkeypatch.setattr(target, "export_collection", exported)
    export(bundle, "qdrant://search.example/Shop", None, report)
    monkeypatch.setenv("QDRANT_API_KEY", "secret")
    export(bundle, "qdrant+https://search.example:7000/Shop", "other", report)
    assert made == [
        {"url": url, "api_key": key, "check_compatibility": False}
        for url, key in [
            ("http://search.example:6333", None),
            ("https://search.example:7000", "secret"),
        ]
    ]
    assert names == ["shop", "other"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://h/db", ("postgresql://h/db", "my_shop")),
        ("postgresql://h/db?table=a%20b", ("postgresql://h/db", "a_b")),
        ("postgresql:///db?host=/sock&table=t&user=u", ("postgresql:///db?host=/sock&user=u", "t")),
        ("postgresql://h1:1,h2:2/db", ("postgresql://h1:1,h2:2/db", "my_shop")),
        (
            "postgresql://h/db?options=-c%20statement_timeout%3D9",
            ("postgresql://h/db?options=-c%20statement_timeout%3D9", "my_shop"),
        ),
    ],
)
def test_an_address_of_libpq_stays_as_it_is(
    bundle: Bundle,
    report: Reporter,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    expected: tuple[str, str],
) -> None:
    monkeypatch.setattr("psycopg.connect", nullcontext)
    written: list[tuple[str, str]] = []
    monkeypatch.setattr(
        target, "export_table", lambda source, at, _: written.append((at, source.name))
    )
    export(bundle, address, None, report)
    assert written == [expected]


def test_a_failure_of_qdrant_edge_is_one_error(
    bundle: Bundle, tmp_path: Path, report: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where the engine creates a folder.
    monkeypatch.setattr(Path, "mkdir", lambda self, **_: self.touch())
    with pytest.raises(ExportError, match=rf"^{tmp_path}: .*edge"):
        export(bundle, f"qdrant://{tmp_path}", None, report)


def app() -> typer.Typer:
    found = typer.Typer()
    found.command()(command)
    return found


def test_the_command_prints_the_name_that_requests_use(bundle: Bundle, tmp_path: Path) -> None:
    address = f"qdrant://{tmp_path / 'edge'}"
    name = Queries(bundle, "shop").collection
    arguments = [str(bundle.path), "--to", address, "--name", "shop"]
    first = CliRunner().invoke(app(), arguments)
    assert first.exit_code == 0
    assert f"{name}: 60 documents of {bundle.version}\n" in first.output
    again = CliRunner().invoke(app(), arguments)
    assert f"{name}: 60 documents of {bundle.version} (was complete)\n" in again.output
    printed = CliRunner().invoke(app(), [*arguments, "--json"])
    assert json.loads(printed.stdout.splitlines()[-1]) == {
        "bundle": bundle.version,
        "name": name,
        "documents": 60,
        "is_new": False,
        "files": [],
    }


def test_the_command_prints_the_files(bundle: Bundle, tmp_path: Path) -> None:
    file = tmp_path / "feed.jsonl"
    done = CliRunner().invoke(app(), [str(bundle.path), "--to", f"vespa-feed:{file}"])
    assert f"in {file}, {file}.sd\n" in done.output


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


@pytest.mark.parametrize("queries", [Queries, opensearch.Queries, vespa.Queries])
def test_an_unknown_mode_is_refused(bundle: Bundle, queries: Any) -> None:
    with pytest.raises(ValueError, match="'quick' is neither"):
        queries(bundle).request("redapple", mode="quick")
