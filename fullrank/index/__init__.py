"""The index of a bundle: compact copies of the documents that are scanned in place of the truth.

    codes.py      int8 codes of v, one scale a document
    postings.py   word → documents with 8-bit impacts
    shortlists.py the documents that frequent words weigh most in, and a signature of each document
    cells.py      FAISS IVF over the dense parts: candidates of the fast mode
    build.py      all of it from encoded documents, in bounded memory, and opened again

Each knows how far it can be from the truth, so what it leaves out is proven to be no answer (fullrank.retrieval).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fullrank.encoding import Float32
from fullrank.index.codes import Codes
from fullrank.index.postings import Postings
from fullrank.index.shortlists import Shortlists

if TYPE_CHECKING:
    from fullrank.index.cells import Cells


@dataclass(frozen=True)
class Effort:
    """How hard the fast mode looks.

    nprobe    cells of the dense side that are looked at
    margin    and those that are behind by at most this part of ‖u‖ · the mean length of a centre
    dense     candidates of the dense side
    words     query words that are read, those of the most impact first
    depth     entries that are read of a frequent word
    sparse    candidates of the sparse side
    exact     of the candidates the so many best are scored exactly, twice what is wanted at least
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

    def sound(self) -> bool:
        """Whether it looks anywhere."""
        counts = (self.nprobe, self.dense, self.words, self.depth, self.sparse, self.exact)
        return min(counts) >= 1 and 0 <= self.floor < 1 and self.margin >= 0


@dataclass(frozen=True, eq=False)
class Index:
    """bias: float32 (n,), the documents' own; the last three are None where there is no fast mode."""

    codes: Codes
    postings: Postings
    bias: Float32
    largest_bias: float
    shortlists: Shortlists | None = None
    cells: Cells | None = None
    effort: Effort | None = None
