"""The page on recipes has every recipe and every setting, with its default."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

from fullrank_trainer.recipes.recipe import recipe_names
from fullrank_trainer.recipes.settings import AutoSettings, ModelSettings, TrainSettings
from fullrank_trainer.recipes.systems import systems
from tests.docs.pages import DOCS

PAGE = (DOCS / "reference/recipes.md").read_text("utf-8")


def test_every_recipe_has_a_family() -> None:
    [table] = re.findall(r"^\| family \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([\w-]+)`", table))
    mixed = {f"{name}-tfidf" for name in named}
    assert {name for name in recipe_names() if name not in named | mixed} == set()


def test_every_setting_has_its_default() -> None:
    kinds: dict[str, Any] = {"model": ModelSettings, "train": TrainSettings, "auto": AutoSettings}
    kinds |= {one.section: one.settings for one in systems().values() if one.section}
    sections = dict(
        re.findall(
            r"^\*\*`\[(\w+)\]`\*\*[^\n]*\n(.*?)(?=^\*\*`|^## )", PAGE, re.MULTILINE | re.DOTALL
        )
    )
    for name, kind in kinds.items():
        shown = dict(
            re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", sections.get(name, ""), re.MULTILINE)
        )
        given = {one.name: one.default for one in fields(kind)}
        assert {
            key: json.loads(text.replace("inf", "Infinity")) for key, text in shown.items()
        } == {
            key: list(value) if isinstance(value, tuple) else value for key, value in given.items()
        }, name
