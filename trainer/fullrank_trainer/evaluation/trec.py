"""Write TREC's text formats: runs and judgements.

    run    query-id Q0 document-id rank score tag
    qrels  query-id 0 document-id grade

Programs that measure a run sort it by score, as a 32-bit float, and break ties by descending document id; Fullrank
breaks them by ascending id. The scores of a written run therefore descend strictly as 32-bit floats: a tied score is
lowered to the next float below the previous score. This keeps the ranked order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from fullrank.errors import CollectionError
from fullrank_trainer.collection import Qrels


def strictly_descending(scores: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Convert scores in ranked order to float32, each below the previous one. Raises ValueError."""
    exact = np.asarray(scores, dtype=np.float64)
    if not np.all(np.isfinite(exact)):
        raise ValueError("a score is not finite")
    if np.any(np.diff(exact) > 0):
        raise ValueError("scores are not in descending order")
    low = exact.astype(np.float32)
    for i in np.flatnonzero(np.diff(low) >= 0) + 1:
        step = int(i)
        while step < len(low) and low[step] >= low[step - 1]:
            low[step] = np.nextafter(low[step - 1], np.float32(-np.inf))
            step += 1
    return low


class RunWriter:
    """Write a run query by query; the file gets its name when it is complete."""

    def __init__(self, path: str | Path, tag: str = "fullrank") -> None:
        self._path = Path(path)
        self._unfinished = self._path.with_name(self._path.name + ".unfinished")
        self._tag = _word(tag, "tag")

    def __enter__(self) -> Self:
        try:
            self._file = self._unfinished.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise CollectionError(f"{self._path}: cannot be written: {error.strerror}") from error
        return self

    def write(self, query: str, documents: Sequence[str], scores: npt.ArrayLike) -> None:
        """Write one query's documents, best first. Raises CollectionError if an id has a space."""
        query = _word(query, "query id")
        low = strictly_descending(scores)
        self._file.writelines(
            # Nine digits are enough to read back the same 32-bit float.
            f"{query} Q0 {_word(document, 'document id')} {rank} {score:.9g} {self._tag}\n"
            for rank, (document, score) in enumerate(zip(documents, low, strict=True), 1)
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if kind is None:
            os.replace(self._unfinished, self._path)
        else:
            self._unfinished.unlink(missing_ok=True)


def write_qrels(path: str | Path, qrels: Qrels) -> None:
    """Write judgements in TREC's four columns. Raises CollectionError if an id has a space."""
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for query, grades in qrels.items():
            for document, grade in grades.items():
                line = f"{_word(query, 'query id')} 0 {_word(document, 'document id')} {grade}\n"
                file.write(line)


def _word(text: str, what: str) -> str:
    if len(text.split()) != 1 or text != text.strip():
        raise CollectionError(
            f"{what} {text!r} is not one word; TREC's formats separate columns by spaces"
        )
    return text
