"""TREC's text formats: runs out and in, judgements out and in.

    run    query-id Q0 document-id rank score tag
    qrels  query-id 0 document-id grade

Programs that measure a run sort it by score, as a 32-bit float, and break ties by descending
document id; Fullrank breaks them by ascending id. A written run therefore holds scores that
descend strictly as 32-bit floats: a tied score is moved down to the next float below the one
before it, which keeps the order that was ranked and changes no score by more than the ties before
it have steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from fullrank.errors import CollectionError
from trainer.collection import Qrels


def strictly_descending(scores: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Scores in ranked order as float32, each below the one before it.

    Raises ValueError where a score is not finite or ranks above the one before it.
    """
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
    """Writes a run query by query; the file appears under its name when it is complete.

    with RunWriter(path, tag) as run:
        run.write(query_id, document_ids, scores)
    """

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
        """One query's documents, best first. Raises CollectionError on an id with a space."""
        query = _word(query, "query id")
        low = strictly_descending(scores)
        self._file.writelines(
            # Nine digits are enough to read the same 32-bit float back.
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


def read_run(path: str | Path) -> dict[str, list[tuple[str, float]]]:
    """query id → (document id, score), best first as trec_eval sorts them.

    Ties (as 32-bit floats) go by descending id. Raises CollectionError naming file and line.
    """
    path = Path(path)
    run: dict[str, list[tuple[str, float]]] = {}
    seen: set[tuple[str, str]] = set()
    for number, columns in _columns(path, 6):
        query, _, document, _, text, _ = columns
        try:
            score = float(np.float32(text))
        except ValueError:
            raise CollectionError(f"{path}:{number}: score {text!r} is not a number") from None
        if (query, document) in seen:
            raise CollectionError(f"{path}:{number}: {query!r} ranks {document!r} twice")
        seen.add((query, document))
        run.setdefault(query, []).append((document, score))
    for ranking in run.values():
        ranking.sort(key=lambda pair: (pair[1], pair[0]), reverse=True)
    return run


def write_qrels(path: str | Path, qrels: Qrels) -> None:
    """Judgements in TREC's four columns. Raises CollectionError on an id with a space."""
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for query, grades in qrels.items():
            for document, grade in grades.items():
                line = f"{_word(query, 'query id')} 0 {_word(document, 'document id')} {grade}\n"
                file.write(line)


def read_qrels(path: str | Path) -> Qrels:
    """Judgements from TREC's four columns. Raises CollectionError naming file and line."""
    path = Path(path)
    qrels: Qrels = {}
    for number, (query, _, document, grade) in _columns(path, 4):
        grades = qrels.setdefault(query, {})
        if document in grades:
            raise CollectionError(f"{path}:{number}: {query!r} {document!r} is judged twice")
        try:
            grades[document] = int(grade)
        except ValueError:
            raise CollectionError(f"{path}:{number}: grade {grade!r} is not an integer") from None
    return qrels


def _word(text: str, what: str) -> str:
    """The text, which must be one word: the formats part their columns by white space."""
    if len(text.split()) != 1 or text != text.strip():
        raise CollectionError(f"{what} {text!r} is not one word; TREC's formats cannot hold it")
    return text


def _columns(path: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(_decoded(path, file), 1):
                columns = line.split()
                if len(columns) != count:
                    raise CollectionError(
                        f"{path}:{number}: expected {count} columns, got {len(columns)}"
                    )
                yield number, columns
    except OSError as error:
        raise CollectionError(f"{path}: cannot be read: {error.strerror}") from error


def _decoded(path: Path, lines: Iterable[str]) -> Iterator[str]:
    try:
        yield from lines
    except UnicodeDecodeError as error:
        raise CollectionError(f"{path}: not valid UTF-8: {error.reason}") from error
