"""Test the language: no word or name that a reader of this field has to decode.

`CONTRIBUTING.md` holds the rules. A pattern is matched without regard to case, in docstrings, comments, messages and
documentation (prose), or as a whole name that a file defines (names).
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.walls.source import PACKAGES, ROOT, outline, python_files, relative

# Each pattern and what to write instead.
PROSE = {
    r"\b(?<!there )(is|are|was|were) (?-i:none)\b": "is empty, is missing, does not exist",
    r"\bnobody (looks|knows)\b": "no-op, unknown",
    r"\bwhoever\b": "a client that, a caller that",
    r"\bwhat came while\b": "name the thing",
    r"\bwho has nothing before\b": "a request that finds the queue empty",
    r"\bits time is over\b": "expired",
    r"\bhas nothing (more )?to say\b": "unchanged",
    r"\b(is|are|was|were) told\b": "gets, receives, is notified",
    r"\bsaid to be\b": "reported as",
    r"\bwish(es|ed)?\b": "request, option",
    r"\blooked at outright\b": "scored by brute force",
    r"\b(has|have) been told\b": "has received",
    r"\btold (of|that)\b": "notified",
    r"\bis said\b": "is reported",
    r"\bhas been kept nobody\b": "retry with the same Idempotency-Key",
    r"\bthan that inside each would\b": "more threads in each",
    r"\bthe other side thinks\b": "estimate",
}
ANY_PHRASE = re.compile("|".join(f"(?:{pattern})" for pattern in PROSE), re.IGNORECASE)
NAMES = {
    "Before": "DirectRouteMiddleware, or no second dispatcher",
    "Direct": "DirectRouteMiddleware, or no second dispatcher",
    "Pace": "SearchModePolicy",
    "Worth": "a setting",
    "room": "scratch, buffer",
    "Mark": "SignatureBit, FileFingerprint",
    "brief": "fits_event_loop",
    "pays": "a setting",
    "said": "output, report",
    "say": "publish",
    "told": "notify, collect",
    "told_as": "exposed_name",
    "unsaid": "dirty",
    "Taken": "RequestModel",
    "Shelf": "LoadedModels",
    "moved": "remap_columns",
    "summed": "add",
    "beside": "hstack",
    "times": "matmul",
    "strongest": "top_entries",
    "_MANY": "MAX_CANDIDATES_PER_HIT",
    "_OUTRIGHT": "BRUTE_FORCE_DIVISORS",
}
# These quote the patterns.
EXEMPT = frozenset({"tests/walls/test_words.py", "CONTRIBUTING.md"})


@cache
def documents() -> tuple[Path, ...]:
    """List the Markdown files that people write; tables of results are generated."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")]
    return tuple(sorted(found))


def unreleased(changelog: str) -> str:
    """Give the part of the changelog that may still be reworded."""
    return changelog.split("\n## [Unreleased]", 1)[-1].split("\n## [", 1)[0]


def prose_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the text that a file holds for readers, with its line."""
    text = file.read_text("utf-8")
    if file.suffix != ".py":
        yield 1, unreleased(text) if file.name == "CHANGELOG.md" else text
        return
    if not has_odd_phrase(text):  # tokens take ten times as long as the search
        return
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield token.start[0], token.string


def joined(text: str) -> str:
    """Join lines, without the marks of comments."""
    return re.sub(r"\s+(# )?", " ", text)


def has_odd_phrase(text: str) -> bool:
    """Tell whether any pattern matches."""
    return ANY_PHRASE.search(joined(text)) is not None


def odd_phrases(text: str) -> list[str]:
    """Give each phrase of a text that a pattern matches, with what to write; lines may break it."""
    if not has_odd_phrase(text):  # one pass over nearly every text
        return []
    one_line = joined(text)
    return [
        f'"{match[0]}": write {instead}'
        for pattern, instead in PROSE.items()
        for match in re.finditer(pattern, one_line, re.IGNORECASE)
    ]


def bad_prose(file: Path) -> list[str]:
    return [
        f"{relative(file)}:{line} {phrase}"
        for line, text in prose_of(file)
        for phrase in odd_phrases(text)
    ]


def bad_names(file: Path) -> list[str]:
    return [
        f"{relative(file)}:{line} {name}: use {NAMES[name]}"
        for line, name in outline(file.read_text("utf-8")).names
        if name in NAMES
    ]


def checked(files: tuple[Path, ...]) -> Iterator[Path]:
    for file in files:
        if relative(file) not in EXEMPT:
            yield file


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_prose_in_code_is_plain(folder: str) -> None:
    assert [line for file in checked(python_files(folder)) for line in bad_prose(file)] == []


def test_prose_in_documents_is_plain() -> None:
    assert [line for file in checked(documents()) for line in bad_prose(file)] == []


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_names_are_plain(folder: str) -> None:
    assert [line for file in checked(python_files(folder)) for line in bad_names(file)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Its fields are none.",
        "Nobody\n    looks.",
        "# Each is told what\n# the other side thinks of it.",
    ],
)
def test_an_odd_phrase_is_found(text: str) -> None:
    assert odd_phrases(text)


def test_a_plain_sentence_passes() -> None:
    assert odd_phrases("Return an empty list if no document matches.") == []


def test_odd_names_are_found_where_they_are_defined() -> None:
    source = "_MANY = 3\ndef moved(room): ...\nclass Mark: ...\nfor times in range(2): ..."
    assert [name for _, name in outline(source).names if name in NAMES] == [
        "moved",
        "Mark",
        "room",
        "_MANY",
    ]
