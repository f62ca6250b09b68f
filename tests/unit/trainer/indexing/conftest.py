"""A small bundle whose model indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundles import write_bundle
from tests.golden.test_golden import CREATED, DOCUMENTS, QUERIES, planted_model


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The planted model, with five documents of its own."""
    model = planted_model()
    return write_bundle(
        tmp_path_factory.mktemp("bundles"),
        "planted",
        model=model,
        encoded=model.encode_documents([d.texts(["title", "text"]) for d in DOCUMENTS]),
        documents=DOCUMENTS,
        golden_queries=QUERIES,
        card={"recipe": {"name": "planted"}, "seed": 7},
        created=CREATED,
    )
