"""A bundle with all three parts of a score, and the truth about it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullrank import Bundle, open_bundle
from fullrank.models.contract import Model
from fullrank.progress import Reporter
from fullrank.storage.documents import Document
from tests.bundles import FIELDS, linear_model, write_bundle
from tests.unit.fullrank.engines.truth import QUERIES, WORDS


def documents(count: int, seed: int) -> list[Document]:
    """Make documents of random words, with stored fields of every kind."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        fields = {
            "title": " ".join(draw.sample(WORDS, 2)),
            "text": " ".join(draw.choices(WORDS, k=draw.randint(0, 12))),
            "section": number % 3,
            "tags": draw.sample(["new", "sale", "used"], draw.randint(0, 2)),
            "is_open": number % 2 == 0,
            "mixed": "one" if number % 2 else 1,
            "nested": {"quote": 'a "b" \\ c', "letters": "日本"},
        }
        found.append(Document(f"dóc/{number:03d} <&>", fields))
    return found


def write(root: Path, *, n_dense: int = 5, seed: int = 1, count: int = 60) -> Bundle:
    """Write a bundle whose documents have a bias, and open it."""
    stored = documents(count, seed)
    model: Model = linear_model(stored, n_dense=n_dense, seed=seed)
    encoded = model.encode_documents([item.texts(FIELDS) for item in stored])
    bias = np.random.default_rng(seed).normal(0, 1, len(stored)).astype(np.float32)
    path = write_bundle(
        root,
        "my.shop",
        model=model,
        encoded=replace(encoded, bias=bias),
        documents=stored,
        golden_queries=list(QUERIES[:2]),
        card={},
    )
    return open_bundle(path)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> list[Bundle]:
    """Three later versions of the bundle."""
    return [write(tmp_path_factory.mktemp("later"), seed=seed) for seed in (2, 3, 4)]


@pytest.fixture(scope="session")
def words_only(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle without a dense part."""
    return write(tmp_path_factory.mktemp("words"), n_dense=0)


@pytest.fixture
def report() -> Iterator[Reporter]:
    with Reporter(quiet=True) as reporter:
        yield reporter
