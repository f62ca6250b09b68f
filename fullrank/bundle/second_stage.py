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
from fullrank.encoding import Int32
from fullrank.errors import BundleError
from fullrank.rerank.facts import DTYPES, DocumentFacts
from fullrank.rerank.stage import SecondStage
from fullrank.storage.checks import check_finite
from fullrank.storage.documents import Document

SECTION = "rerank"
OF_DOCUMENTS = "documents."
"""The names of the arrays about documents begin with this; the others are the second stage."""
CLICKS = f"{OF_DOCUMENTS}clicks"


def write_second_stage(
    folder: StagingFolder, stage: SecondStage, facts: Iterable[DocumentFacts], documents: int
) -> dict[str, Any]:
    """Write rerank/ and return the manifest's facts about it.

    Args:
        folder: The bundle.
        stage: The second stage.
        facts: About all documents, in batches, in their order.
        documents: Their number.

    Raises:
        BundleError: The facts are about another number of documents or fields.
    """
    for name, array in stage.arrays().items():
        check_finite(f"{SECTION}/{name}", array)
        folder.write_array(f"{SECTION}/{name}.npy", array)
    width = len(stage.settings.fields)
    tails = {"lengths": (width,)}
    stem = f"{SECTION}/{OF_DOCUMENTS}"
    rows = {
        name: folder.growing_array(f"{stem}{name}.npy", dtype, tails.get(name, ()))
        for name, dtype in DTYPES.items()
    }
    rows["indptr"].append(np.zeros(1, np.int64))
    n_documents, n_entries = 0, 0
    for batch in facts:
        for name, array in batch.arrays().items():
            rows[name].append(n_entries + array[1:] if name == "indptr" else array)
        n_documents += len(batch)
        n_entries += int(batch.indptr[-1])
    if n_documents != documents:
        raise BundleError(f"{SECTION}: facts about {n_documents} documents of {documents}")
    for growing in rows.values():
        growing.finish()
    return stage.config()


def open_second_stage(
    facts: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    documents: int,
    *,
    verify: bool,
) -> tuple[SecondStage, DocumentFacts]:
    """Open the section.

    Args:
        facts: The manifest's facts about it.
        arrays: Its arrays by name.
        documents: The number of documents of the bundle.
        verify: Check all lines of the facts.

    Raises:
        BundleError: A part is missing or does not fit the others.
    """
    with _errors_named():
        stage = SecondStage.from_parts(facts, arrays)
        found = DocumentFacts.from_arrays({name: arrays[OF_DOCUMENTS + name] for name in DTYPES})
        found.check(documents, len(stage.settings.fields), verify=verify)
    return stage, found


@dataclass(frozen=True, eq=False)
class StageAlone:
    """The second stage of a bundle, for other documents.

    Attributes:
        stage: The second stage.
        ids: Of the documents of the bundle, ascending.
        clicks: int32 (n,), training queries that led to each of them.
    """

    stage: SecondStage
    ids: Sequence[str]
    clicks: Int32

    def facts(self, documents: Sequence[Document]) -> DocumentFacts:
        """Read documents. Those with the id of a document of the bundle have its clicks, others have none."""
        clicks = np.array([self._clicks_of(document.id) for document in documents], np.int32)
        fields = [document.fields for document in documents]
        return DocumentFacts.of(fields, self.stage.settings, clicks)

    def _clicks_of(self, id: str) -> int:
        row = bisect_left(self.ids, id)
        return int(self.clicks[row]) if row < len(self.ids) and self.ids[row] == id else 0


def open_stage_alone(
    facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], ids: Sequence[str]
) -> StageAlone:
    """Open the second stage without the words of documents.

    Args:
        facts: As of ``open_second_stage``.
        arrays: Those of the stage, and CLICKS.
        ids: Of the documents of the bundle.

    Raises:
        BundleError: A part is missing or does not fit the others.
    """
    with _errors_named():
        clicks = arrays[CLICKS]
        if (clicks.dtype.str, clicks.shape) != (DTYPES["clicks"], (len(ids),)):
            raise ValueError(f"clicks is {clicks.dtype.str} {clicks.shape}")
        return StageAlone(SecondStage.from_parts(facts, arrays), ids, clicks)


@contextmanager
def _errors_named() -> Iterator[None]:
    """Turn errors about damaged parts into those of a bundle."""
    try:
        yield
    except KeyError as error:
        raise BundleError(f"{SECTION}: {error.args[0]} is missing") from error
    except (ValueError, TypeError) as error:
        raise BundleError(f"{SECTION}: {error}") from error
