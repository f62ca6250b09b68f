"""Second stages for tests of fleets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fullrank.search.rerank.features import names
from fullrank.search.rerank.stage import SecondStage
from fullrank.storage.documents import Document
from tests.reranking import SETTINGS, random_trees, stage_of

_SETTINGS = replace(SETTINGS, date="published")
# Typical sizes of features that are far from zero, so that the trees tell their values apart.
_SCALES = {"score": 4.0, "lexical": 4.0, "gap": 2.0, "place": 60.0, "age": 200.0}


def stage_for(
    documents: Sequence[Document], *, of_documents: bool = False, trees: int = 60
) -> SecondStage:
    """Return a second stage whose random trees read every feature."""
    columns = names(_SETTINGS.names)
    made = random_trees(trees, 7, len(columns), seed=4)
    scales = np.array([_SCALES.get(name, 1.0) for name in columns], np.float32)
    made.threshold[:] *= scales[made.feature]
    for name in ("score", "gap", "place", "age", "clicks", "lexical.title", "nearest"):
        assert columns.index(name) in made.feature
    stage, _ = stage_of(documents, trees=made, of_documents=of_documents, settings=_SETTINGS)
    return stage


def stage_of_documents(documents: Sequence[Document]) -> SecondStage:
    """Return a second stage that was trained on documents as queries, so that it orders pages too."""
    return stage_for(documents, of_documents=True)
