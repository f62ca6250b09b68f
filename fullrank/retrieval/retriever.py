"""Search over encoded documents: exact with a proof, or fast.

    exact   scan all documents with a bound on the error, score exactly what may be among the best (select.py).
            The scan reads an index where there is one (compact.py), else the truth in float32 (truth.py).
    fast    score exactly the candidates of the dense and of the sparse side (fast.py)

Few documents that may be returned are scored outright, in either mode.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fullrank.encoding import Encoded, Float32, Float64, Int32, Int64
from fullrank.index import Effort, Index
from fullrank.model import Scorer
from fullrank.retrieval.fast import Candidates
from fullrank.retrieval.index_scan import Scan
from fullrank.retrieval.ranking import Mask, Ranking
from fullrank.retrieval.scratch import Scratch
from fullrank.retrieval.select import Exact, Scanned, candidates, rank
from fullrank.retrieval.truth import Truth

# Scores of one block of queries stay below 64 MB.
_BLOCK_SCORES = 1 << 24
# Where no more than this part of the documents may be returned they are all scored outright. Of a million
# documents one in a hundred takes 8 to 10 ms so, a scan 11 (docs/results.md).
_OUTRIGHT = 80
# With more candidates than so many times what is wanted, and so many, more words are added.
_MANY, _MANY_AT_LEAST = 8, 1024
# A filter that leaves less than this part of the documents empties the lists of the fast mode.
_FAST_SHARE = 0.3
# Scoring more than this part of the documents as candidates takes longer than the exact search.
_FAST_PART = 64


class Retriever:
    """Search over encoded documents, whose rows ascend by document id.

    scorer  in place of u·v + s·t, where the model is no inner product: the scan is then the exact
            score itself, rounded
    index   compact copies of the documents: exact search reads less, and fast search is possible
    """

    def __init__(
        self, documents: Encoded, scorer: Scorer | None = None, index: Index | None = None
    ) -> None:
        self.documents, self.scorer = documents, scorer
        self.index = index if scorer is None else None
        self._truth = Truth(documents, scorer)
        self._scratch = None if self.index is None else Scratch(len(documents))

    @property
    def modes(self) -> tuple[str, ...]:
        """What ``search`` takes as its mode, beside falling back from fast to exact."""
        fast = self.index is not None and self.index.effort is not None
        return ("exact", "fast") if fast else ("exact",)

    def warm(self) -> None:
        """Build what the first search would have to."""
        if self.index is None:
            self._truth.warm()

    def search(
        self,
        queries: Encoded,
        limit: int,
        *,
        offset: int = 0,
        deleted: Mask | None = None,
        scanned: Float32 | None = None,
        mode: str = "exact",
        effort: Effort | None = None,
    ) -> list[Ranking]:
        """The places offset..offset + limit of each query's ranking.

        limit    at least 1; fewer documents are returned where fewer remain
        deleted  bool (n,), or (B, n) per query: True is never returned
        scanned  what ``scores`` found for these queries, where the caller has it already
        mode     "exact", or "fast" where the index has that mode (else the answer is exact)
        effort   of the fast mode, in place of the index's own
        Raises ValueError for another mode.
        """
        if mode not in ("exact", "fast"):
            raise ValueError(f"mode {mode!r} is neither 'exact' nor 'fast'")
        if mode == "exact" or self.index is None or self.index.shortlists is None:
            effort = None
        elif effort is None:
            effort = self.index.effort
        found: list[Ranking] = []
        block = max(1, _BLOCK_SCORES // max(1, len(self.documents)))
        for start in range(0, len(queries), block):
            part = queries.slice(start, min(start + block, len(queries)))
            if scanned is not None:
                scan: Float32 | None = scanned[start : start + len(part)]
            else:
                scan = self.scores(part) if self.index is None else None
            for i in range(len(part)):
                mask = deleted if deleted is None or deleted.ndim == 1 else deleted[start + i]
                line = None if scan is None else scan[i]
                found.append(self._one(part, i, line, limit, offset, mask, effort))
        return found

    def _one(
        self,
        queries: Encoded,
        i: int,
        scan: Float32 | None,
        limit: int,
        offset: int,
        deleted: Mask | None,
        effort: Effort | None,
    ) -> Ranking:
        """Query i; effort is None for an exact answer."""
        count, wanted = len(self.documents), offset + limit
        total = count if deleted is None else count - int(np.count_nonzero(deleted))
        exact: Exact = partial(self._truth.exact, queries, i)
        certified = True
        if total <= max(wanted, count // _OUTRIGHT):
            rows = np.arange(count) if deleted is None else np.flatnonzero(~deleted)
        elif scan is not None:
            error = self._truth.error(queries, i, scan)
            rows = candidates(Scanned(scan, error, error), wanted, exact, deleted)
        else:
            u, words, weights, _ = queries.row(i)
            rows = np.zeros(0, np.int64)
            if effort is not None and total >= count * _FAST_SHARE:
                rows = self._fast(u, words, weights, wanted, effort, deleted)
            certified = len(rows) < wanted
            if certified:
                rows = self._scan(u, words, weights, wanted, exact, deleted)
        return rank(rows, exact, limit, offset, certified=certified, total=total)

    @np.errstate(over="ignore", invalid="ignore")
    def _scan(
        self,
        u: Float32,
        words: Int32,
        weights: Float32,
        wanted: int,
        exact: Exact,
        deleted: Mask | None,
    ) -> Int64:
        """Candidates by a scan of the index, with as many words as keep them few."""
        assert self.index is not None
        assert self._scratch is not None
        room = self._scratch
        try:
            scan = Scan(self.index, u, words, weights, room.scores)
            rows = candidates(scan.scanned(), wanted, exact, deleted, room.work)
            while len(rows) > max(_MANY_AT_LEAST, _MANY * wanted) and scan.refine():
                rows = candidates(scan.scanned(), wanted, exact, deleted, room.work)
            return rows
        finally:
            room.scores.fill(0)

    def _fast(
        self,
        u: Float32,
        words: Int32,
        weights: Float32,
        wanted: int,
        effort: Effort,
        deleted: Mask | None,
    ) -> Int64:
        """Candidates of the fast mode; none where the exact one would be quicker."""
        assert self.index is not None
        assert self._scratch is not None
        stretched = effort.stretched(len(words), wanted)
        if stretched.exact > max(effort.exact, len(self.documents) // _FAST_PART):
            return np.zeros(0, np.int64)
        fast = Candidates(self.index, self._scratch)
        return fast.find(u, words, weights, stretched, deleted)

    def scores(self, queries: Encoded) -> Float32:
        """The float32 scan of the truth: scores of all documents, (B, n), each within ε of the exact one."""
        return self._truth.scan(queries)

    def exact(self, queries: Encoded, i: int, rows: Int64) -> tuple[Float64, Float64, Float64]:
        """(learned, exact, bias) of query i for the given documents, in float64."""
        return self._truth.exact(queries, i, rows)
