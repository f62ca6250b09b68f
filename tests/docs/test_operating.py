"""What somebody who operates a service may meet is on the pages that they will open then."""

from __future__ import annotations

import re

import yaml

from fullrank_service.base.errors import Problem
from tests.docs.pages import DOCS, ROOT

BREAKS = (DOCS / "guides/operate/when-it-breaks.md").read_text("utf-8")


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text("utf-8"))["groups"]
    alerts = {rule["alert"] for group in rules for rule in group["rules"] if "alert" in rule}
    assert set(re.findall(r"^\| `(Fullrank\w+)`", BREAKS, re.MULTILINE)) == alerts


def test_every_problem_says_what_to_do() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| (`[^|]+) \|", BREAKS, re.MULTILINE)
    described = {slug for _, slugs in rows for slug in re.findall(r"`([a-z-]+)`", slugs)}
    kinds, slugs = [Problem], {"retry-later"}
    while kinds:
        kinds += (kind := kinds.pop()).__subclasses__()
        slugs.add(kind.slug)
    assert slugs - described == {"retry-later"}, "a base is no answer; the others are"
