"""Compose word vectors of trained rows, and fold trained rows into one table of words for serving.

    u_w = Σ_r C_wr U_r                  C: (words, trained rows), sparse

    own rows              C = I
    letter trigrams       C = [I | T]       T_wg = 1/√|G_w| for each trigram g of w
    trigrams "only"       C = T             word hashing
    hashing "all"         C = H             H_wj = 1/√k for j = S_1(w) … S_k(w): correlated feature hashing
    hashing "rare"        C = [F | H]       frequent words have rows of their own; every other word has rows of a
                                            second table

u = Σ_w x_w u_w is linear, so training works on x C and a compiled model stores C U, one row per word. Serving needs C
for unseen words only; they have trigrams and no neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Float32, Rows
from fullrank.models.linear import DenseSide
from fullrank.text.features import trigram_rows
from fullrank_trainer.features.related import Neighbours

Matrix = sp.csr_array[np.float32]

_FOLDED_ROWS = 1 << 13  # at once; the sum of all rows at once would need two more tables


@dataclass(frozen=True, eq=False)
class Composition:
    """C of one side. The trained rows are ``labels``, then trigrams.

    Attributes:
        labels: of the trained rows; equal labels on both sides mean the same.
        words: (words, labels); None is the identity.
        second_table: the rows of the second table; empty if there is one table.
    """

    labels: Sequence[str]
    words: Matrix | None
    second_table: slice = field(default_factory=lambda: slice(0))

    def composer(self, side: DenseSide, unseen: Sequence[str]) -> Callable[[Rows], Rows]:
        """Return a function from x to x C: φ over trained rows.

        Args:
            side: whose words and trigrams C has.
            unseen: words that the side lacks.

        Returns:
            A function of φ over the side's words, then over ``unseen``, (texts, words + unseen).
        """
        known = len(side.words)
        if self.words is None and not len(side.trigrams):
            return lambda x: x
        letters = None
        if len(side.trigrams):
            letters = trigram_rows([*side.words.words, *unseen], side.trigrams).csr()

        def compose(x: Rows) -> Rows:
            matrix = x.csr()
            parts = [matrix[:, :known] if self.words is None else matrix[:, :known] @ self.words]
            if letters is not None:
                parts.append(matrix @ letters)
            return Rows.from_csr(sp.csr_array(sp.hstack(parts, format="csr")))

        return compose

    def fold(
        self,
        side: DenseSide,
        table: Float32,
        zeros: Callable[[tuple[int, int]], Float32] = np.zeros,
    ) -> DenseSide:
        """Return the side that serves: C U, and the trigrams' rows for unseen words.

        Args:
            side: whose words and trigrams C has.
            table: U, float32 (trained rows, N).
            zeros: makes an array of a shape, which gets the sum of words and trigrams.
        """
        rows, letters = table[: len(self.labels)], table[len(self.labels) :]
        if self.words is not None:
            rows = np.asarray(self.words @ rows)
        if len(letters):
            own, rows = rows, zeros((len(rows), table.shape[1]))
            parts = trigram_rows(side.words.words, side.trigrams).csr()
            for first in range(0, len(rows), _FOLDED_ROWS):
                block = slice(first, first + _FOLDED_ROWS)
                rows[block] = own[block] + np.asarray(parts[block] @ letters)
        return replace(
            side,
            table=np.ascontiguousarray(rows, np.float32),
            trigram_table=np.ascontiguousarray(letters, np.float32),
        )


def own_rows(words: Sequence[str]) -> Composition:
    """Give each word its own row."""
    return Composition(words, None)


def no_rows(words: Sequence[str]) -> Composition:
    """Compose words of their trigrams only."""
    return Composition([], sp.csr_array(np.zeros((len(words), 0), np.float32)))


def hashed(words: Sequence[str], neighbours: Neighbours) -> Composition:
    """Compose every word of the rows of its bins S_1(w) … S_k(w), each times 1/√k."""
    return Composition(list(neighbours.bins), _bins_of(words, neighbours))


def mixed(words: Sequence[str], neighbours: Neighbours) -> Composition:
    """Give frequent words their own rows and hash the others into a second table."""
    place = {word: j for j, word in enumerate(neighbours.bins)}
    own = np.array([place.get(word, -1) for word in words], np.int32).reshape(-1)
    frequent = np.flatnonzero(own >= 0)
    first = sp.csr_array(
        (np.ones(len(frequent), np.float32), (frequent, own[frequent])),
        shape=(len(words), len(neighbours.bins)),
    )
    others = sp.diags_array((own < 0).astype(np.float32))
    second = sp.csr_array(others @ _bins_of(words, neighbours))
    second.eliminate_zeros()
    labels = [*neighbours.bins, *(f"like {word}" for word in neighbours.bins)]
    both = sp.csr_array(sp.hstack([first, second], format="csr"))
    return Composition(labels, both, slice(len(neighbours.bins), len(labels)))


def _bins_of(words: Sequence[str], neighbours: Neighbours) -> Matrix:
    """Return H, (words, bins)."""
    rows = np.array([neighbours.index.get(word, -1) for word in words], np.int64).reshape(-1)
    places = np.where(rows[:, None] >= 0, neighbours.places[rows], np.int32(-1))
    k = places.shape[1]
    word, _ = np.nonzero(places >= 0)
    values = np.full(len(word), k**-0.5, np.float32)
    shape = (len(words), len(neighbours.bins))
    return sp.csr_array((values, (word, places[places >= 0])), shape=shape)
