"""The documents of a bundle as a corpus, to train or index again."""

from __future__ import annotations

from pathlib import Path

from fullrank.bundle.bundle import Bundle
from fullrank.progress import Reporter
from fullrank.storage.files import replacing

_ROWS_PER_STEP = 1024


def write_corpus(bundle: Bundle, file: Path, report: Reporter) -> int:
    """Write a corpus.jsonl, which appears when it is complete; return the number of documents. Raises OSError."""
    store = bundle.documents
    with replacing(file) as lines, report.stage("export", len(store)) as stage:
        for start in range(0, len(store), _ROWS_PER_STEP):
            rows = range(start, min(start + _ROWS_PER_STEP, len(store)))
            lines.writelines(map(store.corpus_line, rows))
            stage.advance(len(rows))
    return len(store)
