"""Random collections, and a comparison of their counts with those of one process."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Rows
from fullrank.text.words import words
from fullrank_fleet.counting.counting import DistributedCounting
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import Folder
from fullrank_trainer.collection import Collection
from fullrank_trainer.features.corpus import InThisProcess

# Letters of several scripts, joined and parted words, capitals, digits, an emoji, line ends, markup.
_PARTS = [
    "wi-fi",
    "Wi Fi",
    "e-book",
    "red",
    "Äpfel",
    "été",
    "İstanbul",
    "日本語",
    "한국어",
    "500ml",
    "😀",
    "ǅ",
    "<b class=x>red</b>",
    "wi&amp;fi",
]
ALONE = InThisProcess(1)
TEXTS = st.one_of(
    st.lists(st.sampled_from(_PARTS), max_size=6).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
FIELDS = ("title", "text", "note")
DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {"title": TEXTS}, optional={"text": TEXTS, "note": TEXTS | st.lists(TEXTS)}
    ),
    min_size=1,
    max_size=12,
)


def write_collection(
    folder: Path, documents: Sequence[dict[str, Any]], queries: Sequence[str], *, zipped: bool
) -> Path:
    """Write documents whose ids do not ascend; without queries, the documents are the queries."""
    folder.mkdir()
    count = len(documents)
    lines = [
        json.dumps({"_id": f"d{(7 * i + 3) % 13:02}" if count <= 13 else f"d{i}", **document})
        for i, document in enumerate(documents)
    ]
    # Blank lines, and no line end after the last one.
    content = "\n\n".join(lines).encode()
    if zipped:
        (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(content))
    else:
        (folder / "corpus.jsonl").write_bytes(content)
    if queries:
        (folder / "queries.jsonl").write_text(
            "".join(
                json.dumps({"_id": f"q{i}", "text": text, **({"title": "Head"} if i % 2 else {})})
                + "\n"
                for i, text in enumerate(queries)
            )
        )
    return folder


def in_pieces(collection: Collection, scratch: Path, pieces: int) -> DistributedCounting:
    sizes = [path.stat().st_size for path in collection.path.glob("corpus.jsonl*")]
    size = -(-sizes[0] // pieces)
    return DistributedCounting(Folder(str(scratch)), InProcess(), piece_bytes=size)


def bits(rows: Rows) -> list[object]:
    arrays = (rows.indptr, rows.indices, rows.values)
    return [rows.width, *((array.dtype.str, array.tobytes()) for array in arrays)]


def assert_equal(collection: Collection, fields: Sequence[str], other: DistributedCounting) -> None:
    expected, _ = ALONE.words(collection, fields)
    found, frequency = other.words(collection, fields)
    assert found.words == expected.words
    assert [*map(bits, found.columns)] == [*map(bits, expected.columns)]
    assert frequency is not None
    assert frequency.tolist() == frequencies(collection, fields, found.words)
    assert other.compounds(collection, fields) == ALONE.compounds(collection, fields)
    for name in fields:
        (phrases, rows), (known, own) = (c.phrases(collection, name) for c in (other, ALONE))
        assert list(phrases.phrases) == list(known.phrases)
        assert bits(rows) == bits(own)


def frequencies(
    collection: Collection, fields: Sequence[str], vocabulary: Sequence[str]
) -> list[int]:
    """Count by hand in how many documents each word occurs."""
    found = Counter(
        word for d in collection.documents for word in {*words(field_text(d.fields, fields))}
    )
    return [found[word] for word in vocabulary]
