"""The index of a bundle: compact copies of the documents, which a search reads in place of them.

cells.py      groups of near documents by k-means, and the order of slots, by which all parts number the documents
codes.py      int8 codes of v and of queries, b, and outlines: v in a few directions, and the length of the rest
build.py      posting lists with 8-bit impacts, short lists of frequent words, signatures of documents; builds all of
              an index in bounded memory, opens and checks it

Each part bounds its own error, so that a search can prove which documents cannot be in the top k (fullrank.retrieval).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fullrank.kernels.index import Cells, Postings, Tables
from fullrank.storage.encoding import Float64

# Measured on queries of a thousand words: half of it costs 0.01 of recall@10 and 0.02 of recall@100, twice it gains 0.
_MAX_SCALE = 8
# An effort is chosen by recall@10 (fullrank.retrieval.tune).
_TUNED_LIMIT = 10
# Lengths of queries and numbers of hits, of a few bundles.
_CACHED = 1024


@dataclass(frozen=True)
class Effort:
    """How much work the fast mode does for a query.

    Attributes:
        nprobe: Cells whose documents are all estimated in any case.
        words: The longest query, in words, that the counts are for; `scaled` adapts them to longer ones.
        depth: Entries to read of a frequent word's list.
        sparse: Documents read that are estimated first.
        rescored: Candidates to score in float64.
        floor: Skip the entries of a frequent word below this share of the largest contribution of any word.
        margin: How far a document may be above its cell's mean score, as a share of ‖u‖ · ‖v − centre‖.
    """

    nprobe: int
    words: int
    depth: int
    sparse: int
    rescored: int
    floor: float = 0.0
    margin: float = 0.0

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Effort:
        """Read what a manifest stores. Raises TypeError where a name is missing or unknown."""
        return cls(**stored)

    @lru_cache(maxsize=_CACHED)  # noqa: B019 - an effort lives as long as its bundle
    def scaled(self, words: int, wanted: int) -> Effort:
        """Adapt the effort to the number of words of a query and the number of documents to return.

        With more words, each word decides less, and the best documents are further down the lists of candidates. So
        the fast mode reads less of each word and keeps more candidates, up to _MAX_SCALE times as many, and _MAX_SCALE
        more for each wanted document beyond _TUNED_LIMIT. It keeps at least twice as many as wanted.
        """
        factor = max(1.0, min(words / self.words, _MAX_SCALE))
        more = _MAX_SCALE * max(0, wanted - _TUNED_LIMIT)

        def kept(count: int) -> int:
            return max(round(count * factor) + more, 2 * wanted)

        return replace(
            self,
            depth=max(1, round(self.depth / factor)),
            sparse=kept(self.sparse),
            rescored=kept(self.rescored),
        )

    def of_segment(self) -> Effort:
        """Return the effort for live documents, which are searched after those of the bundle.

        Words that the model was not trained on are features of live documents alone. They about double the features of
        a query, but do not make the others less decisive. Half of the candidates suffice, because the k-th score of the
        bundle is known.
        """
        return replace(self, words=2 * self.words, rescored=-(-self.rescored // 2))

    def is_valid(self) -> bool:
        """Tell whether every number is of its type and in its range."""
        counts = (self.nprobe, self.words, self.depth, self.sparse, self.rescored)
        whole = all(type(count) is int and count >= 1 for count in counts)
        parts = all(isinstance(part, int | float) for part in (self.floor, self.margin))
        return whole and parts and 0 <= self.floor < 1 and 0 <= self.margin < math.inf


@dataclass(frozen=True, eq=False)
class Index:
    """The parts of an index.

    Attributes:
        tables: As kernels take them, read-only.
        effort: None where the bundle has no fast mode.
    """

    tables: Tables
    effort: Effort | None = None
    _rests: dict[int, Float64] = field(default_factory=dict, init=False, repr=False)

    @property
    def cells(self) -> Cells:
        """The order of the slots."""
        return self.tables.cells

    @property
    def postings(self) -> Postings:
        """The posting lists."""
        return self.tables.postings

    @cached_property
    def has_unused_words(self) -> bool:
        """Whether no document has some word, as in compacted bundles."""
        return bool((self.postings.indptr[1:] == self.postings.indptr[:-1]).any())

    def rest(self, depth: int) -> Float64:
        """Return rest_w of the words of the signatures, where `depth` entries of a list are read."""
        if (known := self._rests.get(depth)) is None:
            lists, postings = self.tables.shortlists, self.postings
            known = lists.means.astype(np.float64)
            count = postings.indptr[lists.signed + 1] - postings.indptr[lists.signed]
            for i, word in enumerate(lists.signed.tolist()):
                start, stop = lists.indptr[word], lists.indptr[word + 1]
                read = lists.impacts[start : min(stop, start + depth)]
                left = int(count[i]) - len(read)
                if left > 0:
                    known[i] = (known[i] * count[i] - read.sum(dtype=np.float64)) / left
            self._rests[depth] = known
        return known
