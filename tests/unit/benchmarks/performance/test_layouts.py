"""A bundle written again as arrays and as records answers with equal bits, and says how long each takes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.performance.layouts import LAYOUTS, in_layout, paired
from fullrank.bundle import open_bundle, write_bundle
from fullrank.bundle import write as publish
from fullrank.encoding import Encoded
from fullrank.records import Records
from fullrank.storage.documents import Document
from tests.bundles import FIELDS, linear_model

WORDS = ["copy", "files", "remote", "host", "list", "move", "print", "shell", "user"]


def test_both_layouts_have_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "INDEXED_FROM", 50)
    draw = random.Random(1)
    given = [
        Document(f"d{i:02}", {"title": "", "text": " ".join(draw.choices(WORDS, k=4))})
        for i in range(60)
    ]
    model = linear_model(given, n_dense=4)
    encoded = model.encode_documents([d.texts(FIELDS) for d in given])
    path = write_bundle(
        tmp_path / "given", "x", model=model, encoded=encoded, documents=given, golden_queries=["copy"], card={}
    )  # fmt: skip
    bundle = open_bundle(path)
    bundles = [open_bundle(in_layout(bundle, one, tmp_path / one)[0]) for one in LAYOUTS]
    assert [type(one.encoded) for one in bundles] == [Encoded, Records]
    assert bundles[0].bundle_id == bundle.bundle_id
    # From records back to arrays.
    again = open_bundle(in_layout(bundles[1], "arrays", tmp_path / "again")[0])
    assert again.bundle_id == bundle.bundle_id
    found = paired(bundles, ["copy files", "shell"], 2)
    assert found.keys() == {"exact"}
    assert all(took > 0 for took in found["exact"]["p50_us"])
    with pytest.raises(RuntimeError, match="other answers to 'copy files'"):
        paired([bundles[0], open_bundle(_with_other_bias(tmp_path, given))], ["copy files"], 1)


def _with_other_bias(root: Path, given: list[Document]) -> Path:
    model = linear_model(given, n_dense=4)
    encoded = model.encode_documents([d.texts(FIELDS) for d in given])
    other = Encoded(encoded.dense, encoded.sparse, encoded.bias + 1)
    return write_bundle(
        root / "other", "x", model=model, encoded=other, documents=given, golden_queries=["copy"], card={}
    )  # fmt: skip
