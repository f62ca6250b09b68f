"""Documents of a bundle as records: the same answers as from arrays, read without mapping or copying all of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import Bundle, open_bundle, stream_bundle, verify_bundle
from fullrank.bundle import documents as layout
from fullrank.engines.source import Source
from fullrank.errors import BundleError
from fullrank.live import Operation, View
from fullrank.progress import Reporter
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Encoded
from fullrank.storage.records import Records
from tests.bundles import linear_model, write_bundle
from tests.forging import Damage, array, value
from tests.words_bundle import CREATED, planted

WORDS = [
    "copy",
    "files",
    "remote",
    "host",
    "list",
    "directory",
    "move",
    "rename",
    "print",
    "shell",
    "user",
    "group",
]
QUERIES = ["copy files", "remote host shell", "group", "unknown words", ""]


def _documents(count: int = 90) -> list[Document]:
    draw = random.Random(4)
    return [
        Document(
            f"d{i:03}",
            {
                "title": " ".join(draw.choices(WORDS, k=2)),
                "text": " ".join(draw.choices(WORDS, k=i % 9)),
                "section": i % 4,
            },
        )
        for i in range(count)
    ]


def _written(root: Path, count: int = 90, **more: Any) -> Path:
    given = _documents(count)
    model = linear_model(given, n_dense=6)
    encoded = model.encode_documents([d.texts(["title", "text"]) for d in given])
    bias = np.linspace(-1, 1, count).astype(np.float32)
    return write_bundle(
        root,
        "planted",
        model=model,
        encoded=Encoded(encoded.dense, encoded.sparse, bias),
        documents=given,
        golden_queries=QUERIES,
        sample_queries=[" ".join(d.fields["title"].split()) for d in given[:40]],
        card={},
        created=CREATED,
        **more,
    )


@pytest.fixture
def of_arrays(tmp_path: Path) -> Bundle:
    return open_bundle(_written(tmp_path / "arrays"))


@pytest.fixture
def of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    monkeypatch.setattr(layout, "RECORDS_FROM", 0)

    def refuse(_documents: Records) -> Encoded:
        raise AssertionError("all documents were read into memory")

    monkeypatch.setattr(Records, "whole", refuse)
    return open_bundle(_written(tmp_path / "records"))


def test_records_replace_the_arrays_of_v_and_t(of_arrays: Bundle, of_records: Bundle) -> None:
    def files(bundle: Bundle) -> set[str]:
        found = {p.relative_to(bundle.path).as_posix() for p in bundle.path.glob("documents/*.npy")}
        assert found == {n for n in bundle.manifest.files if n.startswith("documents/")} & found
        return {name for name in found if "offsets" not in name}

    both = {"documents/indptr.npy", "documents/bias.npy"}
    arrays = {f"documents/{name}.npy" for name in ("dense", "indices", "weights")}
    assert files(of_arrays) == both | arrays
    assert files(of_records) == both | {"documents/records.npy"}
    assert isinstance(of_arrays.encoded, Encoded)
    assert isinstance(of_records.encoded, Records)
    sizes = [
        sum(
            e.bytes - 128
            for n, e in b.manifest.files.items()
            if n in arrays | {"documents/records.npy"}
        )
        for b in (of_arrays, of_records)
    ]
    assert sizes[0] == sizes[1]
    verify_bundle(of_records.path)


def test_every_answer_is_that_of_arrays(of_arrays: Bundle, of_records: Bundle) -> None:
    for query in QUERIES:
        for mode in ("exact", "fast"):
            for more in (
                {},
                {"filter": {"section": {"in": [1, 2]}}},
                {"offset": 3},
                {"min_score": 0.5},
            ):
                asked: dict[str, Any] = {"mode": mode, "explain": True, **more}
                assert of_records.search(query, 7, **asked) == of_arrays.search(query, 7, **asked)
        assert of_records.explain(query, "d017") == of_arrays.explain(query, "d017")
    assert of_records.retriever.modes == of_arrays.retriever.modes == ("exact", "fast")
    assert str(of_records.path / "documents/records.npy") not in Path("/proc/self/maps").read_text()


def test_live_documents_over_records_answer_and_compact_as_over_arrays(
    of_arrays: Bundle, of_records: Bundle, tmp_path: Path
) -> None:
    writes = [Operation(1, "d005", None), Operation(2, "d007", {"title": "copy", "text": "new"})]
    writes += [Operation(i, f"n{i}", {"title": "group", "text": "remote"}) for i in range(3, 9)]
    views = [View.of(bundle).apply(writes) for bundle in (of_arrays, of_records)]
    for query in [*QUERIES, "new"]:
        for mode in ("exact", "fast"):
            pages = [v.search(v.model.encode_queries([query]), 9, mode=mode) for v in views]
            hits = [[(hit.id, hit.score) for hit in page.hits] for page in pages]
            assert hits[0] == hits[1]
            assert pages[0].total == pages[1].total
    compacted = [
        stream_bundle(
            tmp_path / str(i), "new", model=view.encoder, batches=view.batches(16),
            golden_queries=QUERIES, card={}, created=CREATED,
        )
        for i, view in enumerate(views)
    ]  # fmt: skip
    first, second = map(open_bundle, compacted)
    assert first.bundle_id == second.bundle_id
    assert first.unseen_features == second.unseen_features
    assert isinstance(second.encoded, Records)


def test_engines_get_the_documents_of_records(of_arrays: Bundle, of_records: Bundle) -> None:
    entries = []
    for bundle in (of_arrays, of_records):
        with Reporter(quiet=True) as report:
            entries.append([one for b in Source.of(bundle).batches(report) for one in b])
    for a, b in zip(*entries, strict=True):
        assert (a.row, a.id, a.fields) == (b.row, b.id, b.fields)
        for name in ("features", "weights", "dense"):
            assert getattr(a, name).tobytes() == getattr(b, name).tobytes()


def test_few_documents_and_those_without_an_index_stay_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_arrays: Bundle
) -> None:
    assert isinstance(of_arrays.encoded, Encoded)
    sparse = of_arrays.encoded.sparse
    size = of_arrays.encoded.dense.nbytes + sparse.indices.nbytes + sparse.values.nbytes
    for number, (least, count) in enumerate([(size + 1, 90), (size, 90), (0, 39)]):
        monkeypatch.setattr(layout, "RECORDS_FROM", least)
        opened = open_bundle(_written(tmp_path / str(number), count))
        assert isinstance(opened.encoded, Records) == (number == 1)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "not finite": (
        array("documents/records.npy", value(2, np.float32(np.nan).view(np.int32))),
        "records.npy: not finite",
    ),
    "weight not finite": (
        array("documents/records.npy", value(-1, np.float32(np.inf).view(np.int32))),
        "records.npy: not finite",
    ),
    "index outside": (array("documents/records.npy", value(3, 5)), r"records.npy: an index outside 0\.\.4"),
    "index negative": (array("documents/records.npy", value(3, -1)), "an index outside"),
    "one number less": (array("documents/records.npy", lambda a: a[:-1]), "records.npy: shape"),
    "other type": (array("documents/records.npy", lambda a: a.view(np.float32)), "records.npy: float32, not int32"),
    "two axes": (array("documents/records.npy", lambda a: a[:, None]), "records.npy: shape"),
    "a bias less": (array("documents/bias.npy", lambda a: a[1:]), "bias.npy: shape"),
    "bias not finite": (array("documents/bias.npy", value(0, np.nan)), "bias.npy: not finite"),
    "pointers descend": (array("documents/indptr.npy", value(20, 0)), "indptr.npy: does not ascend"),
    "pointers begin late": (array("documents/indptr.npy", value(0, 1)), "does not ascend"),
    "pointers of other type": (
        array("documents/indptr.npy", lambda a: a.astype(np.int32)),
        "indptr.npy: int32, not int64",
    ),
    "a record cut off": (
        lambda p: (p / "documents/records.npy").write_bytes(
            (p / "documents/records.npy").read_bytes()[:-4]
        ),
        "records.npy: .* bytes, the manifest says",
    ),
    "vectors of others": (
        array("documents/records.npy", lambda a: np.concatenate([a[:-5], a[-3:-6:-1], a[-2:]])),
        "golden.jsonl",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_records_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "RECORDS_FROM", 0)
    given = planted()
    # The first document has a word, so its record has an index behind three numbers; the last one is an answer.
    given["encoded"] = given["model"].encode_documents([{"title": "apple"}] * 40)
    path = write_bundle(tmp_path, "planted", **given, created=CREATED)
    assert isinstance(open_bundle(path).encoded, Records)
    damage, reason = DAMAGES[name]
    damage(path)
    with pytest.raises(BundleError, match=reason):
        open_bundle(path)


def test_a_model_that_scores_by_itself_is_refused_over_records(
    of_records: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer: Callable[..., object] = lambda self, documents: object()  # noqa: E731
    monkeypatch.setattr(type(of_records.model), "scorer", scorer)
    with pytest.raises(BundleError, match=r"records\.npy: a model that scores by itself"):
        open_bundle(of_records.path)


def test_a_bundle_whose_folder_is_removed_goes_on_answering(of_records: Bundle) -> None:
    before = of_records.search("copy files", 5)
    shutil.rmtree(of_records.path)
    assert of_records.search("copy files", 5) == before
