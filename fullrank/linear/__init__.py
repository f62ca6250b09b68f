"""The linear family: every model whose score is qᵀWd with W = UᵀV + D, per field and with a bias.

    u = U φ(q)          φ: unit tf-idf vector over words, plus the letter trigrams of each word
    v = V φ(d)          or layers above U and V (fullrank.models.linear.towers): then u is not linear in φ
    s = term weights of q                 words, hash buckets, phrases
    t = Σ_fields D_f · weights of d's field f  (+ the weight of the phrase that d's title is)

A word's row of the stored table already holds its trigrams (U_w + Σ_g U_g / √|trigrams|), so they cost nothing while
serving and place unseen words too. tf-idf, BM25, LSI and all of SSI are settings of this one class.
"""

from fullrank.models.linear.dense import DenseSide
from fullrank.models.linear.model import KIND, LinearModel
from fullrank.models.linear.sparse import SparseSide

__all__ = ["KIND", "DenseSide", "LinearModel", "SparseSide"]
