"""Fit half transductive ranking, and the eigenmaps that it is compared with."""
