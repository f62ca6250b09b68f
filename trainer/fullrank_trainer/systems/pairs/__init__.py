"""Fit word-pair models: W dense, sparse or hashed."""
