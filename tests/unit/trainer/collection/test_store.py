"""Documents in a file are the documents that were stored, in order of id."""

from __future__ import annotations

import gc
import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fullrank.storage.documents import Document
from fullrank_trainer.collection.store import StoredDocuments
from tests.random_cases import cases

TEXTS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@cases(30)
@given(st.dictionaries(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=4), max_size=8))
def test_documents_come_back_in_order_of_id(given: dict[str, dict[str, Any]]) -> None:
    stored = StoredDocuments(Document(id, fields) for id, fields in given.items())
    wanted = [Document(id, given[id]) for id in sorted(given)]
    assert list(stored) == wanted
    assert stored == wanted
    assert stored.ids == sorted(given)
    assert stored[1:] == wanted[1:]
    assert [stored[i] for i in range(len(stored))] == wanted
    for document, other in zip(stored, wanted, strict=True):
        assert repr(document) == repr(other)  # 1, 1.0 and True are equal but not the same
    assert stored != [*wanted, Document("another", {})]


def test_the_file_is_closed_with_the_documents() -> None:
    stored = StoredDocuments([Document("a", {"title": "x"})])
    descriptor = stored._contents._file
    file = _file_of(descriptor)
    assert file is not None
    assert stored[0].fields == {"title": "x"}
    del stored
    gc.collect()
    # Another thread may have opened a file under the number since.
    assert _file_of(descriptor) != file


def _file_of(descriptor: int) -> tuple[int, int] | None:
    """Return device and inode of an open file; None for a number under which no file is open."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
