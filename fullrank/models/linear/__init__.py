"""The linear family: every model whose score is qᵀWd with W = UᵀV + D, per field and with a bias.

    u = U φ(q)          φ: unit tf-idf vector over words, plus the letter trigrams of each word
    v = V φ(d)          or layers above U and V; then u is not linear in φ
    s = weights of the words of q         words, hash buckets, phrases
    t = Σ_fields D_f · weights of d's field f  (+ the weight of the phrase that d's title is)

The row of a word in a stored table already includes its trigrams (U_w + Σ_g U_g / √|trigrams|): they cost nothing while
serving, and give unknown words a vector too. tf-idf, BM25, LSI and all of SSI are settings of this one class.

model.py    LinearModel, and its stored form
sides.py    DenseSide: u or v; SparseSide: s and t; Tower: layers above a table
shares.py   an encoded query, and u·v, split by word
"""

from fullrank.models.linear.model import KIND, LinearModel
from fullrank.models.linear.sides import DenseSide, SparseSide

__all__ = ["KIND", "DenseSide", "LinearModel", "SparseSide"]
