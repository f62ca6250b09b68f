"""Search over encoded documents: exact with a proof, or fast.

    exact   scan all documents with a bound on the error, score in float64 those that may be in the top k (select.py).
            The scan reads an index where there is one, else the encoded documents (candidates.py). Where there is a
            fast mode, its k-th score is what the others have to reach. Most queries have words that decide so much
            that few lists tell which documents may, without a scan.
    fast    score in float64 the candidates of the dense and of the sparse side (candidates.py); where the words of a
            query decide, and there are few documents, exact in less time

Both modes score all documents in float64 when a filter leaves few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from fullrank.kernels import exact
from fullrank.kernels.compiler import direct
from fullrank.kernels.evidence import NOTHING_NEEDED, Evidence, words_had
from fullrank.kernels.index import CodedQuery, read_only
from fullrank.kernels.rows import with_entries
from fullrank.retrieval.candidates import (
    FullScan,
    Scratch,
    fast_candidates,
    index_candidates,
    rows_from_score,
    rows_reaching,
)
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.index.codes import coded
from fullrank.retrieval.ranking import Ranking, Required, remaining
from fullrank.retrieval.scoring import Ranked, Scorer, TermShare, WordScore
from fullrank.retrieval.select import Scanned, ScoreParts, candidates
from fullrank.storage.encoding import Encoded, Float32, Int32, Int64, Mask
from fullrank.storage.floor import Floor, least_of
from fullrank.storage.records import Documents, Records

most_of_words = direct(exact.most_of_words)
# The scores of one block of queries take at most 64 MB.
_BLOCK_SCORES = 1 << 24
# If at most one document in 40 may be returned (in the fast mode one in 200), all of them are scored in float64. A
# record takes longer to read, so there it is one in 200 and one in 1,000 (docs/results/speed.md#exact-and-fast-search).
BRUTE_FORCE_DIVISORS, RECORDS_BRUTE_FORCE_DIVISORS = (40, 200), (200, 1000)
# Scoring more than one document in 64 as candidates takes longer than the exact search.
_MAX_RESCORED_DIVISOR = 64
# An exact search begins with a fast one of little effort, whose k-th score the others have to reach.
_FIRST_LOOK = Effort(nprobe=2, words=16, depth=128, sparse=32, rescored=16, floor=0.3)
# So does a fast search of at most so many documents, where the bound on all but the words is at most this share of the
# bound on the words: most such searches then end sooner, and with a proof.
_FEW_DOCUMENTS, _LEFT_TO_OTHERS = 1 << 17, 0.25


class Retriever(FullScan):
    """Search over encoded documents, whose rows ascend by document id.

    Args:
        scorer: Replaces u·v + s·t for a model that is no inner product; such a search reads no index.
        index: Compact copies of the documents: exact search reads less, and fast search is possible.
    """

    def __init__(
        self,
        documents: Documents,
        scorer: Scorer | None = None,
        index: Index | None = None,
    ) -> None:
        super().__init__(documents, scorer)
        self.index = index if scorer is None else None
        self._scratch = None if self.index is None else Scratch(len(documents))
        is_recorded = isinstance(documents, Records)
        self._divisors = RECORDS_BRUTE_FORCE_DIVISORS if is_recorded else BRUTE_FORCE_DIVISORS

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that `search` has here."""
        fast = self.index is not None and self.index.effort is not None
        return ("exact", "fast") if fast else ("exact",)

    def warm(self) -> None:
        """Build what the first search would build."""
        if self.index is None:
            super().warm()

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
        least: float = -math.inf,
        floor: Floor | None = None,
        counted: int | None = None,
    ) -> list[Ranking]:
        """Return places offset..offset + limit of each query's ranking.

        Args:
            limit: At least 1; a ranking is shorter where fewer documents remain.
            deleted: bool (n,), or (B, n) per query; True means never return this document.
            scanned: The result of `scores` for these queries, if the caller has it already.
            mode: "exact", or "fast" where the index has that mode (otherwise the search is exact).
            effort: Of the fast mode, in place of the index's own.
            least: The caller needs no document that scores less, so these may be left out.
            counted: Count the documents that reach the floor, up to one more than this, unless a fast search looks at
                some documents only; None: do not count.

        Raises:
            ValueError: The mode is unknown.
            TypeError: The arrays of the queries are not those that ``Encoded`` names.
        """
        _check_arrays(queries)
        if mode not in ("exact", "fast"):
            raise ValueError(f"mode {mode!r} is neither 'exact' nor 'fast'")
        if mode == "exact" or self.index is None:
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
                scan = self.scores(part) if self.index is None and floor is None else None
            for i in range(len(part)):
                mask = deleted if deleted is None or deleted.ndim == 1 else deleted[start + i]
                line = None if scan is None else scan[i]
                found.append(
                    self._one(part, i, line, limit, offset, mask, effort, least, floor, counted)
                )
        return found

    def reaching(
        self, query: Encoded, floor: Floor, *, deleted: Mask | None = None, most: int | None = None
    ) -> Int64:
        """Return the rows of the documents that reach a floor, in no order.

        Args:
            most: Where more documents than this reach it, any more than this many of them will do.
        """
        _check_arrays(query)
        parts, count = partial(self.score_parts, query), len(self.documents)
        if self.index is None:
            (rows, *_), _ = self._rank(query, remaining(count, deleted), floor, 0, count)
            return rows
        u, words, weights, _ = query.row(0)
        own = coded(u, self.index.tables.codes, self.index.tables.outline)
        most = count if most is None else most
        return rows_reaching(self.index, own, words, weights, floor, parts, deleted, most)

    def words_had(self, required: Required) -> Int64:
        """Return which words each document has, int64 (n,): a bit a word; the next one is of those that are kept."""
        words = (*required.words, required.kept)
        features = np.array(list(chain.from_iterable(words)), np.int32)
        numbers = np.repeat(np.arange(len(words)), list(map(len, words)))
        if self.index is None:
            lists = self.postings
            arrays = lists.indptr, lists.indices, np.zeros(0, np.int32)
        else:
            own = self.index.postings
            arrays = own.indptr, own.slots, self.index.cells.rows
        return words_had(*arrays, features, numbers, len(self.documents))

    def count(self, query: Encoded, floor: Floor, most: int, *, deleted: Mask | None = None) -> int:
        """Return how many documents reach a floor, or ``most`` + 1 if these are more; arguments as for `reaching`."""
        return min(len(self.reaching(query, floor, deleted=deleted, most=most)), most + 1)

    def _one(
        self,
        queries: Encoded,
        i: int,
        scan: Float32 | None,
        limit: int,
        offset: int,
        deleted: Mask | None,
        effort: Effort | None,
        least: float,
        floor: Floor | None,
        counted: int | None,
    ) -> Ranking:
        """Rank for query i the documents that reach the floor; no effort means an exact search."""
        count, wanted, n_found = len(self.documents), offset + limit, None
        one = queries.slice(i, i + 1)
        total = count if deleted is None else count - int(np.count_nonzero(deleted))
        score_parts: ScoreParts = partial(self.score_parts, one)
        divisor = self._divisors[0 if effort is None else 1]
        is_plain = floor is not None and self.index is None
        if is_plain or total <= max(wanted, count // divisor):
            rows = remaining(count, deleted)
            is_counted = counted is not None
            ranked, n_found = self._rank(one, rows, floor, offset, limit, is_counted)
            return Ranking(*ranked, certified=True, total=total, found=_counted(n_found, counted))
        if scan is not None:
            error = self.error(queries, i, scan)
            rows = candidates(Scanned(scan, error, error), wanted, score_parts, deleted)
        else:
            assert self.index is not None
            assert self._scratch is not None
            u, words, weights, _ = one.row(0)
            query = coded(u, self.index.tables.codes, self.index.tables.outline)
            look = partial(self._fast, query, words, weights, wanted, deleted, total / count)
            is_known = least > -math.inf
            by_score = partial(
                rows_from_score, self.index, self._scratch, query, words, weights, wanted, deleted, floor
            )  # fmt: skip
            reaching = by_score(least)
            looks_first = effort is None or (
                effort is self.index.effort and self._decides_by_words(query, words, weights)
            )
            if reaching is None and looks_first and self.index.cells.n_cells > 1 and not is_known:
                found = look(_FIRST_LOOK, least, None)
                if found is not None and len(found[0]) >= wanted:
                    kth, _ = self._rank(one, found[0], floor, wanted - 1, 1)
                    least = max([least, *kth[1].tolist()])
                    reaching = by_score(least)
            if reaching is None and effort is not None:
                found = look(effort, least, floor)
                if found is not None:
                    ranked, _ = self._rank(one, found[0], floor, offset, limit)
                    if len(ranked[0]) == limit or (is_known and not found[1]):
                        return Ranking(*ranked, certified=False, total=total)
            if reaching is None:
                reaching = index_candidates(
                    self.index, query, words, weights, wanted, score_parts, deleted, least, floor
                )  # fmt: skip
            rows = reaching
            if floor is not None and counted is not None:
                own = rows_reaching(
                    self.index, query, words, weights, floor, score_parts, deleted, counted
                )
                n_found = _counted(len(own), counted)
        ranked, _ = self._rank(one, rows, floor, offset, limit)
        return Ranking(*ranked, certified=True, total=total, found=n_found)

    def _decides_by_words(self, query: CodedQuery, words: Int32, weights: Float32) -> bool:
        assert self.index is not None
        if len(self.documents) > _FEW_DOCUMENTS:
            return False
        tables = self.index.tables
        others = query.length * tables.outline.longest + tables.codes.largest_bias
        return others <= _LEFT_TO_OTHERS * most_of_words(tables.postings.limits, words, weights)

    def _rank(
        self,
        query: Encoded,
        rows: Int64,
        floor: Floor | None,
        offset: int,
        limit: int,
        is_counted: bool = False,
    ) -> tuple[Ranked, int | None]:
        """Score rows in float64, and order those that reach the floor.

        Returns:
            Places offset..offset + limit of the order, and how many of the rows reach the floor if these are to be
            counted; None without a floor.
        """
        if floor is None:
            return self.rank(query, rows, NOTHING_NEEDED, offset, limit)[0], None
        return self.rank(query, rows, self._evidence(floor), offset, limit, is_counted)

    def _evidence(self, floor: Floor) -> Evidence:
        dense, lexical, score = least_of(floor)
        if not floor.words or not self.is_inner_product:
            return NOTHING_NEEDED._replace(dense=dense, lexical=lexical, score=score)
        words = np.array(floor.words, np.int32)
        if self.index is None:
            lists = self.postings
            arrays = lists.indptr, lists.indices, words, words[:0]
            return read_only(Evidence(dense, lexical, score, *arrays))
        words.setflags(write=False)
        own = self.index.postings
        return Evidence(dense, lexical, score, own.indptr, own.slots, words, self.index.cells.slots)

    def _fast(
        self,
        query: CodedQuery,
        words: Int32,
        weights: Float32,
        wanted: int,
        deleted: Mask | None,
        share: float,
        effort: Effort,
        least: float,
        floor: Floor | None,
    ) -> tuple[Int64, bool] | None:
        """Find candidates of the fast mode, and whether others may have been left out for their number.

        None where the exact search would be faster.
        """
        assert self.index is not None
        assert self._scratch is not None
        if self.index.has_unused_words:  # these decide nothing
            words, weights = with_entries(self.index.postings.indptr, words, weights)
        scaled = effort.scaled(len(words), wanted)
        if scaled.rescored > max(effort.rescored, len(self.documents) // _MAX_RESCORED_DIVISOR):
            return None
        rows = fast_candidates(
            self.index, self._scratch, query, words, weights, wanted, scaled, deleted, share, least, floor
        )  # fmt: skip
        return rows, len(rows) >= scaled.rescored


_FLOAT32, _INT32 = np.dtype(np.float32), np.dtype(np.int32)


def _check_arrays(queries: Encoded) -> None:
    """Raise TypeError for arrays that kernels would misread: those that Python calls directly check nothing."""
    dense, (_, indices, values) = queries.dense, queries.sparse.arrays
    has_gaps = dense.shape[1] > 1 and dense.strides[1] != 4
    has_gaps |= not (indices.flags.c_contiguous and values.flags.c_contiguous)
    if has_gaps or (dense.dtype, indices.dtype, values.dtype) != (_FLOAT32, _INT32, _FLOAT32):
        raise TypeError("queries must have contiguous arrays: float32, and int32 for features")


def _counted(found: int | None, counted: int | None) -> int | None:
    return None if found is None or counted is None else min(found, counted + 1)


# Explain a score: split it by part and by word of the query.


@dataclass(frozen=True, slots=True)
class Explanation:
    """score = dense + lexical + bias, and the words with the largest contributions, largest first."""

    dense: float
    lexical: float
    bias: float
    words: list[WordScore]


def explain(
    terms: Sequence[TermShare], retriever: Retriever, query: Encoded, row: int, limit: int = 8
) -> Explanation:
    """Split the score of one document for a query.

    The contributions of all words add up to the dense and the lexical part.

    Args:
        limit: The number of words to return at most; words without a contribution are left out.
    """
    words = retriever.scorer.explain(terms, query, row)
    dense = sum(word.dense for word in words)
    lexical = sum(word.lexical for word in words)
    bias = float(retriever.documents.bias[row])
    return Explanation(dense, lexical, bias, largest(words, limit))


def largest(words: Sequence[WordScore], limit: int = 8) -> list[WordScore]:
    """Return the words with the largest contributions, largest first; those without one are left out."""
    ordered = sorted(words, key=lambda word: (-abs(word.dense + word.lexical), word.word))
    return [word for word in ordered[:limit] if word.dense or word.lexical]
