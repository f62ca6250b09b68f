"""The public Python API: the examples of its docstrings, refusals, and a cheap import."""

from __future__ import annotations

import doctest
import gzip
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import fullrank
from fullrank import Bundle, open_bundle
from fullrank.bundle import bundle as bundle_module
from fullrank.bundle import open as open_module
from fullrank.errors import BundleNotFound, FilterError, FullrankError

BUNDLES = Path(__file__).resolve().parents[2] / "golden" / "bundles"


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return open_bundle(BUNDLES / "planted")


@pytest.mark.parametrize("module", [open_module, bundle_module])
def test_the_examples_of_the_docstrings_are_true(module: object) -> None:
    globs = {"open_bundle": open_bundle, "path": BUNDLES / "planted"}
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [test for test in finder.find(module, globs=globs) if test.examples]
    assert examples
    for test in examples:
        assert doctest.DocTestRunner().run(test).failed == 0, test.name


@pytest.mark.parametrize("name", ["search", "explain", "encode", "evaluate"])
def test_every_method_of_the_api_has_an_example(name: str) -> None:
    assert ">>> " in (getattr(Bundle, name).__doc__ or "")


def test_importing_fullrank_imports_neither_numpy_nor_a_subpackage() -> None:
    code = "import fullrank, sys; print([m for m in sys.modules if m.startswith(('numpy', 'fullrank.'))])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_unknown_names_of_the_package_raise_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fullrank.nothing
    assert {name: hasattr(fullrank, name) for name in fullrank.__all__} == dict.fromkeys(
        fullrank.__all__, True
    )


def test_open_bundle_finds_the_newest_version_of_a_name(bundle: Bundle) -> None:
    assert open_bundle(str(bundle.path)).version == bundle.version
    with pytest.raises(BundleNotFound, match="nosuch"):
        open_bundle(BUNDLES / "nosuch")


def test_a_folder_that_is_no_bundle_is_one_line_of_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neighbours of the folder, such as those of /tmp, are not read."""
    for name in ("given/inside", "neighbour/inside"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(
        BundleNotFound,
        match=r"given: no manifest.json, so no bundle; looked for given/\*/manifest\.json",
    ) as found:
        open_bundle(tmp_path / "given")
    assert "\n" not in str(found.value)
    assert caplog.text == ""


def test_a_name_is_found_from_within_its_folder(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BUNDLES / "planted")
    assert open_bundle(".").version == bundle.version


def test_a_folder_of_one_model_is_enough(bundle: Bundle, tmp_path: Path) -> None:
    assert open_bundle(BUNDLES).version == bundle.version
    shutil.copytree(BUNDLES / "planted", tmp_path / "planted")
    shutil.copytree(BUNDLES / "planted", tmp_path / "other")
    with pytest.raises(BundleNotFound, match="several models; add one of: other, planted"):
        open_bundle(tmp_path)


def test_an_answer_shows_itself_as_a_line_and_in_a_notebook_as_a_table(bundle: Bundle) -> None:
    hits = bundle.search("red apple", limit=2)
    assert repr(hits) == "<2 of 5 hits: ['apple', 'ringo']>"
    assert repr(hits[0]).startswith("<Hit 'apple', score 2.299: {'te")
    table = ElementTree.fromstring(hits._repr_html_())
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    assert rows[0] == ["score", "id", "title", "text"]
    assert rows[1] == ["2.299", "apple", "Apple", "A red fruit; the apple grows on trees."]
    shown = replace(hits, hits=[hits[0]._replace(id="<script>")])._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_a_bundle_shows_itself_in_one_line(bundle: Bundle) -> None:
    assert repr(bundle) == f"<Bundle {bundle.version}: 5 documents>"
    trained = replace(bundle.manifest, card={"trained": {"recipe": {"name": "fielded"}}})
    assert repr(replace(bundle, manifest=trained)).endswith("5 documents, recipe fielded>")
    odd = replace(bundle.manifest, card={"trained": "yes", "recipe": 3})
    assert repr(replace(bundle, manifest=odd)) == repr(bundle)


def test_search_pages_through_one_ranking(bundle: Bundle) -> None:
    whole = bundle.search("red apple", limit=5)
    assert [hit.id for hit in whole] == [
        bundle.search("red apple", limit=1, offset=place)[0].id for place in range(5)
    ]
    assert len(whole) == whole.total == 5
    assert whole.certified
    for hit in whole:
        assert hit.score == hit.dense + hit.lexical + hit.bias
        assert hit.words is None


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_min_score_keeps_the_hits_that_reach_it(bundle: Bundle, mode: str) -> None:
    whole = bundle.search("red apple", mode=mode).hits
    assert len(whole) == 5
    for least in [hit.score for hit in whole] + [whole[0].score + 1]:
        kept = [hit for hit in whole if hit.score >= least]
        for limit, offset in ((10, 0), (2, 0), (1, 1), (2, 4), (3, 7), (len(kept) or 1, 0)):
            found = bundle.search("red apple", limit, offset=offset, mode=mode, min_score=least)
            assert found.hits == kept[offset : offset + limit]
            if mode == "exact" or len(found.hits) < limit:
                assert (found.total, found.is_total) == (len(kept), True)
            else:  # the fast mode counts what it found
                assert (found.total, found.is_total) == (offset + limit, False)


def test_search_leaves_out_excluded_and_filtered_documents(bundle: Bundle) -> None:
    found = bundle.search("apple", exclude=["apple", "unknown"])
    assert {hit.id for hit in found} == {"apple-pie", "bread", "empty", "ringo"}
    found = bundle.search("apple", filter={"tags": "sweet"}, exclude=["apple-pie"])
    assert (len(found), found.total) == (0, 0)
    with pytest.raises(FilterError):
        bundle.search("apple", filter={"grams": {"near": 3}})
    with pytest.raises(FilterError, match=r"highlight\.0: unknown field"):
        bundle.search("apple", highlight=["nowhere"])
    with pytest.raises(FilterError, match="facets: unknown field"):
        bundle.search("apple", facets=["nowhere"])


def test_search_explains_hits_as_explain_does(bundle: Bundle) -> None:
    for hit in bundle.search("red apple pie", explain=True):
        assert hit.words == bundle.explain("red apple pie", hit.id).words
    with pytest.raises(KeyError):
        bundle.explain("red", "unknown")


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("search", {"text": None}, "text: None is not text"),
        ("search", {"text": "x", "limit": 0}, "limit: 0 is not a number from 1 on"),
        ("search", {"text": "x", "limit": -1}, "limit: -1 is not a number from 1 on"),
        ("search", {"text": "x", "limit": "3"}, "limit: '3' is not a number from 1 on"),
        ("search", {"text": "x", "limit": True}, "limit: True is not a number from 1 on"),
        ("search", {"text": "x", "offset": -1}, "offset: -1 is not a number from 0 on"),
        ("search", {"text": "x", "exclude": "apple"}, "exclude: 'apple' is not a collection"),
        ("search", {"text": "x", "mode": "slow"}, "mode: 'slow' is not 'exact' or 'fast'"),
        ("search", {"text": "x", "min_score": "1"}, "min_score: '1' is not a number"),
        ("explain", {"text": "x", "id": None}, "id: None is not text"),
        ("encode", {"texts": ["x", None]}, r"texts: \['x', None\] is not a text or a list"),
        ("evaluate", {"queries": "nowhere"}, r"nowhere/queries\.jsonl: No such file"),
        ("evaluate", {"queries": {}}, "qrels: name a split of a folder"),
        ("evaluate", {"queries": ["q"], "qrels": {}}, r"queries: \['q'\] is not a mapping"),
        ("search", {"text": "x", "facets": "tags"}, "facets: 'tags' is not a list"),
        ("evaluate", {"queries": {}, "qrels": {"q": ["apple"]}}, "qrels: .* is not a mapping"),
        ("evaluate", {"queries": {}, "qrels": {"q": {"apple": 1}}}, "qrels: 'q' is not a query of"),
        ("evaluate", {"queries": {}, "qrels": {"q": {"x": 1}}}, "document 'x' of query 'q' is not"),
    ],
)
def test_a_wrong_argument_is_named(
    bundle: Bundle, method: str, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(FullrankError, match=message) as raised:
        getattr(bundle, method)(**arguments)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    "code",
    [
        "import fullrank.client",
        "sys.argv[1:] = 'search', '--url', 'http://127.0.0.1:9', 'a'; from fullrank.cli import main; sys.exit(main())",
    ],
    ids=["module", "command"],
)
def test_the_client_without_httpx_names_the_extra(code: str) -> None:
    code = f"import sys; sys.modules['httpx'] = None; {code}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'fullrank[client]'" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr or "fullrank.client" in code


def test_encode_takes_one_text_or_many(bundle: Bundle) -> None:
    one, two = bundle.encode("red apple"), bundle.encode(["red apple", "bread"])
    assert (len(one), len(two)) == (1, 2)
    np.testing.assert_array_equal(one.dense[0], two.dense[0])


def test_evaluate_leaves_out_queries_without_a_relevant_document(bundle: Bundle) -> None:
    queries = {"q1": "red apple", "q2": "bread"}
    both = bundle.evaluate(queries, {"q1": {"apple": 1}, "q2": {"bread": 0}})
    one = bundle.evaluate(queries, {"q1": {"apple": 1}})
    assert str(both["mrr"]) == str(one["mrr"])  # its standard error is NaN, which equals nothing
    assert both["map"].mean == 1.0
    with pytest.raises(ValueError, match="no query has a relevant document"):
        bundle.evaluate(queries, {"q2": {"bread": 0}})


def test_evaluate_reads_a_split_of_a_folder(bundle: Bundle, tmp_path: Path) -> None:
    queries = {"q1": "red apple", "q2": "bread"}
    grades = {"q1": {"apple": 1, "ringo": 0}, "q2": {"bread": 2}}
    (tmp_path / "qrels").mkdir()
    lines = (json.dumps({"_id": id, "text": text}) + "\n" for id, text in queries.items())
    (tmp_path / "queries.jsonl").write_text("\ufeff" + "".join(lines))
    rows = [f"{q}\t{d}\t{grade}\r\n" for q, own in grades.items() for d, grade in own.items()]
    judged = "".join(["query-id\tcorpus-id\tscore\n", *rows])
    (tmp_path / "qrels/test.tsv").write_text(judged)
    (tmp_path / "qrels/valid.tsv.gz").write_bytes(gzip.compress(judged.encode()))
    expected = bundle.evaluate(queries, grades)
    assert bundle.evaluate(str(tmp_path)) == expected
    assert bundle.evaluate(tmp_path, "valid") == expected
    with pytest.raises(FullrankError, match=r"qrels/train\.tsv: No such file"):
        bundle.evaluate(tmp_path, "train")
    (tmp_path / "qrels/valid.tsv.gz").write_bytes(gzip.compress(b"")[:10] + b"\xff" * 9)
    with pytest.raises(FullrankError, match=r"qrels/valid\.tsv: Error -3"):
        bundle.evaluate(tmp_path, "valid")
    (tmp_path / "qrels/test.tsv").write_text(judged + "q1\tapple\n")
    with pytest.raises(FullrankError, match=r"test\.tsv:5: has not a query id"):
        bundle.evaluate(tmp_path)
    (tmp_path / "queries.jsonl").write_text('{"text": "no id"}')
    with pytest.raises(FullrankError, match=r"queries\.jsonl:1: is no JSON object"):
        bundle.evaluate(tmp_path)
