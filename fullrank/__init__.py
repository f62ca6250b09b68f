"""Fullrank: learned matching and exact matching in one score.

f(q, d) = (U q)·(V d) + Σ_fields q·D_f·d_f + b_d
"""

__version__ = "0.1.0"
