"""The section "rerank" of a bundle: the second stage, and the facts about the bundle's documents that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.staging import StagingFolder
from fullrank.errors import BundleError
from fullrank.rerank.facts import DTYPES, DocumentFacts
from fullrank.rerank.stage import SecondStage
from fullrank.storage.checks import check_finite

SECTION = "rerank"
_DOCUMENTS = "documents."


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
    rows = {
        name: folder.growing_array(f"{SECTION}/{_DOCUMENTS}{name}.npy", dtype, tails.get(name, ()))
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
    try:
        stage = SecondStage.from_parts(facts, arrays)
        found = DocumentFacts.from_arrays({name: arrays[_DOCUMENTS + name] for name in DTYPES})
        found.check(documents, len(stage.settings.fields), verify=verify)
    except KeyError as error:
        raise BundleError(f"{SECTION}: {error.args[0]} is missing") from error
    except (ValueError, TypeError) as error:
        raise BundleError(f"{SECTION}: {error}") from error
    return stage, found
