"""The flame graph adds up the stacks of py-spy, and is as wide as their samples."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.performance.flame import draw, fold

LOOP = "run (asyncio/runners.py);BaseEventLoop._run_once (asyncio/base_events.py)"
STACKS = [
    f"{LOOP};run_asgi (uvicorn/http.py);search (fullrank_service/http/routes/search.py) 60",
    f"{LOOP};run_asgi (uvicorn/http.py);search (fullrank_service/http/routes/search.py);rank (fullrank/a.py) 20",
    f"{LOOP};run_asgi (uvicorn/http.py) 10",
    "run (threading.py);_WorkItem.run (concurrent/futures/thread.py);rank (fullrank/a.py) 9",
    f"{LOOP};rare (x.py) 1",
    "run (threading.py);follow (fullrank_service/models/follower.py) 900",
]


def test_stacks_add_up_below_the_event_loop_and_the_ranking_threads() -> None:
    root = fold(STACKS)
    assert root.samples == 100
    assert {name: frame.samples for name, frame in root.calls.items()} == {
        "run_asgi (uvicorn/http.py)": 90,
        "rank (fullrank/a.py)": 9,
        "rare (x.py)": 1,
    }
    [search] = root.calls["run_asgi (uvicorn/http.py)"].calls.values()
    assert search.samples == 80
    assert root.depth == 4


def test_the_graph_is_valid_and_as_wide_as_the_samples() -> None:
    svg = ElementTree.fromstring(draw(fold(STACKS)))
    space = {"": "http://www.w3.org/2000/svg"}
    found = {
        group.findtext("title", namespaces=space): float(rect.get("width", "nan"))
        for group in svg.findall("g", space)
        if (rect := group.find("rect", space)) is not None
    }
    total = found["worker: 100.0%"]
    assert found["run_asgi (uvicorn/http.py): 90.0%"] == pytest.approx(0.9 * total)
    assert found["search (fullrank_service/http/routes/search.py): 80.0%"] == pytest.approx(
        0.8 * total
    )


def test_names_are_escaped_and_no_samples_draw_a_graph() -> None:
    drawn = draw(fold([f"{LOOP};<lambda> (a&b.py) 3"]))
    assert "&lt;lambda&gt; (a&amp;b.py): 100.0%" in drawn
    ElementTree.fromstring(draw(fold([])))
