"""Fit projections of both sides into one space: LSA, CL-LSA, OPCA, S2Net."""
