"""The capacity model: sums that can be checked by hand, and the page that publishes it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.capacity import (
    Scaling,
    clicks,
    compare,
    model,
    one_machine,
    plan,
    scaling_of,
    settings,
)
from benchmarks.fleet.inputs import CHOSEN, MEASURED, number_in, read_inputs, router_rows
from benchmarks.fleet.recording import ShardTimes, read_recorded
from benchmarks.fleet.tables import block, replaced, tables
from fullrank_trainer.recipes.settings import TrainSettings

DOCS = Path(__file__).resolve().parents[4] / "docs"

# 1 ms without documents, and 10 ms for each million; 2,000 bytes a document and a model of 100 MB.
SCALING = Scaling(
    ShardTimes(1, 100_000, 200_000_000, 100_000_000, [2_000] * 100),
    ShardTimes(1, 1_000_000, 2_000_000_000, 100_000_000, [11_000] * 100),
)
BY_HAND = [
    "router_base_ms=2",
    "router_ms=1",
    "call_ms=0",
    "machine_cores=8",
    "machine_gib=64",
    "busy=0.5",
]


def given(*changes: str) -> dict[str, float]:
    return settings([*BY_HAND, *changes])


def text_of(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def test_the_line_goes_through_the_smallest_and_the_largest_shard() -> None:
    assert SCALING.fixed_s == pytest.approx(0.001)
    assert SCALING.document_s == pytest.approx(1e-8)
    assert SCALING.seconds(2e6) == pytest.approx(np.full(100, 0.021))
    assert SCALING.gib(1e6) == pytest.approx(2.1e9 / 2**30)


def test_a_fleet_of_ten_million_documents() -> None:
    row = plan(
        SCALING, 10**7, 100.0, given("shard_documents=2e6", "machine_month=100", "call_ms=1")
    )
    assert (row["fleets"], row["shards"], row["replicas"]) == (1, 5, 2)
    # 4 GB and a model a shard, twice.
    assert row["memory_gib"] == round(10 * 4.1e9 / 2**30)
    # 2 million documents take 21 ms, a call 1: 100 searches a second keep 2.2 cores busy, half busy 4.4, so 3 in each
    # replica. The router: (2 + 5 · 1) ms · 100 / 0.5 = 1.4, so 2.
    assert row["cores"] == 5 * 2 * 3 + 2
    # Two replicas on 8 cores, and a machine for the router.
    assert row["machines"] == 5 + 1
    assert row["money_a_month"] == 600
    assert row["busy"] == pytest.approx(2.2 / 6 * (1 + row["hedged"]), abs=0.03)
    assert row["p50_ms"] > 2 + 5 * 1 + 22 - 1e-6
    # Indexing is processor time of docs/scale.md.
    hours = 1e7 * read_inputs()["index_ms"].value / 3.6e6
    assert row["index_core_hours"] == pytest.approx(hours, abs=0.05)
    assert row["index_money"] == pytest.approx(hours * 100 / 8 / 730, abs=0.005)


def test_a_fleet_has_at_most_sixteen_shards() -> None:
    one = plan(SCALING, 16 * 10**6, 1.0, given("shard_documents=1e6"))
    assert (one["fleets"], one["shards"]) == (1, 16)
    more = plan(SCALING, 17 * 10**6, 1.0, given("shard_documents=1e6"))
    assert (more["fleets"], more["shards"]) == (2, 9)
    # Every fleet has routers of its own, which ask at the same time.
    assert more["p50_ms"] < one["p50_ms"]
    assert more["cores"] == 2 * 9 * 2 + 2


def test_many_searches_need_more_replicas_than_one_machine_has_cores_for() -> None:
    # 11 ms · 2,000 / 0.5 = 44 cores of a shard, 8 in a machine.
    row = plan(SCALING, 10**6, 2_000.0, given("shard_documents=1e6"))
    assert row["replicas"] == 6
    assert row["machines"] == 6 + 2


def test_a_shard_that_fits_no_machine_is_refused() -> None:
    with pytest.raises(ValueError, match="shard needs 93 GiB"):
        plan(SCALING, 5 * 10**7, 1.0, given("shard_documents=5e7"))


def test_clicks_need_disk_training_and_money() -> None:
    row = clicks(
        1e9,
        given(
            "click_bytes=100", "epochs=10", "softmax_links_per_s=1e5", "margin_links_per_s=1e6",
            "gib_month=0.1", "machine_month=584", "training_hours=1",
        ),
    )  # fmt: skip
    assert row == {
        "clicks": 1e9,
        "log_gib": 93.1,
        "log_money_a_month": 9.31,
        # 10¹⁰ links; a core hour costs 584 / 8 / 730 = 0.1.
        "softmax_core_hours": 27.8,
        "softmax_machines": 4,
        "softmax_money": 2.78,
        "margin_core_hours": 2.8,
        "margin_machines": 1,
        "margin_money": 0.28,
    }


def test_one_machine_holds_what_its_memory_holds() -> None:
    measured, million, full = one_machine(SCALING, 0.5)
    assert (measured["exact"], measured["fast"]) == (1469 / 2, 1900 / 2)
    # 11 ms of a search of a million, and 1,289 − 844 µs of the rest of a request.
    assert million["exact"] == pytest.approx(1 / (0.011 + 445e-6))
    assert million["fast"] == pytest.approx(1 / (1_561e-6 + (984 - 520) * 1e-6))
    # 23.5 GiB, less 1.18 GB of the service and the model of 0.1 GB.
    assert full["documents"] == pytest.approx((23.5 * 2**30 - 1.28e9) / 2_000, abs=1)


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(ValueError, match="no input 'cores'"):
        settings(["cores=3"])


def test_a_page_without_the_number_is_named() -> None:
    with pytest.raises(ValueError, match=r"docs/results/training\.md"):
        number_in("results/training.md", r"^nothing like this ([\d]+)")


# Each cell as a reader finds it on the page, without the patterns of the model.
@pytest.mark.parametrize(
    ("name", "page", "row", "column"),
    [
        ("softmax_links_per_s", "results/training.md", "softmax, `fielded`", 2),
        ("margin_links_per_s", "results/training.md", "margin, UᵀV + I", 2),
    ],
)
def test_an_input_equals_its_page(name: str, page: str, row: str, column: int) -> None:
    line = next(line for line in text_of(page).splitlines() if line.startswith(f"| {row} |"))
    number = line.split("|")[column].strip().split(" ")[0].replace(",", "")
    assert read_inputs()[name].value == float(number)


def test_the_call_is_what_the_process_of_a_shard_takes_beside_its_answer() -> None:
    recorded = read_recorded()
    answer_ms = np.mean(recorded.fleet[1].answer_us) / 1000
    assert read_inputs()["call_ms"].value == pytest.approx(
        recorded.process_us / 1000 - answer_ms, abs=0.005
    )


def test_inputs_of_sentences_equal_their_page() -> None:
    inputs, scale = read_inputs(), " ".join(text_of("scale.md").split())
    assert f"Indexing takes {inputs['index_ms'].value:g} ms of processor time" in scale
    assert f"together {inputs['click_bytes'].value:g} bytes" in scale
    assert TrainSettings().epochs == inputs["epochs"].value


def test_the_cost_of_a_router_is_the_line_through_its_table() -> None:
    inputs, rows = read_inputs(), router_rows()
    assert sorted(rows) == [1, 2, 4, 8, 16]
    shards = np.array(sorted(rows), float)
    processor_ms = np.array([rows[int(count)][1] for count in shards])
    slope = np.cov(shards, processor_ms)[0, 1] / shards.var(ddof=1)
    assert inputs["router_ms"].value == pytest.approx(slope, abs=0.005)
    base = processor_ms.mean() - slope * shards.mean()
    assert inputs["router_base_ms"].value == pytest.approx(base, abs=0.005)
    # Every number is in the table of the page.
    page = text_of("scale.md")
    for count, (p50, processor) in rows.items():
        assert re.search(
            rf"\b{count} shards?\b[^\n]*\| {p50:g}\.?0? \|[^\n]*\| {processor:g}\.?0? \|", page
        )


def test_every_input_is_in_the_page_with_its_source() -> None:
    lines = block("inputs", text_of("scale.md")).splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == [*MEASURED, *CHOSEN]
    assert all(line.strip("| ").split(" | ")[-1] for line in lines)


def test_the_tables_of_the_page_are_those_of_the_model() -> None:
    new = tables(model(settings([]), read_recorded(), 200.0))
    page = text_of("scale.md")
    for name, table in new.items():
        assert block(name, page) == table, f"python -m benchmarks.fleet.capacity --write ({name})"


def test_a_table_replaces_only_its_own() -> None:
    page = "".join(f"<!-- begin {name} -->\n\nold\n\n<!-- end {name} -->\n" for name in "ab")
    changed = replaced("b", "| new |", page)
    assert (block("a", changed), block("b", changed)) == ("old", "| new |")
    with pytest.raises(ValueError, match="no marks of c"):
        block("c", page)


def test_the_comparison_replays_recorded_shards() -> None:
    recorded = read_recorded()
    rows = compare(recorded, settings(["router_base_ms=0", "router_ms=0"]))
    # Without a router one shard takes its answer and its call; two take both cores.
    alone = 1000 * float(np.median(recorded.fleet[1].answer_s)) + settings([])["call_ms"]
    assert rows[0]["simulated_p50_ms"] == pytest.approx(alone, rel=0.03)
    measured = router_rows()
    assert [row["shards"] for row in rows] == sorted(recorded.fleet) == [1, 2, 4, 8]
    assert [row["measured_p50_ms"] for row in rows] == [measured[n][0] for n in recorded.fleet]
    assert rows[0]["error"] == pytest.approx(
        rows[0]["simulated_p50_ms"] / rows[0]["measured_p50_ms"] - 1
    )


def test_shards_of_growing_size_were_recorded() -> None:
    recorded = read_recorded()
    sizes = [own.documents for own in recorded.scaling]
    assert len(sizes) >= 3
    assert sizes[-1] >= 30 * sizes[0]
    assert sorted(recorded.fleet) == [1, 2, 4, 8]
    # The size between was not fitted.
    scaling = scaling_of(recorded.scaling)
    for own in recorded.scaling[1:-1]:
        assert scaling.mean_s(own.documents) == pytest.approx(own.answer_s.mean(), rel=0.3)
