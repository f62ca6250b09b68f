"""The generated parts of the reference are as the code has them, and the tables written by hand leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fullrank.events import records
from tests.docs.reference import PARTS, REFERENCE, written

PAGES = [path for path in sorted(REFERENCE.glob("*.md")) if "generated:" in path.read_text("utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_the_code_says(page: Path) -> None:
    reason = f"run `python -m tests.docs.reference` and commit docs/reference/{page.name}"
    assert page.read_text("utf-8") == written(page), reason


def test_every_part_is_on_a_page() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert {*re.findall(r"generated: (\w+)", text)} == {*PARTS}


def test_the_page_of_events_names_every_field_and_action() -> None:
    text = (REFERENCE / "events.md").read_text("utf-8")
    named = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", text)}
    known = records._KNOWN - {"event_attributes"} | {"object_id", "dwell_ms"}
    assert known <= named
    assert {name.replace("_", "") for name in named} >= records.CLICKS
