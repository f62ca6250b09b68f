"""``fullrank search``: hits as JSON and as a table, filters, and the bundle that is meant."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

from tests.bundles import make_bundle
from tests.unit.cli.running import Run
from tests.unit.fullrank.live.test_clicks import documents_of, view_of


def test_search_prints_json(run: Run, root: Path) -> None:
    got = run("search", root / "mine", "ant bee", "--limit", "2", "--explain", "--json")
    assert (got.code, got.err) == (0, "")
    answer = json.loads(got.out)
    assert answer.pop("took_ms") >= 0
    assert answer.pop("bundle").startswith("mine-")
    hits = answer.pop("hits")
    assert answer == {
        "query": "ant bee",
        "certified": True,
        "total": 3,
        "total_at_least": None,
        "reordered": 0,
        "facets": {},
    }
    assert [hit["id"] for hit in hits] == ["a", "b"]
    assert hits[0] == {
        "id": "a",
        "score": 2.0,
        "fields": {"title": "ant", "text": "ant bee"},
        "explanation": {
            "dense": 0.0,
            "lexical": 2.0,
            "bias": 0.0,
            "boost": 0.0,
            "words": [
                {"word": "ant", "dense": 0.0, "lexical": 1.0},
                {"word": "bee", "dense": 0.0, "lexical": 1.0},
            ],
            "clicks": None,
            "second_stage": None,
        },
        "rule": None,
        "highlight": None,
    }


def test_search_prints_a_table_that_keeps_brackets(run: Run, root: Path) -> None:
    got = run("search", root, "cat", "--explain")
    assert got.code == 0
    lines = got.out.splitlines()
    assert lines[0].split() == ["score", "dense", "lexical", "bias", "id", "title", "words"]
    assert "cat [bold]" in lines[1]
    assert "cat +1.00" in lines[1]


def test_search_applies_a_filter(run: Run, root: Path) -> None:
    got = run("search", root, "ant bee", "--filter", '{"not": {"title": {"lt": "b"}}}', "--json")
    assert (got.code, got.err) == (0, "")
    everything = json.loads(run("search", root, "ant bee", "--json").out)
    answer = json.loads(got.out)
    kept = [hit for hit in everything["hits"] if not hit["fields"].get("title", "z") < "b"]
    assert 0 < len(kept) < len(everything["hits"])
    assert (answer["hits"], answer["total"]) == (kept, len(kept))
    for asked, reason in (
        ('{"title": 3}', "filter.title: this field has text"),
        ("{", "JSON"),
        ("[" * 100_000, "deep"),
        ('{"title": "ant", "title": "bee"}', "twice"),
    ):
        got = run("search", root, "ant", "--filter", asked)
        assert (got.code, got.out) == (1, "")
        assert reason in got.err


def test_search_requires_words(run: Run, tmp_path: Path) -> None:
    make_bundle(tmp_path, "m")
    hits = json.loads(run("search", tmp_path, "copy ssh", "--match", "all", "--json").out)["hits"]
    assert [hit["id"] for hit in hits] == ["linux/scp"]
    got = run("search", tmp_path, "copy", "--match", "most")
    assert got.code == 2
    assert "'all', 'any', 'auto'" in got.err


def test_a_bundle_is_found_by_folder_name_and_version(run: Run, root: Path) -> None:
    version = next((root / "mine").iterdir()).name
    for path in (root / "mine" / version, root / "mine", root / version, root):
        got = run("search", path, "ant", "--json")
        assert (got.code, got.err) == (0, "")
        assert json.loads(got.out)["bundle"] == version


def test_a_missing_bundle_is_one_line_on_stderr(run: Run, root: Path) -> None:
    got = run("search", root.parent / "nowhere", "ant")
    assert (got.code, got.out) == (1, "")
    assert got.err.startswith("fullrank: ")
    assert len(got.err.splitlines()) == 1


def test_search_says_how_often_people_chose_a_hit(run: Run, tmp_path: Path) -> None:
    votes = Counter({("red hat", "d000"): 656, ("blue", "d000"): 1})
    path = view_of(tmp_path, documents_of(np.random.default_rng(1), 5), votes).bundle.path
    got = run("search", path, "red hat", "--explain", "--json")
    [clicks] = [
        hit["explanation"]["clicks"] for hit in json.loads(got.out)["hits"] if hit["id"] == "d000"
    ]
    assert (clicks["after_query"], clicks["in_all"]) == (656, 657)
    shown = " ".join(run("search", path, "red hat", "--explain").out.split())
    assert "clicked 656 times for this query, clicked 657 times in all" in shown
    shown = " ".join(run("search", path, "blue", "--explain").out.split())
    assert "clicked once for this query, clicked 657 times in all" in shown
    assert run("search", path, "zzzqqq").out == "nothing found\n"
