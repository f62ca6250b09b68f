"""Arbitrary bytes where a bundle, a filter or a string table is expected: the documented error, never another."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fullrank.bundle import golden, list_bundles, open_bundle, open_model
from fullrank.bundle.manifest import FileEntry, bundle_id, parse_manifest
from fullrank.errors import BundleError, FilterError
from fullrank.filters.columns import columns_of, open_columns
from fullrank.filters.query import matching, parse_filter
from fullrank.storage.strings import StringTable
from tests import damage
from tests.bundles import CORPUS, make_bundle
from tests.random_cases import cases

pytestmark = pytest.mark.sweep

many = settings(cases(30), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with everything that a bundle can have."""
    root = tmp_path_factory.mktemp("written")
    make_bundle(root, "learned", CORPUS, n_dense=8, sample_queries=["copy files", "host"])
    [path] = root.glob("*/*/manifest.json")
    return path.parent


def manifest_of(path: Path) -> Any:
    return json.loads((path / "manifest.json").read_text())


@given(st.data())
@many
def test_a_damaged_manifest_is_read_or_refused(written: Path, data: st.DataObject) -> None:
    with suppress(BundleError):
        parse_manifest(data.draw(damage.texts(manifest_of(written))))


def copied(written: Path, scratch: str) -> Path:
    path = Path(scratch) / written.parent.name / written.name
    shutil.copytree(written, path)
    return path


def sealed(manifest: Any) -> str:
    """The manifest with the id that follows from it, where one does."""
    with suppress(BundleError, TypeError, KeyError, AttributeError, ValueError):
        files = {
            name: FileEntry(
                entry["sha256"],
                entry["bytes"],
                entry.get("dtype"),
                tuple(entry["shape"]) if "shape" in entry else None,
            )
            for name, entry in manifest["files"].items()
        }
        manifest["bundle_id"] = bundle_id(files, manifest["model"])
    return json.dumps(manifest)


@given(st.data())
@many
def test_a_bundle_with_a_damaged_manifest_opens_or_is_refused(
    written: Path, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = copied(written, scratch)
        text = sealed(data.draw(damage.changed(manifest_of(written))))
        (path / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        for read in (open_bundle, open_model):
            with suppress(BundleError):
                read(path)
        list_bundles(Path(scratch))


arrays = npst.arrays(
    st.sampled_from(["<f4", "<f8", "<i4", "<i8", "|u1", "|i1", "|b1", "<i2"]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
)


@given(st.data())
@many
def test_a_bundle_with_a_replaced_file_opens_or_is_refused(
    written: Path, data: st.DataObject
) -> None:
    """The manifest has the hash of the replaced file: the hash is right, the content is not."""
    manifest = manifest_of(written)
    name = data.draw(st.sampled_from(sorted(manifest["files"])))
    with tempfile.TemporaryDirectory() as scratch:
        path = copied(written, scratch)
        entry = manifest["files"][name]
        if name.endswith(".npy"):
            true = np.load(path / name)
            alike = npst.arrays(true.dtype, true.shape)
            array = data.draw(alike | arrays)
            with (path / name).open("wb") as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
            entry |= {"dtype": array.dtype.str, "shape": list(array.shape)}
        else:
            content = data.draw(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
            (path / name).write_bytes(content)
        content = (path / name).read_bytes()
        entry |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        (path / "manifest.json").write_text(sealed(manifest))
        with suppress(BundleError):
            open_bundle(path)


LINE = {"query": "copy", "ids": ["a", "b"], "scores": [2.5, 1]}


@given(st.lists(damage.texts(LINE), max_size=3).map(lambda lines: "".join(f"{x}\n" for x in lines)))
@many
def test_damaged_golden_queries_are_read_or_refused(text: str) -> None:
    with suppress(BundleError):
        for answer in golden.parse(text):
            assert len(answer.ids) == len(answer.scores)


@given(
    st.binary(max_size=60),
    st.lists(st.integers(-5, 70) | st.integers(-(2**63), 2**63 - 1), max_size=6),
)
@many
def test_a_string_table_without_damage_can_be_read(blob: bytes, offsets: list[int]) -> None:
    """Every string of a table that reports no damage can be read."""
    table = StringTable(np.frombuffer(blob, np.uint8), np.array(offsets, np.int64))
    if table.damage() is None:
        assert "".join(table).encode() == blob
        assert [table[i] for i in range(len(table))] == list(table)


FIELDS: list[dict[str, Any]] = [
    {"a": 1, "b": ["x", "y"], "c": True},
    {"a": "one", "b": []},
    {"a": 2.5},
]
FILTER = {
    "and": [{"a": {"gte": 1, "lt": 3}}, {"or": [{"b": "x"}, {"not": {"c": True}}]}],
    "b": {"in": ["x"]},
}


@given(damage.changed(FILTER) | damage.values)
@many
def test_any_filter_is_applied_or_refused(asked: Any) -> None:
    with suppress(FilterError):
        assert matching(parse_filter(asked), columns_of(FIELDS)).dtype == np.bool_


FACTS = {
    "documents": 3,
    "fields": [
        {
            "name": "a",
            "parts": {
                "number": {"values": 2, "lists": False},
                "keyword": {"values": 1, "lists": False},
            },
        },
        {"name": "b", "parts": {"keyword": {"values": 2, "lists": True}}},
        {"name": "c", "refused": "an object"},
    ],
}


@given(damage.changed(FACTS), st.lists(arrays, min_size=5, max_size=5), st.data())
@many
def test_damaged_columns_are_opened_or_refused(
    facts: Any, drawn: list[Any], data: st.DataObject
) -> None:
    true = {
        "0.number.values": np.array([1.0, 2.5]),
        "0.number.codes": np.array([0, -1, 1], np.int8),
        "0.keyword.codes": np.array([-1, 0, -1], np.int8),
        "1.keyword.codes": np.array([0, 1], np.int8),
        "1.keyword.indptr": np.array([0, 2, 2, 2]),
    }
    wrong = data.draw(st.sets(st.sampled_from(sorted(true)), max_size=2))
    stored = {
        name: drawn[i] if name in wrong else array for i, (name, array) in enumerate(true.items())
    }
    strings = {
        "0.keyword.values": StringTable.of(["one"]),
        "1.keyword.values": StringTable.of(["x", "y"]),
    }
    given_facts = facts if isinstance(facts, dict) and data.draw(st.booleans()) else FACTS
    with suppress(BundleError):
        columns = open_columns(3, given_facts, stored, strings)
        for name in columns.by_name:
            assert columns[name].has_value().shape == (3,)
