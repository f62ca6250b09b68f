"""The section "rerank" of a bundle: the second stage, and the facts about the bundle's documents that it reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.staging import StagingFolder
from fullrank.errors import BundleError
from fullrank.search.rerank.facts import ASKED, STORED, DocumentFacts
from fullrank.search.rerank.stage import SecondStage
from fullrank.storage.checks import check_finite
from fullrank.storage.documents import Document

SECTION = "rerank"
OF_DOCUMENTS = "documents."
"""The names of the arrays about documents begin with this; the others are the second stage."""


def write_second_stage(
    folder: StagingFolder, stage: SecondStage, facts: Iterable[DocumentFacts], documents: int
) -> dict[str, Any]:
    """Write rerank/ and return the manifest's facts about it. Raises BundleError where facts do not fit."""
    for name, array in stage.arrays().items():
        check_finite(f"{SECTION}/{name}", array)
        folder.write_array(f"{SECTION}/{name}.npy", array)
    fields = len(stage.settings.fields)
    rows = folder.growing_arrays(f"{SECTION}/{OF_DOCUMENTS}", STORED, F=fields)
    n_documents = 0
    for batch in facts:
        rows.append(batch.arrays())
        n_documents += len(batch)
    if n_documents != documents:
        raise BundleError(f"{SECTION}: facts about {n_documents} documents of {documents}")
    rows.finish()
    return stage.config()


def open_second_stage(
    facts: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    documents: int,
    *,
    verify: bool,
) -> tuple[SecondStage, DocumentFacts]:
    """Open the section, and check all lines of the facts if asked. Raises BundleError where a part does not fit."""
    with _errors_named():
        stage = SecondStage.from_parts(facts, arrays)
        older = [] if stage.settings.asked else ASKED
        found = DocumentFacts.from_arrays(
            {name: arrays[OF_DOCUMENTS + name] for name in STORED if name not in older}
        )
        found.check(documents, len(stage.settings.fields), verify=verify)
    return stage, found


@dataclass(frozen=True, eq=False)
class StageAlone:
    """The second stage of a bundle for other documents; its own ids, ascending, and known facts about them."""

    stage: SecondStage
    ids: Sequence[str]
    known: DocumentFacts

    def facts(self, documents: Sequence[Document]) -> DocumentFacts:
        """Read documents. Training queries led to those with the id of a document of the bundle, and to no others."""
        found = self.stage.facts([document.fields for document in documents])
        return found.with_clicks_of(self.known, np.array([self._row(d.id) for d in documents], int))

    def _row(self, id: str) -> int:
        row = bisect_left(self.ids, id)
        return row if row < len(self.ids) and self.ids[row] == id else -1


@contextmanager
def _errors_named() -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise BundleError(f"{SECTION}: {error.args[0]} is missing") from error
    except (ValueError, TypeError) as error:
        raise BundleError(f"{SECTION}: {error}") from error
