"""The index of a bundle: compact copies of the documents that are scanned in place of the truth.

    codes.py      int8 codes of v, one scale a document
    postings.py   word → documents with 8-bit impacts
    shortlists.py the documents that frequent words weigh most in, and a signature of each document
    cells.py      FAISS IVF over the dense parts: candidates of the fast mode
    build.py      all of it from encoded documents, in bounded memory, and opened again

Each knows how far it can be from the truth, so what it leaves out is proven to be no answer (fullrank.retrieval).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fullrank.encoding import Float32
from fullrank.retrieval.index.codes import Codes
from fullrank.retrieval.index.postings import Postings
from fullrank.retrieval.index.shortlists import Shortlists

if TYPE_CHECKING:
    from fullrank.retrieval.index.cells import Cells


# Measured: with half of it recall@10 of a thousand words loses a hundredth, and recall@100 two; twice it gains nothing.
_STRETCH = 8
# An effort is chosen by recall@10 (fullrank.retrieval.tune).
_TUNED_FOR = 10


@dataclass(frozen=True)
class Effort:
    """How hard the fast mode looks.

    nprobe    cells of the dense side that are looked at
    margin    and those that are behind by at most this part of ‖u‖ · the mean length of a centre
    dense     candidates of the dense side
    words     the counts hold for queries of at most so many words; for others see ``stretched``
    depth     entries that are read of a frequent word
    sparse    candidates of the sparse side
    exact     of the candidates the so many best are scored exactly
    floor     of a frequent word nothing is read that brings less than this part of the most that a word can bring
    """

    nprobe: int
    dense: int
    words: int
    depth: int
    sparse: int
    exact: int
    floor: float = 0.0
    margin: float = 0.0

    def stretched(self, words: int, wanted: int) -> Effort:
        """The effort for a query of so many words, of which the so many first documents are wanted.

        The more words, the less any one of them decides, and the further down the lists of candidates the answers are:
        less is read of each word and more candidates are kept, up to _STRETCH times as many; and _STRETCH more for
        each document wanted beyond the first _TUNED_FOR. Twice what is wanted is kept at least.
        """
        times = max(1.0, min(words / self.words, _STRETCH))
        more = _STRETCH * max(0, wanted - _TUNED_FOR)

        def kept(count: int) -> int:
            return max(round(count * times) + more, 2 * wanted)

        return replace(
            self,
            dense=kept(self.dense),
            depth=max(1, round(self.depth / times)),
            sparse=kept(self.sparse),
            exact=kept(self.exact),
        )

    def sound(self) -> bool:
        """Whether it looks anywhere."""
        counts = (self.nprobe, self.dense, self.words, self.depth, self.sparse, self.exact)
        whole = all(type(count) is int and count >= 1 for count in counts)
        parts = all(isinstance(part, int | float) for part in (self.floor, self.margin))
        return whole and parts and 0 <= self.floor < 1 and 0 <= self.margin < math.inf


@dataclass(frozen=True, eq=False)
class Index:
    """bias: float32 (n,), the documents' own; effort is None where there is no fast mode."""

    codes: Codes
    postings: Postings
    bias: Float32
    largest_bias: float
    shortlists: Shortlists | None = None
    cells: Cells | None = None
    effort: Effort | None = None
